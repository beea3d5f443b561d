import { dirname, isAbsolute, relative } from 'node:path';
import { HubgateError } from '../kernel/error.ts';
import { orNull } from '../kernel/parse.ts';
import type { Place } from '../config/problem.ts';
import type { HubfileIo } from './expand.ts';
import { hubfileText } from './format.ts';
import { importTarget, MAX_IMPORT_DEPTH, MAX_IMPORTS, shownPath } from './import-target.ts';
import { placeOf } from './place.ts';
import { makeSource, MappedText, MAX_SOURCE_BYTES, type Source, TextProblem } from './source.ts';
import type { DirectiveTable } from './directive-table.ts';
import { nameOf, optionsOf, type WrittenLine, writtenLines } from './written-lines.ts';

/** A text that was made from others. */
export interface PlacedText {
  readonly text: string;
  /** The place at which a character was written. */
  placeAt(offset: number): Place;
}

/** Reads the imported files. */
export type ImportIo = Pick<HubfileIo, 'read' | 'glob'>;

/** An inserted text, and the imports that led to it, innermost first. */
interface Text {
  readonly source: Source;
  readonly lines: readonly WrittenLine[];
  readonly from: Imported | null;
}

interface Imported {
  readonly text: Text;
  readonly at: WrittenLine;
}

/** The origin of a piece: an offset of one of the texts. */
interface Origin {
  readonly text: Text;
  readonly at: number;
  readonly kept: boolean;
}

/** Words that have another meaning when they are inserted. */
const ARGUMENTS = /\{(?:args|block)[[.s}]/;

/**
 * Inserts the text of imported files at their imports, each after a comment with its name. A file that gets
 * arguments or a block becomes a snippet. An import stays if its file cannot be read, or if a variable names
 * it.
 *
 * @param text structurally valid, without endless imports
 * @throws {HubgateError} `too-large` for more imports, or more text, than a Hubfile may have
 */
export function withImports(
  text: string,
  file: string,
  path: string,
  io: ImportIo,
  table: DirectiveTable,
): PlacedText {
  return new Inliner(io, table).whole(textOf(text, { file, path }, null, table));
}

function textOf(
  raw: string,
  where: { file: string; path: string },
  from: Imported | null,
  table: DirectiveTable,
): Text {
  return { source: makeSource(where, raw, {}), lines: writtenLines(raw, table), from };
}

class Inliner {
  readonly #io: ImportIo;
  readonly #table: DirectiveTable;
  #whole = new MappedText<Origin>();
  readonly #snippets = new Set<string>();
  /** The files that have become snippets, by path, each with its name. */
  readonly #asSnippets = new Map<string, readonly [name: string, text: Text]>();
  readonly #seen = new Set<string>();
  #imports = 0;

  constructor(io: ImportIo, table: DirectiveTable) {
    this.#io = io;
    this.#table = table;
  }

  whole(text: Text): PlacedText {
    this.#put(text, true);
    const body = this.#taken();
    // Snippets that are found while another is written are written as well.
    for (const [name, snippet] of this.#asSnippets.values()) {
      this.#add(`\n(${name}) {\n`, snippet, 0, false);
      this.#put(snippet, false);
      this.#add('\n}\n', snippet, 0, false);
    }
    const snippets = this.#taken();
    if (snippets.text === '') return placed(body);
    // After the global options, and before a site without braces.
    const cut = optionsOf(writtenLines(body.text, this.#table))?.end ?? 0;
    const whole = new MappedText<Origin>();
    whole.addPart(body, 0, cut);
    whole.addPart(snippets, 0, snippets.text.length);
    whole.addPart(body, cut, body.text.length);
    return placed(whole);
  }

  #taken(): MappedText<Origin> {
    const taken = this.#whole;
    this.#whole = new MappedText();
    return taken;
  }

  /** @param top whether it contains sites */
  #put(text: Text, top: boolean): void {
    const { source, lines } = text;
    // A file that is imported twice defines its snippets once.
    const again = this.#seen.has(source.path);
    if (top) this.#seen.add(source.path);
    const edits: { line: WrittenLine; put: () => void }[] = [];
    const visit = (line: WrittenLine): void => {
      const snippet = line.outer === null && top ? snippetName(line) : null;
      if (snippet !== null && again) edits.push({ line, put: () => {} });
      else if (nameOf(line) === 'import') {
        edits.push({ line, put: () => this.#import(line, text, top && line.outer === null) });
      } else line.inner.forEach(visit);
    };
    if (top) for (const line of lines) this.#snippets.add(snippetName(line) ?? '');
    lines.forEach(visit);
    let from = 0;
    for (const { line, put } of edits) {
      this.#add(source.raw.slice(from, line.start), text, from, true);
      put();
      from = line.end;
    }
    this.#add(source.raw.slice(from), text, from, true);
  }

  #add(piece: string, text: Text, at: number, kept: boolean): void {
    if (piece === '') return;
    this.#whole.add(piece, { text, at, kept });
    if (this.#whole.text.length > MAX_SOURCE_BYTES) {
      throw tooLarge(`more than ${MAX_SOURCE_BYTES} characters, including imports`);
    }
  }

  #import(line: WrittenLine, text: Text, top: boolean): void {
    const [, target, ...args] = line.words;
    const found = target === undefined ? null : this.#filesOf(target.text, { text, at: line });
    if (target === undefined || found === null) return this.#stay(line, text);
    const needsArguments = args.length > 0 || line.blockStart !== null;
    for (const each of found) {
      if (needsArguments || ARGUMENTS.test(each.source.raw)) {
        this.#add('import ', text, line.start, false);
        this.#add(this.#asSnippet(each), text, target.start, false);
        this.#add(text.source.raw.slice(target.end, line.end), text, target.end, true);
        this.#add('\n', text, line.end, false);
      } else {
        this.#add(
          `# from ${each.source.file.replaceAll(/\p{Cc}/gu, '?')}\n`,
          text,
          line.start,
          false,
        );
        this.#put(each, top);
        this.#add('\n', text, line.end, false);
      }
    }
  }

  /** The name of the snippet for a file. */
  #asSnippet(text: Text): string {
    const { path, file } = text.source;
    const known = this.#asSnippets.get(path);
    if (known !== undefined) return known[0];
    let name = file.replaceAll(/[^\w./-]/g, '_');
    while (this.#snippets.has(name)) name += '_';
    this.#asSnippets.set(path, [name, text]);
    this.#snippets.add(name);
    return name;
  }

  /** Keeps the line, but changes a path that is relative to a file that has been inserted. */
  #stay(line: WrittenLine, text: Text): void {
    const { raw } = text.source;
    const target = line.words[1];
    const outermost = rootOf(text);
    const isRelative =
      target !== undefined &&
      text !== outermost &&
      !this.#snippets.has(target.text) &&
      !/^[/{]/.test(target.text);
    if (!isRelative) return this.#add(raw.slice(line.start, line.end), text, line.start, true);
    const { path } = importTarget(target.text, text.source);
    this.#add(raw.slice(line.start, target.start), text, line.start, true);
    const moved = relative(dirname(outermost.source.path), path);
    this.#add(/\s/.test(moved) ? `"${moved}"` : moved, text, target.start, false);
    this.#add(raw.slice(target.end, line.end), text, target.end, true);
  }

  /** The files that an import names; null if the import has to stay. */
  #filesOf(target: string, from: Imported): readonly Text[] | null {
    const { source } = from.text;
    if (this.#snippets.has(target) || target.includes('{')) return null;
    const { path, isPattern, isRefused } = importTarget(target, source);
    if (isPattern && isRefused) return null;
    const paths = isPattern ? this.#io.glob(path) : [path];
    if (depthOf(from) > MAX_IMPORT_DEPTH) throw tooLarge('imports are nested too deeply');
    const texts = paths.map((each) => {
      this.#imports += 1;
      if (this.#imports > MAX_IMPORTS) throw tooLarge(`more than ${MAX_IMPORTS} imports`);
      return this.#read(
        { file: shownFrom(rootOf(from.text), each, target, source), path: each },
        from,
      );
    });
    const read = texts.filter((each) => each !== null);
    // If a file cannot be read, the import stays and reports it.
    return read.length === texts.length && read.length > 0 ? read : null;
  }

  #read(where: { file: string; path: string }, from: Imported): Text | null {
    // The reader of the Hubfile reports the reason.
    const bytes = orNull(() => this.#io.read(where.path));
    if (bytes === null) return null;
    try {
      return textOf(hubfileText(bytes, where.file), where, from, this.#table);
    } catch (thrown) {
      if (thrown instanceof TextProblem) return null;
      throw thrown;
    }
  }
}

function snippetName({ words: [first, second] }: WrittenLine): string | null {
  if (first?.kind !== 'plain' || second !== undefined) return null;
  return /^\(([^()]+)\)$/.exec(first.text)?.[1] ?? null;
}

/** The path relative to the Caddyfile, if it is in the same directory or below. */
function shownFrom({ source: root }: Text, path: string, target: string, source: Source): string {
  const isBelow = path.startsWith(`${dirname(root.path)}/`) && !isAbsolute(target);
  return shownPath(path, isBelow ? '' : target, isBelow ? root : source);
}

function rootOf(text: Text): Text {
  let root = text;
  while (root.from !== null) root = root.from.text;
  return root;
}

function depthOf(from: Imported): number {
  let depth = 0;
  for (let each: Imported | null = from; each !== null; each = each.text.from) depth += 1;
  return depth;
}

function placed(whole: MappedText<Origin>): PlacedText {
  return { text: whole.text, placeAt: (offset) => placeIn(whole, offset) };
}

function placeIn(whole: MappedText<Origin>, offset: number): Place {
  const origin = whole.originOf(offset);
  if (origin === undefined) return { file: '', line: 1, column: 1 };
  const { text } = origin.from;
  const place = spotIn(text, origin.at);
  const importedFrom: Omit<Place, 'importedFrom'>[] = [];
  for (let from = text.from; from !== null; from = from.text.from) {
    importedFrom.push(spotIn(from.text, from.at.start));
  }
  return importedFrom.length === 0 ? place : { ...place, importedFrom };
}

function spotIn({ source }: Text, at: number): Omit<Place, 'importedFrom'> {
  return placeOf({ source, start: at, end: at, via: null });
}

function tooLarge(what: string): HubgateError {
  return new HubgateError('too-large', `The Caddyfile is too large: ${what}`);
}
