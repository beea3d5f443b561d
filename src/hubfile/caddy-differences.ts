import { DIFFERS_FROM_CADDY, type Problem, warning } from '../config/problem.ts';
import { caddyNotes, caddyPlaceholderNotes } from './caddy-notes.ts';
import { locate } from './place.ts';
import { MAX_SOURCE_BYTES, type Source } from './source.ts';
import { nameOf, type WrittenLine } from './written-lines.ts';

/** A directive, matcher or option of a Caddyfile, with the title of the table that it belongs to. */
export interface CaddyWord {
  readonly title: string;
  readonly name: string;
  readonly line: WrittenLine;
}

/** Directives whose blocks hold directives. */
const HOLDERS: ReadonlySet<string> = new Set([
  'handle',
  'handle_path',
  'handle_errors',
  'handle_response',
  'import',
  'intercept',
  'route',
]);

/** An option with the word that says of which kind it is. */
const KINDS = /^(?:transport|dynamic|issuer|output)$/;

/** What stands around a line. */
type Around =
  | { readonly kind: 'directives'; readonly heads: readonly string[] }
  | { readonly kind: 'matchers'; readonly heads: readonly string[] }
  | { readonly kind: 'options'; readonly heads: readonly string[]; readonly isGlobal: boolean };

/** The words of a text, in their order. */
export function caddyWords(lines: readonly WrittenLine[]): readonly CaddyWord[] {
  return lines.flatMap((line) => {
    const isGlobal = line.words.length === 0;
    const around: Around = isGlobal
      ? { kind: 'options', heads: [], isGlobal }
      : { kind: 'directives', heads: [] };
    return line.inner.flatMap((inner) => wordsIn(inner, around));
  });
}

function wordsIn(line: WrittenLine, around: Around): readonly CaddyWord[] {
  const name = nameOf(line);
  const { heads } = around;
  if (name.startsWith('@') && around.kind !== 'options') return matchersIn(line, 1, heads);
  if (around.kind === 'matchers') return matchersIn(line, 0, heads);
  if (around.kind === 'directives') {
    const inner: Around = HOLDERS.has(name)
      ? { kind: 'directives', heads }
      : { kind: 'options', heads: [...heads, headOf(line)], isGlobal: false };
    return [{ title: 'Directives', name, line }, ...deeper(line, inner)];
  }
  const path = heads.join(', ');
  const title = around.isGlobal ? `Global option${path === '' ? 's' : ` ${path}`}` : path;
  const inner: Around = HOLDERS.has(name)
    ? { kind: 'directives', heads }
    : { ...around, heads: [...heads, headOf(line)] };
  return [{ title, name, line }, ...deeper(line, inner)];
}

function deeper(line: WrittenLine, around: Around): readonly CaddyWord[] {
  return line.inner.flatMap((inner) => wordsIn(inner, around));
}

function headOf(line: WrittenLine): string {
  const name = nameOf(line);
  const kind = line.words[1]?.text;
  return KINDS.test(name) && kind !== undefined ? `${name} ${kind}` : name;
}

/** The matchers of a line; `not path` names two. */
function matchersIn(line: WrittenLine, from: number, heads: readonly string[]): CaddyWord[] {
  const title = 'Matchers';
  const word = line.words[from];
  const inner = deeper(line, { kind: 'matchers', heads });
  if (word === undefined) return [...inner];
  if (word.kind !== 'plain') return [{ title, name: 'expression', line }];
  const also = word.text === 'not' ? matchersIn({ ...line, inner: [] }, from + 1, heads) : [];
  return [{ title, name: word.text, line }, ...also, ...inner];
}

const PLACEHOLDER = /(?<!\\)\{([\w.-]+)\}/g;

/**
 * The documented differences from Caddy that a text touches, each at its first place. Nothing is wrong with
 * the text.
 */
export function differencesIn(lines: readonly WrittenLine[], source: Source): readonly Problem[] {
  const found = new Map<string, Problem>();
  const add = (about: string, text: string, line: WrittenLine): void => {
    const message = `${about} differs from Caddy: ${text.replace(/^the same; /, '')}`;
    if (found.has(message)) return;
    const end = line.words[0]?.end ?? line.end;
    const span = { source, start: line.start, end, via: null };
    found.set(message, locate(warning(DIFFERS_FROM_CADDY, message), span));
  };
  for (const { title, name, line } of caddyWords(lines)) {
    const table = Object.hasOwn(caddyNotes, title) ? caddyNotes[title] : undefined;
    const note = table !== undefined && Object.hasOwn(table, name) ? table[name] : undefined;
    const text = source.raw.slice(line.start, line.end).replaceAll(/\s+/g, ' ');
    if (note?.repeated?.test(text) === true) add(name, note.text, line);
  }
  for (const line of everyLine(lines)) {
    for (const later of blocksForSameErrors(line)) {
      add(
        'handle_errors',
        'blocks for the same status run as they are written, in Caddy the last one first',
        later,
      );
    }
    const text = source.raw.slice(line.start, line.end);
    const names = line.words.flatMap((word) => [...word.text.matchAll(PLACEHOLDER)]);
    for (const [shown, name = ''] of names) {
      const note = caddyPlaceholderNotes.find(({ repeated }) => repeated?.test(name) === true);
      if (note !== undefined && note.except?.test(text) !== true)
        add(`the value of ${shown}`, note.text, line);
    }
  }
  const at = ({ place }: Problem): number =>
    (place?.line ?? 0) * MAX_SOURCE_BYTES + (place?.column ?? 0);
  return [...found.values()].sort((one, other) => at(one) - at(other));
}

/** The `handle_errors` of a site that name a status which one before them names too. */
function blocksForSameErrors({ inner }: WrittenLine): readonly WrittenLine[] {
  const named: string[] = [];
  return inner.filter((line) => {
    if (nameOf(line) !== 'handle_errors') return false;
    const statuses = line.words.slice(1).map(({ text }) => text);
    const isNamed = statuses.some((status) => named.some((other) => overlap(status, other)));
    named.push(...statuses);
    return isNamed;
  });
}

/** Whether two patterns such as `404` and `4xx` have a status in common. */
function overlap(one: string, other: string): boolean {
  return (
    one.charAt(0) === other.charAt(0) &&
    (one.endsWith('xx') || other.endsWith('xx') || one === other)
  );
}

function everyLine(lines: readonly WrittenLine[]): readonly WrittenLine[] {
  return lines.flatMap((line) => [line, ...everyLine(line.inner)]);
}
