import type { UnplacedProblem, Place, Problem } from '../config/problem.ts';
import { hideMembers, hideSecrets } from './secrecy.ts';
import type { Source } from './source.ts';

/** A stretch of an original text, and the imports by which it was reached. */
export interface Span {
  readonly source: Source;
  /** Offsets into `source.raw`. */
  readonly start: number;
  readonly end: number;
  readonly via: ImportStep | null;
}

/** One `import` on the way from the Hubfile to a span, innermost first. */
export interface ImportStep {
  readonly at: Span;
  readonly outer: ImportStep | null;
}

const MAX_EXCERPT = 160;
const MAX_CHAIN = 20;

export function placeOf(span: Span): Place {
  const place = spotOf(span);
  const importedFrom = chainOf(span.via);
  return importedFrom.length === 0 ? place : { ...place, importedFrom };
}

function spotOf(span: Span): Omit<Place, 'importedFrom'> {
  const { raw, file } = span.source;
  const lineStart = raw.lastIndexOf('\n', span.start - 1) + 1;
  const column = countCharacters(raw.slice(lineStart, span.start)) + 1;
  return { file, line: lineOf(span), column };
}

/** Code points: what an editor counts as columns. */
function countCharacters(text: string): number {
  return Array.from(text).length;
}

function lineOf(span: Span): number {
  let line = 1;
  const { raw } = span.source;
  for (let at = raw.indexOf('\n'); at !== -1 && at < span.start; at = raw.indexOf('\n', at + 1)) {
    line++;
  }
  return line;
}

function chainOf(innermost: ImportStep | null): Omit<Place, 'importedFrom'>[] {
  const chain: Omit<Place, 'importedFrom'>[] = [];
  for (let step = innermost; step !== null && chain.length < MAX_CHAIN; step = step.outer) {
    chain.push(spotOf(step.at));
  }
  return chain;
}

/** The finding with its place and the line it is on, secrets hidden, a caret under the spot. */
export function locate(finding: UnplacedProblem, span: Span): Problem {
  return { ...finding, place: placeOf(span), excerpt: excerptOf(span) };
}

/** What may be shown of a span: its text as it is written, unless it could be a secret. */
export function visibleText(span: Span): string {
  const { text, start, end } = visibleLine(span);
  return text.slice(start, end);
}

/** The line on which a span begins, secrets hidden, and where the span lies on it. */
function visibleLine(span: Span): ReturnType<typeof hideSecrets> {
  const { raw, language } = span.source;
  const hide = language === 'data' ? hideMembers : hideSecrets;
  const lineStart = raw.lastIndexOf('\n', span.start - 1) + 1;
  const newline = raw.indexOf('\n', span.start);
  const line = raw.slice(lineStart, newline === -1 ? raw.length : newline);
  return hide(line, { start: span.start - lineStart, end: span.end - lineStart });
}

function excerptOf(span: Span): string {
  const shown = visibleLine(span);
  const indent = shown.text.length - shown.text.trimStart().length;
  const cut = Math.max(Math.min(indent, shown.start), shown.start - MAX_EXCERPT / 2);
  const text = shown.text.slice(cut, cut + MAX_EXCERPT);
  const before = countCharacters(text.slice(0, shown.start - cut));
  const marked = countCharacters(text.slice(shown.start - cut, Math.max(0, shown.end - cut)));
  const caret = ' '.repeat(before) + '^'.repeat(Math.max(1, marked));
  // Control characters of a configuration must not reach a terminal as such.
  return `    ${text.replaceAll(/\t/g, ' ').replaceAll(/\p{Cc}/gu, '·')}\n    ${caret}`;
}
