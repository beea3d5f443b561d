import { URLPattern } from 'urlpattern-polyfill';
import { unlimitedBudget } from '../../kernel/scheduler.ts';
import { compileComponent, type Component, matchesComponent } from './component.ts';
import { CharacterClasses } from './group-regexp.ts';
import { parseParts, type Part, refusal, isPlain, type Token, tokenize } from './parts.ts';
import type { UrlComponentName } from '../topic.ts';
import { requireUrl, withoutDotSegments } from '../../kernel/parse.ts';

const DEFAULT_PORTS: ReadonlyMap<string, string> = new Map([
  ['http', '80'],
  ['ws', '80'],
  ['https', '443'],
  ['wss', '443'],
  ['ftp', '21'],
]);
const SPECIAL_SCHEMES = ['http', 'https', 'ws', 'wss', 'ftp', 'file'];
const SCHEME = /^[a-z][a-z0-9+.-]*$/i;
/** Groups and braces in one pattern. The library's time grows faster than their number. */
const MAX_GROUPS = 100;
/** Two base hosts: if a text replaces neither of them, it is not a host. */
const PROBES = ['https://one.invalid', 'https://two.invalid'] as const;

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
  const classes = new CharacterClasses();
  const compiled = (parts: readonly Part[], delimiter = ''): Component =>
    compileComponent(parts, delimiter, classes);
  const colon = protocolEnd(tokens);
  const scheme = colon === -1 ? null : text.slice(0, tokens[colon]?.index);
  const protocol = compiled(protocolParts(scheme ?? requireUrl(base).protocol.slice(0, -1)));
  const special = SPECIAL_SCHEMES.some((name) =>
    matchesComponent(protocol, name, unlimitedBudget()),
  );
  const groups: string[] = [];
  const rest = colon === -1 ? tokens : tokens.slice(colon);
  const host = scheme === null ? null : hostRange(rest, special);
  const textOf = ({ start, end }: Range): string =>
    text.slice(rest[start]?.index, rest[end]?.index);
  const unused = unusedText(`${text} ${base}`);
  const keepsHost = scheme === null || special;
  const masked = mask(text, rest, { groups, host, unused, special: keepsHost });
  // `file` is a special scheme without a default port. A default port would depend on the real protocol.
  const standIn = scheme === null ? '' : special ? 'file' : 'x';
  const library = construct(`${standIn}${masked}`, base);
  const read = (source: string, prefix: string, hidden = ''): readonly Part[] =>
    parseParts(source, prefix).map((part) => ({
      ...unmask(part, groups),
      prefix: part.prefix.replaceAll(unused, hidden),
      suffix: part.suffix.replaceAll(unused, hidden),
    }));
  const hostname =
    host === null ? read(library.hostname, '') : parseParts(textOf(host), '').map(canonicalHost);
  const isDefaultPort = scheme !== null && DEFAULT_PORTS.get(scheme) === library.port;
  const port = isDefaultPort ? [] : read(library.port, '').map(withoutLeadingZeros);
  const slash = special ? '/' : '';
  const isOpaque = scheme !== null && !special;
  const path =
    isOpaque && holdsNoPath(rest, host)
      ? NO_PATH
      : read(library.pathname, slash, '/').map(resolved);
  return {
    protocol,
    username: compiled(read(library.username, '')),
    password: compiled(read(library.password, '')),
    hostname: compiled(hostname, '.'),
    port: compiled(port),
    pathname: compiled(path, slash),
    search: compiled(read(library.search, '', '?')),
    hash: compiled(read(library.hash, '', '#')),
  };
}

/** Text that the library sees, or may see, as a group. */
function isGroup({ type }: Token): boolean {
  return type === 'open' || type === 'name' || type === 'regexp' || type === 'asterisk';
}

/** Index of the colon that ends the protocol: the first that is not part of a group; -1 if there is none. */
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
 * The text of `tokens`, with a number in place of each custom group and another name in place of each name.
 * Otherwise unused text stands for what the library would lose: a `?` in the query or a `#` in the fragment
 * at the beginning of a part, and a second slash in the path of a scheme that is not special, which the
 * library takes for the beginning of a host. This module reads the host itself, so the library gets a
 * placeholder for it.
 */
function mask(
  text: string,
  tokens: readonly Token[],
  { groups, host, special, unused }: Masking,
): string {
  const names = new Map<string, number>();
  const component = new ComponentTracker();
  const doubled = special ? null : doubledSlashes(tokens);
  let masked = '';
  tokens.forEach((token, index) => {
    if (host !== null && index >= host.start && index < host.end) {
      // A digit, because a letter after a colon would begin a name.
      if (index === host.start) masked += '1';
      return;
    }
    const isLost = component.reads(token, tokens[index - 1]);
    if (isLost || (component.isBefore && doubled?.has(index) === true)) masked += unused;
    else if (token.type === 'regexp') masked += `(g${groups.push(token.value) - 1})`;
    else if (token.type === 'name') masked += `:n${numberOf(token.value, names)}`;
    else masked += text.slice(token.index, tokens[index + 1]?.index);
  });
  return masked;
}

/** Text that no path contains: the URL parser leaves no NUL in a path. */
const NO_PATH: readonly Part[] = [{ group: null, prefix: '\0', suffix: '', modifier: '' }];

/** What the URL parser never leaves in a path: the path percent-encode set, and dot segments. */
const NOT_IN_PATHS = /[ "<>`{}^]|(?:^|\/)(?:\.|%2e){1,2}(?:\/|$)/i;

/**
 * Whether the path of a pattern contains text that the path of no URL contains. If the scheme is not special,
 * the standard takes this text literally (URL Pattern §1.6, "canonicalize an opaque pathname"), so the
 * pattern matches nothing. The library would resolve and encode the text, and so match more.
 */
function holdsNoPath(tokens: readonly Token[], host: Range | null): boolean {
  const component = new ComponentTracker();
  let text = '';
  for (const [index, token] of tokens.entries()) {
    component.reads(token, tokens[index - 1]);
    if (!component.isBefore) break;
    if (index < (host?.end ?? 1)) continue;
    if (token.type === 'char' || token.type === 'escaped-char') text += token.value;
    // A group may stand for part of a segment, but it never completes a dot segment.
    else if (isGroup(token) && token.type !== 'open') text += '-';
  }
  return NOT_IN_PATHS.test(text);
}

/** Slashes that follow another slash of the path. Meaningless braces may hide them. */
function doubledSlashes(tokens: readonly Token[]): ReadonlySet<number> {
  const isSlash = (at: number): boolean => isPlain(tokens[at], '/');
  const meaningless = meaninglessBraces(tokens);
  // The first token is the colon of the protocol. Two slashes after it begin the authority.
  const path = isSlash(1) && isSlash(2) ? 3 : 1;
  const doubled = new Set<number>();
  let follows = false;
  for (let at = path; at < tokens.length; at += 1) {
    if (meaningless.has(at)) continue;
    if (follows && isSlash(at)) doubled.add(at);
    follows = isSlash(at);
  }
  return doubled;
}

/** Braces that contain no group and have no modifier, so they could be left out. */
function meaninglessBraces(tokens: readonly Token[]): ReadonlySet<number> {
  const found = new Set<number>();
  let open: number | null = null;
  tokens.forEach(({ type }, at) => {
    if (type === 'open') open = at;
    else if (type === 'close') {
      const next = tokens[at + 1]?.type;
      if (open !== null && next !== 'other-modifier' && next !== 'asterisk') {
        found.add(open).add(at);
      }
      open = null;
    } else if (type !== 'char' && type !== 'escaped-char') open = null;
  });
  return found;
}

interface Masking {
  /** Receives the bodies of the replaced groups. */
  readonly groups: string[];
  readonly host: Range | null;
  readonly special: boolean;
  /** Stands for text that the library would lose. */
  readonly unused: string;
}

/** Characters that cannot continue a name, that no parser changes, and that have no meaning in a pattern. */
const QUIET = ['~', '!', ',', ';'];

/**
 * A text that the pattern does not contain, not even after removing its escapes, its braces and what no URL
 * keeps.
 */
function unusedText(text: string): string {
  const plain = text.replaceAll(/[\\{}\s]/g, '');
  const quiet = QUIET.find((character) => !plain.includes(character));
  if (quiet !== undefined) return quiet;
  let number = 0;
  while (plain.includes(`~${number}~`)) number += 1;
  return `~${number}~`;
}

/** Tracks where the query and the fragment of a constructor string begin. */
class ComponentTracker {
  #component: 'before' | 'search' | 'hash' = 'before';
  #begins = false;
  #inBraces = false;

  /** Whether neither has begun. */
  get isBefore(): boolean {
    return this.#component === 'before';
  }

  /** Handles the next token. Returns true if it is the separator of the component but stands for itself. */
  reads(token: Token, previous: Token | undefined): boolean {
    if (this.#inBraces) this.#inBraces = token.type !== 'close';
    else this.#inBraces = token.type === 'open';
    // The standard also drops a second separator that directly follows the first.
    const first = this.#begins && token.type === 'char';
    this.#begins = false;
    const separator = this.#component === 'hash' ? '#' : '?';
    if (this.#inBraces) return this.#component !== 'before' && isPlain(token, separator);
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

/** After a group, `?` makes the group optional. Elsewhere it begins the query. */
function isSearchPrefix(token: Token, previous: Token | undefined): boolean {
  if (isPlain(token, '?')) return true;
  if (token.value !== '?') return false;
  return previous === undefined || !['name', 'regexp', 'close', 'asterisk'].includes(previous.type);
}

/**
 * Rejects what the library would misread: a lone backslash, an invalid group, and a `..` after a group that
 * leads out of the component, which the standard leaves undefined.
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
    if (run !== null && climbs(run)) throw refusal('".." leads out of the component');
    run = token.type === 'open' || token.type === 'invalid-char' ? null : '';
  }
}

function climbs(run: string): boolean {
  const [path = ''] = run.split(/[?#]/, 1);
  if (!/\.|%2e/i.test(path)) return false;
  const left = withoutDotSegments({ pathname: `/-${path}`, protocol: 'https:' });
  // If a run consists only of `..` segments, the library keeps no slash, as the standard requires.
  return path.startsWith('/') ? left === '/' && !path.endsWith('/') : !left.startsWith('/-');
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

interface Range {
  readonly start: number;
  /** Index after the last token. */
  readonly end: number;
}

/**
 * The position of the host in the tokens of a constructor string, from its colon on (URL Pattern §1.3):
 * between the first `@`, if any, and the port, the path, the query or the fragment. null if there is no host,
 * or if it is an IPv6 address, which the library reads correctly.
 */
function hostRange(tokens: readonly Token[], special: boolean): Range | null {
  const at = (index: number, text: string): boolean => {
    const token = tokens[index];
    return token !== undefined && isPlain(token, text);
  };
  const slashes = at(1, '/') && at(2, '/');
  if (!slashes && !special) return null;
  let start = slashes ? 3 : 1;
  let port: number | null = null;
  let braces = 0;
  let brackets = 0;
  let named = false;
  let end = start;
  for (; end < tokens.length; end += 1) {
    const token = tokens[end];
    if (token === undefined) break;
    if (token.type === 'open') braces += 1;
    else if (token.type === 'close') braces -= 1;
    if (braces > 0) continue;
    if (at(end, '[')) brackets += 1;
    else if (at(end, ']')) brackets -= 1;
    else if (at(end, '@') && !named) [start, port, named] = [end + 1, null, true];
    else if (at(end, ':') && brackets === 0) port ??= end;
    else if (at(end, '/') || at(end, '#') || isSearchPrefix(token, tokens[end - 1])) break;
  }
  const last = port ?? end;
  return last <= start || at(start, '[') || (tokens[start]?.type === 'open' && at(start + 1, '['))
    ? null
    : { start, end: last };
}

/**
 * Fixed text of a host, as the URL parser writes it. The library would silently replace a host that the
 * parser rejects, and reject others that the parser accepts.
 */
function canonicalHost(part: Part): Part {
  return {
    ...part,
    prefix: canonicalHostText(part.prefix),
    suffix: canonicalHostText(part.suffix),
  };
}

function canonicalHostText(text: string): string {
  if (text === '') return text;
  const [one = '', two] = PROBES.map((probe) => {
    const url = requireUrl(probe);
    url.hostname = text;
    return url.hostname;
  });
  if (one !== two) throw refusal('the URL parser refuses its host');
  return one;
}

/** Fixed text of a path with its dot segments resolved, which the parser of an old Node does not do. */
function resolved(part: Part): Part {
  return { ...part, prefix: withoutDots(part.prefix), suffix: withoutDots(part.suffix) };
}

function withoutDots(text: string): string {
  if (!/(?:^|\/)(?:\.|%2e){1,2}(?:\/|$)/i.test(text)) return text;
  // Like the standard: text that begins in the middle of a segment is parsed after a placeholder.
  const whole = text.startsWith('/') ? text : `/-${text}`;
  const path = withoutDotSegments({ pathname: whole, protocol: 'https:' });
  return text.startsWith('/') ? path : path.slice(2);
}

function withoutLeadingZeros(part: Part): Part {
  const strip = (digits: string): string => digits.replace(/^0+(?=\d)/, '');
  return { ...part, prefix: strip(part.prefix), suffix: strip(part.suffix) };
}
