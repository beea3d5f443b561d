import {
  type Place,
  type Problem,
  type UnplacedProblem,
  ConfigError,
  ProblemCounts,
  error,
  hasError,
  warning,
} from '../config/problem.ts';
import { hideArguments, hideMembers, hideSecrets, mayMeanSecret } from './secrecy.ts';
import type { Source } from './source.ts';

/** A range of an original text, and the imports that led to it. */
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

/** Codes of mistakes in lines that may contain a password anywhere. */
const SECRET_LINES: ReadonlySet<string> = new Set(['bad-account', 'bad-password-hash']);
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

/** Code points, which editors count as columns. */
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

/** The finding with its place and its line, with secrets hidden and a caret below the range. */
export function locate(finding: UnplacedProblem, span: Span): Problem {
  const written = span.source.raw.slice(span.start, span.end);
  const isSecretLine =
    SECRET_LINES.has(finding.code) || (finding.code === 'unknown-option' && mayMeanSecret(written));
  const hide = isSecretLine ? hideArguments : hideSecrets;
  return { ...finding, place: placeOf(span), excerpt: excerptOf(span, hide) };
}

/** The part of a span that may be shown: its text as it is written, unless it could be a secret. */
export function visibleText(span: Span): string {
  const { text, start, end } = visibleLine(span);
  return text.slice(start, end);
}

/** The line on which a span begins, with secrets hidden, and the position of the span on it. */
function visibleLine(span: Span, inHubfile = hideSecrets): ReturnType<typeof hideSecrets> {
  const { raw, language } = span.source;
  const hide = language === 'data' ? hideMembers : inHubfile;
  const lineStart = raw.lastIndexOf('\n', span.start - 1) + 1;
  const newline = raw.indexOf('\n', span.start);
  const line = raw.slice(lineStart, newline === -1 ? raw.length : newline);
  return hide(line, { start: span.start - lineStart, end: span.end - lineStart });
}

function excerptOf(span: Span, inHubfile: typeof hideSecrets): string {
  const shown = visibleLine(span, inHubfile);
  const indent = shown.text.length - shown.text.trimStart().length;
  const cut = Math.max(Math.min(indent, shown.start), shown.start - MAX_EXCERPT / 2);
  const text = shown.text.slice(cut, cut + MAX_EXCERPT);
  const before = countCharacters(text.slice(0, shown.start - cut));
  const marked = countCharacters(text.slice(shown.start - cut, Math.max(0, shown.end - cut)));
  const caret = ' '.repeat(before) + '^'.repeat(Math.max(1, marked));
  // Control characters in a configuration must not be sent to a terminal.
  return `    ${text.replaceAll(/\t/g, ' ').replaceAll(/\p{Cc}/gu, '·')}\n    ${caret}`;
}

interface Origin {
  readonly span: Span;
  readonly fields: ReadonlyMap<string, Span>;
}

/** Records where each object of a configuration, and each field of it, was written. */
export class Origins {
  readonly #origins = new WeakMap<object, Origin>();

  mark(about: object, span: Span, fields: ReadonlyMap<string, Span> = new Map()): void {
    this.#origins.set(about, { span, fields });
  }

  /** Records the place of an object and returns it. */
  of<Part extends object>(span: Span, about: Part): Part {
    this.mark(about, span);
    return about;
  }

  /** `copy` gets the place of `about`. */
  follow(copy: object, about: object): void {
    const origin = this.#origins.get(about);
    if (origin !== undefined) this.#origins.set(copy, origin);
  }

  /** `copy` gets the place of `before`, except for one field. */
  change(copy: object, before: object, field: string, at: Span): void {
    const known = this.#origins.get(before);
    const fields = new Map([...(known?.fields ?? []), [field, at] as const]);
    this.#origins.set(copy, { span: known?.span ?? at, fields });
  }

  /**
   * Objects without a place get the place of the object that contains them. Objects that several others
   * contain are defaults or have a place of their own, and are left alone.
   */
  inherit(root: object): void {
    const found = new Map<object, Span | null>();
    this.#descend(root, found);
    for (const [part, span] of found) {
      if (span !== null && !this.#origins.has(part)) this.mark(part, span);
    }
  }

  #descend(part: object, found: Map<object, Span | null>): void {
    for (const [name, value] of Object.entries(part)) {
      if (typeof value !== 'object' || value === null) continue;
      const before = found.get(value);
      const isMarked = this.#origins.has(value);
      if (before === null || (before !== undefined && isMarked)) continue;
      const span = this.find(value) ?? this.find(part, name) ?? found.get(part) ?? null;
      found.set(value, before === undefined ? span : null);
      this.#descend(value, found);
    }
  }

  find(about: object, field?: string): Span | undefined {
    const origin = this.#origins.get(about);
    const own = field === undefined ? undefined : origin?.fields.get(field);
    return own ?? origin?.span;
  }
}

/** Thrown to leave a directive that cannot be understood. It is reported, and reading continues. */
export class LineProblem extends Error {
  readonly finding: UnplacedProblem;
  readonly span: Span;

  constructor(span: Span, code: string, message: string, hint?: string) {
    super(message);
    this.finding = error(code, message, hint);
    this.span = span;
  }
}

/** Collects the errors and warnings while a configuration is read. */
export class Problems {
  readonly #all: Problem[] = [];
  readonly #counts = new ProblemCounts();

  error(span: Span, code: string, message: string, hint?: string): void {
    this.add(error(code, message, hint), span);
  }

  warn(span: Span, code: string, message: string, hint?: string): void {
    this.add(warning(code, message, hint), span);
  }

  /** Adds a finding with its place, if it has one. */
  add(found: UnplacedProblem, span: Span | null): void {
    if (!this.#counts.keeps(found)) return;
    this.#all.push(span === null ? found : locate(found, span));
  }

  /** The result of `read`, or undefined if it ended with a fault, which is then reported. */
  attempt<Result>(read: () => Result): Result | undefined {
    try {
      return read();
    } catch (thrown) {
      if (!(thrown instanceof LineProblem)) throw thrown;
      this.add(thrown.finding, thrown.span);
      return undefined;
    }
  }

  get all(): readonly Problem[] {
    return [...this.#all];
  }

  /** The number of errors, including those beyond the limit. */
  get errors(): number {
    return this.#counts.error;
  }

  get warnings(): readonly Problem[] {
    return this.#all.filter(({ severity }) => severity === 'warning');
  }

  /** @throws {ConfigError} `invalid-config`, with all problems, if one of them is an error. */
  throwIfAny(): void {
    if (hasError(this.#all)) throw new ConfigError(this.#all);
  }
}
