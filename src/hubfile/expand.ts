import type { Machine } from '../config/check.ts';
import {
  placeText,
  UNSET_VARIABLE,
  whyUnreadable,
  nearestName,
  unreadableConfig,
} from '../config/problem.ts';
import { resolve } from 'node:path';
import { HubgateError } from '../kernel/error.ts';
import {
  Arguments,
  importTarget,
  MAX_IMPORT_DEPTH,
  MAX_IMPORTS,
  shownPath,
} from './import-target.ts';
import { type Content, type Line, parse, type Parsed, type Word } from './parser.ts';
import { type ImportStep, placeOf, type Span, LineProblem, type Problems } from './place.ts';
import { decodeText, type Environment, makeSource } from './source.ts';

/** The access to files and variables that the reader of a Hubfile needs. */
export interface HubfileIo {
  /** Returns the content of a file; throws if it cannot be read. */
  read(path: string): Uint8Array;
  /**
   * Absolute paths that match an absolute pattern with `*`, `?` and `**`, sorted.
   *
   * @throws HubgateError if there are too many directories to search
   */
  glob(pattern: string): readonly string[];
  readonly env: Environment;
  /** Absent if this machine is not the one that serves. */
  readonly machine?: Machine;
}

/** A Hubfile with its imports inserted. */
export interface Expanded {
  readonly lines: readonly Line[];
  /** Absolute paths of the files that were read. */
  readonly files: readonly string[];
  /** Absolute patterns of imports; a new file that matches one changes the configuration. */
  readonly globs: readonly string[];
  readonly fromEnvironment: readonly string[];
  /** Whether all errors are within the lines of sites, or of the options. */
  readonly whole: boolean;
  /** Incomplete lines: with an error inside, or at which the text was cut off. */
  readonly unsound: ReadonlySet<Line>;
}

const MAX_LINES = 200_000;

interface FileName {
  readonly file: string;
  readonly path: string;
}

interface Snippet {
  readonly name: string;
  readonly line: Line;
}

/** The context of a line: the meaning of its `{args}` and `{block}`, and the imports that led to it. */
interface Scope {
  readonly args: Arguments | null;
  readonly block: readonly Line[] | null;
  readonly via: ImportStep | null;
  /** The imports in progress, outermost first. */
  readonly stack: readonly { readonly key: string; readonly name: string }[];
}

/** Reads a Hubfile and inserts the content of files and snippets at their imports. */
export function expand(file: string, io: HubfileIo, problems: Problems): Expanded {
  return new Expander(io, problems).expand(file);
}

class Expander {
  readonly #io: HubfileIo;
  readonly #problems: Problems;
  readonly #snippets = new Map<string, Snippet>();
  readonly #parsed = new Map<string, Parsed>();
  readonly #files = new Set<string>();
  readonly #globs = new Set<string>();
  readonly #fromEnvironment = new Set<string>();
  readonly #unsound = new Set<Line>();
  #whole = true;
  /** A fault ended some text, so anything that seems to be missing may come after it. */
  #isCut = false;
  /** Number of problems that were not reported for that reason. */
  #doubts = 0;
  #imports = 0;
  #lines = 0;

  constructor(io: HubfileIo, problems: Problems) {
    this.#io = io;
    this.#problems = problems;
  }

  expand(file: string): Expanded {
    const path = resolve(file);
    const bytes = this.#read(path);
    if (bytes instanceof Error) {
      this.#problems.add(unreadableConfig(file, bytes.cause), null);
      this.#whole = false;
      return this.#result([]);
    }
    const { lines: top } = this.#parse({ file, path }, bytes, null, 'sites');
    const stack = [{ key: path, name: file }];
    try {
      return this.#result(this.#topLevel(top, { args: null, block: null, via: null, stack }));
    } catch (thrown) {
      if (!(thrown instanceof TooLarge)) throw thrown;
      this.#problems.error(thrown.span, 'too-large', thrown.message);
      this.#whole = false;
      return this.#result([]);
    }
  }

  #result(lines: readonly Line[]): Expanded {
    const [files, globs] = [[...this.#files], [...this.#globs]];
    // The longest first, so that nothing remains of a value that contains another one.
    const fromEnvironment = [...this.#fromEnvironment].sort((a, b) => b.length - a.length);
    return { lines, files, globs, fromEnvironment, whole: this.#whole, unsound: this.#unsound };
  }

  #read(path: string): Uint8Array | Error {
    this.#files.add(path);
    try {
      return this.#io.read(path);
    } catch (thrown) {
      return new Error(whyUnreadable(thrown), { cause: thrown });
    }
  }

  #parse(where: FileName, bytes: Uint8Array, via: ImportStep | null, content: Content): Parsed {
    const { text, fault } = decodeText(bytes);
    const source = makeSource(where, text, fault === undefined ? this.#io.env : {});
    for (const word of source.fromEnvironment) this.#fromEnvironment.add(word);
    const parsed = fault === undefined ? parse(source, content) : { lines: [], faults: [fault] };
    for (const { code, at, message, hint } of parsed.faults) {
      this.#problems.error({ source, start: at, end: at + 1, via }, code, message, hint);
    }
    for (const { unset, at, end = at } of source.mapped.origins) {
      if (unset === undefined) continue;
      const message = `the environment variable ${unset} is not set`;
      const span = { source, start: at, end, via };
      const hint = `set it, or write a default: {$${unset}:value}`;
      this.#problems.warn(span, UNSET_VARIABLE, message, hint);
    }
    // Snippets are defined at the same level as sites.
    if (parsed.faults.length > 0 && content === 'sites') this.#isCut = true;
    return parsed;
  }

  /** All snippets of a file are collected before anything is imported, wherever they are. */
  #topLevel(lines: readonly Line[], scope: Scope): Line[] {
    const before = this.#problems.errors;
    for (const line of lines) {
      const name = snippetName(line);
      if (name !== null) this.#problems.attempt(() => this.#define(name, line, scope));
    }
    if (this.#problems.errors > before) this.#whole = false;
    const rest = lines.filter((line) => snippetName(line) === null);
    return rest.flatMap((line) => this.#topLine(line, scope));
  }

  #topLine(line: Line, scope: Scope): Line[] {
    const before = this.#problems.errors + this.#doubts;
    const lines = this.#line(line, scope, true);
    if (this.#problems.errors + this.#doubts === before && !line.unfinished) return lines;
    for (const each of lines) this.#unsound.add(each);
    // It is unknown which sites or options the import would have added.
    if (line.words[0]?.text === 'import') this.#whole = false;
    return lines;
  }

  #define(name: string, line: Line, scope: Scope): void {
    const span = withVia(line.span, scope.via);
    if (line.block === null) {
      const hint = 'write { at the end of this line';
      throw new LineProblem(span, 'expected-block', `the snippet (${name}) has no block`, hint);
    }
    const known = this.#snippets.get(name);
    // A file that is imported twice defines its snippets once.
    if (known?.line === line) return;
    if (known !== undefined) {
      const first = placeText(placeOf(known.line.span));
      const message = `the snippet (${name}) is defined already, at ${first}`;
      throw new LineProblem(span, 'duplicate-snippet', message);
    }
    this.#snippets.set(name, { name, line });
  }

  #line(line: Line, scope: Scope, top: boolean): Line[] {
    if (++this.#lines > MAX_LINES) throw new TooLarge(withVia(line.span, scope.via));
    const [first] = line.words;
    const inserted = this.#inserted(line, scope);
    if (inserted !== null) return [...inserted];
    const span = withVia(line.span, scope.via);
    const words = line.words.flatMap((word) => this.#word(word, scope));
    const block = line.block?.flatMap((inner) => this.#line(inner, scope, false)) ?? null;
    // Its only words were arguments that the import does not have.
    if (words.length === 0 && first !== undefined && block === null) return [];
    const { unfinished } = line;
    if (first?.plain === true && first.text === 'import') {
      if (unfinished) return this.#doubt();
      const imported: Line = { words, block, span, unfinished };
      return this.#problems.attempt(() => this.#import(imported, scope, top)) ?? [];
    }
    return [{ words, block, span, unfinished }];
  }

  #doubt(): [] {
    this.#doubts += 1;
    return [];
  }

  /** The replacement of `{block}` or `{blocks.name}` alone on its line inside an import. */
  #inserted({ words, block }: Line, scope: Scope): readonly Line[] | null {
    const [word] = words;
    if (word === undefined || !word.plain || words.length > 1 || block !== null) return null;
    if (scope.args === null) return null;
    if (word.text === '{block}') return scope.block ?? [];
    const name = /^\{blocks\.([^{}]+)\}$/.exec(word.text)?.[1];
    if (name === undefined) return null;
    const named = (scope.block ?? []).filter((line) => line.words[0]?.text === name);
    return named
      .flatMap((line) => line.block ?? [{ ...line, words: line.words.slice(1) }])
      .filter((line) => line.words.length > 0);
  }

  #word(word: Word, scope: Scope): Word[] {
    const span = withVia(word.span, scope.via);
    const placed = { ...word, span };
    if (scope.args === null || !word.text.includes('{')) return [placed];
    if (word.plain && (word.text === '{block}' || /^\{blocks\.[^{}]+\}$/.test(word.text))) {
      this.#problems.error(span, 'misplaced-block', `${word.text} must stand alone on its line`);
      return [placed];
    }
    return scope.args.putInto(placed, this.#problems);
  }

  #import(line: Line, scope: Scope, top: boolean): Line[] {
    const [keyword, target, ...args] = line.words;
    if (keyword === undefined) return [];
    if (target === undefined) {
      throw new LineProblem(
        keyword.span,
        'expected-argument',
        'import needs the name of a snippet or a file',
      );
    }
    if (++this.#imports > MAX_IMPORTS) throw new TooLarge(keyword.span);
    const via: ImportStep = { at: { ...line.span, via: null }, outer: scope.via };
    const snippet = this.#snippets.get(target.text);
    const inner = { args: new Arguments(args), block: line.block, via };
    if (snippet !== undefined) {
      if (snippet.line.unfinished) this.#doubt();
      const stack = enter(target, scope.stack, `(${snippet.name})`, `(${snippet.name})`);
      return (snippet.line.block ?? []).flatMap((part) =>
        this.#line(part, { ...inner, stack }, top),
      );
    }
    return this.#filesOf(target).flatMap((where) => {
      const stack = enter(target, scope.stack, where.path, where.file);
      const lines = this.#imported(where, target, via, top ? 'sites' : 'directives');
      if (top) return this.#topLevel(lines, { ...inner, stack });
      return lines.flatMap((part) => this.#line(part, { ...inner, stack }, false));
    });
  }

  #imported(where: FileName, target: Word, via: ImportStep, content: Content): readonly Line[] {
    const key = `${content} ${where.path}`;
    const known = this.#parsed.get(key);
    if (known !== undefined) {
      if (known.faults.length > 0) this.#doubt();
      return known.lines;
    }
    const bytes = this.#read(where.path);
    if (bytes instanceof Error) {
      // A snippet with this name may come after the fault.
      if (this.#isCut) return this.#doubt();
      const names = [...this.#snippets.keys()];
      const near = nearestName(target.text, names);
      const hint =
        near === undefined ? 'it is not a snippet either' : `did you mean the snippet (${near})?`;
      throw new LineProblem(
        target.span,
        'unreadable-file',
        `cannot import ${where.file}: ${bytes.message}`,
        hint,
      );
    }
    const parsed = this.#parse(where, bytes, via, content);
    if (parsed.lines.length === 0 && bytes.length === 0) {
      this.#problems.warn(target.span, 'empty-import', `the imported file ${where.file} is empty`);
    }
    this.#parsed.set(key, parsed);
    return parsed.lines;
  }

  #glob(pattern: string, target: Word): readonly string[] {
    try {
      return this.#io.glob(pattern);
    } catch (thrown) {
      if (!(thrown instanceof HubgateError)) throw thrown;
      throw new LineProblem(target.span, thrown.code, thrown.message);
    }
  }

  /** The files that an import names, each with the name for the operator. */
  #filesOf(target: Word): FileName[] {
    const { source } = target.span;
    const { path, isPattern, isRefused } = importTarget(target.text, source);
    if (!isPattern) return [{ file: shownPath(path, target.text, source), path }];
    if (isRefused) {
      const hint = 'a pattern may contain one **/, one * and one ?, but no [ ]';
      throw new LineProblem(
        target.span,
        'bad-pattern',
        `cannot import the pattern ${target.text}`,
        hint,
      );
    }
    this.#globs.add(path);
    const found = this.#glob(path, target);
    if (found.length === 0) {
      this.#problems.warn(target.span, 'empty-import', `no file matches ${target.text}`);
    }
    return found.map((each) => ({ file: shownPath(each, target.text, source), path: each }));
  }
}

/** Snippets that import each other many times can grow without limit; nothing more is read. */
class TooLarge extends Error {
  readonly span: Span;

  constructor(span: Span) {
    super('with its imports, this configuration is too large');
    this.span = span;
  }
}

function enter(target: Word, stack: Scope['stack'], key: string, name: string): Scope['stack'] {
  if (stack.some((step) => step.key === key)) {
    const chain = [...stack.map((step) => step.name), name].join(' → ');
    throw new LineProblem(target.span, 'import-cycle', `this import is a cycle: ${chain}`);
  }
  if (stack.length > MAX_IMPORT_DEPTH) throw new TooLarge(target.span);
  return [...stack, { key, name }];
}

function snippetName(line: Line): string | null {
  const [first] = line.words;
  if (first === undefined || !first.plain || line.words.length !== 1) return null;
  return /^\(([^()]+)\)$/.exec(first.text)?.[1] ?? null;
}

function withVia(span: Span, via: ImportStep | null): Span {
  return via === null ? span : { ...span, via };
}
