import { unsupportedDirectives } from './unsupported.ts';
import type { DirectiveTable } from './directive-table.ts';
import { MappedText } from './source.ts';
import { nameOf, type WrittenLine, optionsOf } from './written-lines.ts';
import type { Problem } from '../config/problem.ts';

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

function withoutHttp3({ words, start: at }: WrittenLine): Translation[] {
  if (words.length < 3) return [];
  const comment = `# ${leftOutText(HTTP_3)}\n`;
  return words
    .filter(({ text }) => text === 'h3')
    .flatMap(({ start, end }) => [
      { start: at, end: at, text: comment },
      { start, end, text: '', loses: HTTP_3 },
    ]);
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

/** A range of a text that is replaced; an empty range inserts text. */
export interface TextEdit {
  readonly start: number;
  readonly end: number;
  readonly text: string;
}

/** Of nested edits, the outer one applies. Text that is inserted before an edit stays before it. */
export function editText(text: string, edits: readonly TextEdit[]): MappedText {
  const isNew = ({ start, end }: TextEdit): number => (start === end ? 0 : 1);
  const ordered = [...edits].sort(
    (a, b) => a.start - b.start || isNew(a) - isNew(b) || b.end - a.end,
  );
  const edited = new MappedText();
  let from = 0;
  for (const { start, end, text: replacement } of ordered) {
    if (start < from) continue;
    edited.add(text.slice(from, start), { at: from, kept: true });
    edited.add(replacement, { at: start, kept: false });
    from = end;
  }
  edited.add(text.slice(from), { at: from, kept: true });
  return edited;
}

/**
 * Directives and options that restrict access. Without one of them, the Hubfile would allow more than the
 * Caddyfile.
 */
const GUARDS: ReadonlySet<string> = new Set([
  'abort',
  'basic_auth',
  'basicauth',
  'bind',
  'client_auth',
  'error',
  'forward_auth',
  'import',
  'request_header',
]);
const CLOSED_FIRST = `
# a site that has lost what keeps somebody out answers 503 before anything else
order error first
`;

/**
 * Lines that are left out become comments, each with its reasons. `error 503` takes the place of anything
 * that restricted access.
 */
export function commentsOf(
  lines: readonly WrittenLine[],
  leftOut: ReadonlyMap<WrittenLine, readonly Problem[]>,
  text: string,
  table: DirectiveTable,
): readonly TextEdit[] {
  const all = [...leftOut.keys()];
  const options = optionsOf(lines);
  const comments = all.map((line) => {
    const within = [...leftOut].filter(
      ([inner]) => line.start <= inner.start && inner.end <= line.end,
    );
    const reasons = within.flatMap(([, problems]) => problems);
    return commented(line, reasons, text);
  });
  const closed = closings(all, table);
  const own = [
    ...(closed.length > 0 ? [CLOSED_FIRST] : []),
    // The default of `admin` is an address, so an option that restricted the API must keep doing so.
    ...(all.some((line) => nameOf(line) === 'admin' && line.outer === options)
      ? ['\nadmin off\n']
      : []),
  ].join('');
  if (own === '') return comments;
  const at = options?.blockStart ?? 0;
  const block = options === undefined ? `{${own}}\n` : own;
  return [...comments, ...closed, { start: at, end: at, text: block }];
}

/** Comments above the lines that stay although a part of them has lost its meaning. */
export function marksOf(lost: ReadonlyMap<WrittenLine, readonly Problem[]>): readonly TextEdit[] {
  return [...lost].map(([{ start }, problems]) => {
    const said = new Set(problems.map(leftOutText));
    return { start, end: start, text: [...said].map((each) => `# ${each}\n`).join('') };
  });
}

function leftOutText({ message, hint }: Pick<Problem, 'message' | 'hint'>): string {
  return hint === undefined ? `left out: ${message}` : `left out: ${message}: ${hint}`;
}

function commented(line: WrittenLine, reasons: readonly Problem[], text: string): TextEdit {
  const { start, end } = line;
  const indentation = text.slice(text.lastIndexOf('\n', start - 1) + 1, start).length;
  const [first = '', ...others] = text.slice(start, end).split('\n');
  const written = [
    first,
    ...others.map((each) => each.replace(new RegExp(`^\\s{0,${indentation}}`), '')),
  ];
  const said = reasons.map(leftOutText);
  // The lines of a snippet that is used several times are reported several times.
  return { start, end, text: [...new Set(said), ...written].map((each) => `# ${each}`).join('\n') };
}

function closings(leftOut: readonly WrittenLine[], table: DirectiveTable): TextEdit[] {
  const lost = new Set(leftOut.map(nameOf).filter((name) => name.startsWith('@')));
  return leftOut.filter(guards).flatMap((line): TextEdit[] => {
    const directive = directiveOf(line, table);
    if (directive === undefined) return [];
    const matcher = line.words[1]?.text ?? '';
    const isKept = directive === line && /^[/@]/.test(matcher) && !lost.has(matcher);
    const text = `\nerror ${isKept ? `${matcher} ` : ''}503\n`;
    return [{ start: directive.end, end: directive.end, text }];
  });
}

/** Whether requests that the line refuses would be accepted without it. */
function guards(line: WrittenLine): boolean {
  const name = nameOf(line);
  const refuses = name === 'respond' && line.words.some(({ text }) => /^[45]\d\d$/.test(text));
  return GUARDS.has(name) || refuses || /auth/.test(name) || line.inner.some(guards);
}

/**
 * The directive that contains a line, or the line itself if it is one; undefined if no access has to be
 * restricted any more.
 */
function directiveOf(line: WrittenLine, table: DirectiveTable): WrittenLine | undefined {
  let found: WrittenLine | undefined;
  let inside = line;
  for (let { outer } = line; outer !== null; { outer } = outer) {
    const name = nameOf(outer);
    if (outer.words.length === 0 || name === 'handle_errors') return undefined;
    if (outer.outer === null || table.find(name)?.holdsDirectives === true) found ??= inside;
    inside = outer;
  }
  return found;
}
