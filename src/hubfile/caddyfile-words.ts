import { unsupportedDirectives } from './unsupported.ts';
import type { DirectiveTable } from './directive-table.ts';
import type { TextEdit } from './text-edit.ts';
import { nameOf, type WrittenLine } from './written-lines.ts';

/** A change of words, and its effect on the meaning. */
export interface Translation extends TextEdit {
  readonly loses?: { readonly message: string; readonly hint: string };
}

/** The words for which a Hubfile has others. */
export function translations(
  lines: readonly WrittenLine[],
  table: DirectiveTable,
): readonly Translation[] {
  return lines.flatMap((line) => translated(line, table));
}

function translated(line: WrittenLine, table: DirectiveTable): Translation[] {
  const name = nameOf(line);
  if (line.outer !== null && name === 'mercure') return asHub(line);
  const inner = line.inner.flatMap((inner) => translated(inner, table));
  return [...(line.outer === null ? [] : ofLine(line, name, table)), ...inner];
}

function ofLine(line: WrittenLine, name: string, table: DirectiveTable): Translation[] {
  const outer = line.outer === null ? '' : nameOf(line.outer);
  if (name === 'order') return replaced(line, 1, { mercure: 'hub', basicauth: 'basic_auth' });
  if (name === 'protocols' && outer === 'servers') return withoutHttp3(line);
  if (name === 'format' && line.words[1]?.text === 'filter') return wrappedFormat(line);
  const current = table.currentName(name);
  if (current === name || Object.hasOwn(unsupportedDirectives, current)) return [];
  return replaced(line, 0, { [name]: current });
}

function replaced(
  { words }: WrittenLine,
  index: number,
  names: Readonly<Record<string, string>>,
): TextEdit[] {
  const word = words[index];
  if (word === undefined || !Object.hasOwn(names, word.text)) return [];
  return [{ start: word.start, end: word.end, text: names[word.text] ?? '' }];
}

const HTTP_3 = { message: 'hubgate does not support HTTP/3', hint: 'clients use HTTP/2 instead' };

function withoutHttp3({ words }: WrittenLine): Translation[] {
  if (words.length < 3) return [];
  return words
    .filter(({ text }) => text === 'h3')
    .map(({ start, end }) => ({ start, end, text: '', loses: HTTP_3 }));
}

/**
 * The fields of a filter have Caddy's names, and so do the lines that it wraps. A filter of values that are
 * never logged here is not needed.
 */
function wrappedFormat(line: WrittenLine): Translation[] {
  const wrap = line.inner.find((option) => nameOf(option) === 'wrap');
  const fields = line.inner.filter((option) => option !== wrap);
  if (fields.every(isOfCredentials)) {
    const { start, end } = line;
    return [{ start, end, text: `format ${wrap?.words[1]?.text ?? 'json'}` }];
  }
  return wrap === undefined ? [] : replaced(wrap, 1, { json: 'caddy', console: 'caddy' });
}

/** Whether it filters values that are never logged here. */
function isOfCredentials({ words, inner }: WrittenLine): boolean {
  if (words.some(({ text }) => /authorization|cookie/i.test(text))) return true;
  return inner.length > 0 && inner.every(isOfCredentials);
}

const HUB_OPTIONS: Readonly<Record<string, string>> = {
  cors_allowed_origins: 'cors_origins',
  publish_allowed_origins: 'publish_origins',
  topic_selector_cache: 'topic_matcher_cache',
  ui: 'debugger',
};
/** Keys without an issuer belong to the protocol before 1.0. */
const KEYS = /^(?:publisher|subscriber)_(?:jwt|jwks_url)$/;
const COMPATIBLE = 'protocol_version_compatibility 8 {\nstrings\ntopics\ntemplates\n}\n';

/** Converts `mercure { … }` to `hub { profile mercure; … }`. */
function asHub(line: WrittenLine): TextEdit[] {
  const names = line.inner.map(nameOf);
  const needsCompatibility =
    names.some((name) => KEYS.test(name)) &&
    !names.includes('issuer') &&
    !names.includes('protocol_version_compatibility');
  const own = `profile mercure\n${needsCompatibility ? COMPATIBLE : ''}`;
  const at = line.blockStart ?? line.end;
  const text = line.blockStart === null ? ` {\n${own}}` : `\n${own}`;
  return [
    ...replaced(line, 0, { mercure: 'hub' }),
    { start: at, end: at, text },
    ...line.inner.flatMap(hubOption),
  ];
}

function hubOption(option: WrittenLine): TextEdit[] {
  const name = nameOf(option);
  if (name === 'transport') return transport(option);
  // A size below 0 disabled the cache; here the cache has a size of its own.
  const isNoCache = name === 'topic_selector_cache' && option.words[1]?.text.startsWith('-');
  return isNoCache === true ? [removed(option)] : replaced(option, 0, HUB_OPTIONS);
}

function transport(option: WrittenLine): TextEdit[] {
  if (option.words[1]?.text === 'local') return replaced(option, 1, { local: 'memory' });
  if (option.words[1]?.text !== 'bolt') return [];
  const gone = option.inner.filter((line) => nameOf(line) !== 'size');
  return [...replaced(option, 1, { bolt: 'lmdb' }), ...gone.map(removed)];
}

function removed({ start, end }: WrittenLine): TextEdit {
  return { start, end, text: '' };
}
