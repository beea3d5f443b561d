import { URLPattern } from 'urlpattern-polyfill';
import { unmetered } from '../../kernel/slices.ts';
import { type Component, compileComponent, matchesComponent } from './component.ts';
import { type Part, parseParts } from './parts.ts';
import { refusal } from './refusal.ts';
import { isPlain, type Token, tokenize } from './tokens.ts';
import type { UrlComponentName } from './url-components.ts';

const DEFAULT_PORTS: ReadonlyMap<string, string> = new Map([
  ['http', '80'],
  ['ws', '80'],
  ['https', '443'],
  ['wss', '443'],
  ['ftp', '21'],
]);
const SPECIAL_SCHEMES = ['http', 'https', 'ws', 'wss', 'ftp', 'file'];
const SCHEME = /^[a-z][a-z0-9+.-]*$/i;
/** Groups and braces in one pattern; the library's time grows faster than their number. */
const MAX_GROUPS = 200;
/** The host that the library falls back to, without a word, when the URL parser refuses one. */
const LIBRARY_FALLBACK_HOST = 'example.com';
const WRITTEN_FALLBACK_HOST = /(?<![\w.-])example\.com(?![\w.-])/i;

/**
 * Reads a constructor string (URL Pattern §1.3) against the base URL into compiled components.
 *
 * The library splits the text, fills in from the base, and canonicalises. It is kept from matching
 * anything, even while it constructs: its backtracking takes hours over a hostile protocol. So it
 * sees a stand-in for the protocol, and placeholders for the custom groups and their names, which
 * also makes its answer independent of the engine's regular expressions. Where it departs from the
 * standard it is put right here.
 *
 * @throws HubgateError `invalid-pattern`
 */
export function readPattern(text: string, base: string): Record<UrlComponentName, Component> {
  const tokens = tokenize(text);
  refuseMisread(tokens);
  if (tokens.filter(isGroup).length > MAX_GROUPS) throw refusal(`more than ${MAX_GROUPS} groups`);
  const colon = protocolEnd(tokens);
  const scheme = colon === -1 ? null : text.slice(0, tokens[colon]?.index);
  const protocol = compileComponent(
    protocolParts(scheme ?? new URL(base).protocol.slice(0, -1)),
    '',
  );
  const special = SPECIAL_SCHEMES.some((name) => matchesComponent(protocol, name, unmetered()));
  const groups: string[] = [];
  const masked = mask(text, colon === -1 ? tokens : tokens.slice(colon), groups);
  // `file` is special and has no default port, which depends on the real protocol.
  const standIn = scheme === null ? '' : special ? 'file' : 'x';
  const library = construct(`${standIn}${masked}`, base);
  const read = (source: string, prefix: string): readonly Part[] =>
    parseParts(source, prefix).map((part) => unmask(part, groups));
  const hostname = read(library.hostname, '');
  requireWrittenHost(hostname, text);
  const isDefaultPort = scheme !== null && DEFAULT_PORTS.get(scheme) === library.port;
  const port = isDefaultPort ? [] : read(library.port, '').map(withoutLeadingZeros);
  const slash = special ? '/' : '';
  return {
    protocol,
    username: compileComponent(read(library.username, ''), ''),
    password: compileComponent(read(library.password, ''), ''),
    hostname: compileComponent(hostname, '.'),
    port: compileComponent(port, ''),
    pathname: compileComponent(read(library.pathname, slash), slash),
    search: compileComponent(read(library.search, ''), ''),
    hash: compileComponent(read(library.hash, ''), ''),
  };
}

/** What the library sees as a group, or may; see {@link mask} for the escapes. */
function isGroup({ type, value }: Token): boolean {
  if (type === 'escaped-char') return value === '?' || value === '#';
  return type === 'open' || type === 'name' || type === 'regexp' || type === 'asterisk';
}

/** Index of the colon that ends the protocol: the first that belongs to no group; -1 for none. */
function protocolEnd(tokens: readonly Token[]): number {
  let inBraces = false;
  return tokens.findIndex((token) => {
    if (inBraces) inBraces = token.type !== 'close';
    else inBraces = token.type === 'open';
    return !inBraces && isPlain(token, ':');
  });
}

function protocolParts(source: string): readonly Part[] {
  return parseParts(source, '').map((part) => ({
    ...part,
    prefix: canonicalScheme(part.prefix),
    suffix: canonicalScheme(part.suffix),
  }));
}

function canonicalScheme(text: string): string {
  if (text !== '' && !SCHEME.test(text)) throw refusal(`"${text}" is not a URL scheme`);
  return text.toLowerCase();
}

/**
 * The text of `tokens` with each custom group replaced by its number, and each name by another.
 * A `?` in the query and a `#` in the fragment, which the library drops where a part begins with
 * them, become groups that match just them.
 */
function mask(text: string, tokens: readonly Token[], groups: string[]): string {
  const names = new Map<string, number>();
  const component = new ComponentTracker();
  let masked = '';
  let replaced = false;
  tokens.forEach((token, index) => {
    if (replaced && token.type === 'other-modifier') throw refusal('text takes no modifier');
    const wildcard = replaced && token.type === 'asterisk';
    replaced = component.reads(token, tokens[index - 1]);
    if (token.type === 'regexp') masked += `(g${groups.push(token.value) - 1})`;
    else if (token.type === 'name') masked += `:n${numberOf(token.value, names)}`;
    // The empty braces keep a name before it from taking the group for its own.
    else if (replaced) masked += `{}(g${groups.push(`[${token.value}]`) - 1})`;
    // Behind a group an asterisk would be its modifier.
    else if (wildcard) masked += '(.*)';
    else masked += text.slice(token.index, tokens[index + 1]?.index);
  });
  return masked;
}

/** Follows the constructor string into the query and the fragment. */
class ComponentTracker {
  #component: 'before' | 'search' | 'hash' = 'before';
  #begins = false;
  #inBraces = false;

  /** Takes the next token; true when it is the component's separator but stands for itself. */
  reads(token: Token, previous: Token | undefined): boolean {
    if (this.#inBraces) this.#inBraces = token.type !== 'close';
    else this.#inBraces = token.type === 'open';
    // Right after the separator the standard drops one of its kind as well.
    const first = this.#begins && token.type === 'char';
    this.#begins = false;
    if (this.#inBraces) {
      const separator = this.#component === 'hash' ? '#' : '?';
      if (this.#component === 'before' || !isPlain(token, separator)) return false;
      throw refusal(`"${separator}" in braces`);
    }
    if (this.#component === 'hash') return isPlain(token, '#') && !first;
    if (isPlain(token, '#')) this.#enter('hash');
    else if (this.#component === 'search') return isPlain(token, '?');
    else if (isSearchPrefix(token, previous)) this.#enter('search');
    return false;
  }

  #enter(component: 'search' | 'hash'): void {
    this.#component = component;
    this.#begins = true;
  }
}

/** After a group `?` makes it optional; elsewhere it begins the query. */
function isSearchPrefix(token: Token, previous: Token | undefined): boolean {
  if (isPlain(token, '?')) return true;
  if (token.value !== '?') return false;
  return previous === undefined || !['name', 'regexp', 'close', 'asterisk'].includes(previous.type);
}

/**
 * Refuses what the library would read as something else: a lone backslash, a group that is none,
 * and `..` that leads out of the text behind a group, which the standard leaves undefined.
 */
function refuseMisread(tokens: readonly Token[]): void {
  let run: string | null = null;
  for (const token of tokens) {
    if (token.type === 'invalid-char' && token.value !== ':') {
      throw refusal(`unexpected "${token.value}" at ${token.index}`);
    }
    if (token.type === 'char' || token.type === 'escaped-char') {
      if (run !== null) run += token.value;
      continue;
    }
    if (run !== null && climbs(run)) throw refusal('".." leads out of the text that it stands in');
    run = token.type === 'open' || token.type === 'invalid-char' ? null : '';
  }
}

function climbs(run: string): boolean {
  const [path = ''] = run.split(/[?#]/, 1);
  if (path.startsWith('/') || !/\.|%2e/i.test(path)) return false;
  return !new URL(`/-${path}`, 'https://hub.invalid').pathname.startsWith('/-');
}

function numberOf(name: string, names: Map<string, number>): number {
  const number = names.get(name) ?? names.size;
  names.set(name, number);
  return number;
}

function unmask(part: Part, groups: readonly string[]): Part {
  if (part.group?.kind !== 'regexp') return part;
  const body = groups[Number(part.group.body.slice(1))];
  if (body === undefined) throw refusal('a group got lost');
  return { ...part, group: { kind: 'regexp', body } };
}

function construct(text: string, base: string): URLPattern {
  try {
    return new URLPattern(text, base);
  } catch (error) {
    throw refusal('it does not parse', error);
  }
}

/** Refuses a host that the library put in place of one that the URL parser refused. */
function requireWrittenHost(parts: readonly Part[], text: string): void {
  const written = WRITTEN_FALLBACK_HOST.test(text.replace(/[\\{}]/g, ''));
  const replaced = parts.some(
    ({ prefix, suffix }) =>
      (prefix === LIBRARY_FALLBACK_HOST || suffix === LIBRARY_FALLBACK_HOST) && !written,
  );
  if (replaced) throw refusal('the URL parser refuses its host');
}

function withoutLeadingZeros(part: Part): Part {
  const strip = (digits: string): string => digits.replace(/^0+(?=\d)/, '');
  return { ...part, prefix: strip(part.prefix), suffix: strip(part.suffix) };
}
