import { placeText, unreadableConfig } from '../config/problem.ts';
import { resolve } from 'node:path';
import { decodeConfig } from '../config/serialize.ts';
import type { ConfigRegistry } from '../config/routes.ts';
import { defaultOptions } from '../config/shape-options.ts';
import type { DataNode, SourceRange, DataMember } from '../config/shape.ts';
import type { HubfileIo } from './expand.ts';
import { loaded, type ReadConfig } from './loaded.ts';
import { Origins, placeOf, type Span, Problems } from './place.ts';
import { decodeText, MappedText, type Source, TextProblem } from './source.ts';
import { MAX_DEPTH, readYaml } from './yaml.ts';

/**
 * Reads a configuration in YAML or JSON, in the format of `adapt`. Every member with a default may be left
 * out. `{$VAR}` exists only in the Hubfile; `{env.X}` and `{file.X}` work everywhere.
 */
export function readData(
  file: string,
  io: HubfileIo,
  language: 'yaml' | 'json',
  registry: ConfigRegistry,
): ReadConfig {
  const problems = new Problems();
  const origins = new Origins();
  const path = resolve(file);
  const { source, readable } = readText(file, path, io, problems);
  const spanOf = ({ start, end }: SourceRange): Span => ({ source, start, end, via: null });
  const data = readable ? parse(source.text, language, spanOf, problems) : null;
  const sound = new Set<object>();
  let inSites = 0;
  const config =
    data === null
      ? null
      : decodeConfig(data, registry, {
          report: (at, finding) => problems.add(finding, spanOf(at)),
          mark: (part, at, fields) => {
            const places = [...fields].map(([name, each]) => [name, spanOf(each)] as const);
            origins.mark(part, spanOf(at), new Map(places));
          },
          site: (part, findings) => {
            inSites += findings;
            if (findings === 0) sound.add(part);
          },
          inClear: false,
        });
  const { options, sites } = config ?? { options: defaultOptions, sites: [] };
  // An invalid value is missing. Outside of the sites, one of the sites may need it.
  const whole = problems.errors === inSites;
  const good = whole
    ? { options, sites: sites.filter((site) => sound.has(site)) }
    : { options: defaultOptions, sites: [] };
  const about = { files: [path], globs: [], fromEnvironment: [], sound: good, readable: good };
  return loaded({ options, sites }, problems, origins, about);
}

function readText(
  file: string,
  path: string,
  io: HubfileIo,
  problems: Problems,
): { readonly source: Source; readonly readable: boolean } {
  const sourceOf = (text: string): Source => ({
    file,
    path,
    raw: text,
    text,
    mapped: new MappedText(),
    fromEnvironment: [],
    language: 'data',
  });
  try {
    const { text, fault } = decodeText(io.read(path));
    const source = sourceOf(text);
    if (fault === undefined) return { source, readable: true };
    const span = { source, start: fault.at, end: fault.at + 1, via: null };
    problems.error(span, fault.code, fault.message, fault.hint);
  } catch (thrown) {
    problems.add(unreadableConfig(file, thrown), null);
  }
  return { source: sourceOf(''), readable: false };
}

function parse(
  text: string,
  language: 'yaml' | 'json',
  spanOf: (at: SourceRange) => Span,
  problems: Problems,
): DataNode | null {
  try {
    return language === 'json' ? new JsonReader(text).whole() : readYaml(text);
  } catch (thrown) {
    if (!(thrown instanceof TextProblem)) throw thrown;
    const { at, code, message, first } = thrown;
    const spot = (start: number): Span => spanOf({ start, end: start + 1 });
    const other = first === undefined ? '' : `; the first is at ${placeText(placeOf(spot(first)))}`;
    problems.error(spot(at), code, message + other);
    return null;
  }
}

// JSON is parsed here. `jsonc-parser` does not fit: it recurses without a limit on depth, and its package can
// be neither imported by name in Node nor bundled.

const SPACE = /[ \t\n\r]*/y;
const NUMBER = /-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?(?![\w.])/y;
const STRING = /"[^"\\]*(?:\\.[^"\\]*)*"/sy;
const WORD = /true|false|null/y;
const WORDS = { true: true, false: false, null: null } as const;

/** Parses JSON (RFC 8259) and records the place of every value. A name may occur once in an object. */
class JsonReader {
  readonly #text: string;
  #at = 0;

  constructor(text: string) {
    this.#text = text;
  }

  /** @throws {TextProblem} `bad-json` at the first fault */
  whole(): DataNode {
    const value = this.#value(0);
    if (this.#at < this.#text.length) this.#fail('unexpected text after the value');
    return value;
  }

  #value(depth: number): DataNode {
    this.#match(SPACE);
    if (depth > MAX_DEPTH) this.#fail('this is nested too deeply');
    const start = this.#at;
    const value = this.#bare(depth);
    const node = { value, start, end: this.#at };
    this.#match(SPACE);
    return node;
  }

  #bare(depth: number): DataNode['value'] {
    switch (this.#text[this.#at]) {
      case '{':
        return this.#object(depth);
      case '[':
        return this.#list(depth);
      case '"':
        return this.#string();
      default: {
        const word = this.#match(WORD);
        // The pattern matches only the names of this table.
        if (word !== null) return WORDS[word as keyof typeof WORDS];
        const number = this.#match(NUMBER);
        return number === null ? this.#fail('expected a value') : Number(number);
      }
    }
  }

  #object(depth: number): ReadonlyMap<string, DataMember> {
    const members = new Map<string, DataMember>();
    this.#separated('}', () => {
      const start = this.#at;
      const name = this.#text[this.#at] === '"' ? this.#string() : this.#fail('expected a "name"');
      const key: SourceRange = { start, end: this.#at };
      const first = members.get(name)?.key.start;
      if (first !== undefined) {
        const message = 'this name is given twice in the object';
        throw new TextProblem('bad-json', start, message, undefined, first);
      }
      this.#match(SPACE);
      this.#take(':');
      members.set(name, { key, value: this.#value(depth + 1) });
    });
    return members;
  }

  #list(depth: number): DataNode[] {
    const items: DataNode[] = [];
    this.#separated(']', () => items.push(this.#value(depth + 1)));
    return items;
  }

  /** The items between an opening character and `close`, separated by commas. */
  #separated(close: string, item: () => void): void {
    this.#at += 1;
    this.#match(SPACE);
    if (this.#text[this.#at] === close) {
      this.#at += 1;
      return;
    }
    for (;;) {
      item();
      this.#match(SPACE);
      if (this.#text[this.#at] === close) break;
      this.#take(',', close);
      this.#match(SPACE);
    }
    this.#at += 1;
  }

  #string(): string {
    const start = this.#at;
    const written = this.#match(STRING);
    if (written === null) return this.#fail('this text is not closed', start);
    try {
      const value: unknown = JSON.parse(written);
      return String(value);
    } catch {
      // The pattern finds the end of the string; JSON.parse checks its content.
      return this.#fail('this text contains a line break or an invalid escape', start);
    }
  }

  #take(expected: string, or?: string): void {
    if (this.#text[this.#at] !== expected) {
      this.#fail(`expected ${or === undefined ? expected : `${expected} or ${or}`}`);
    }
    this.#at += 1;
  }

  #match(pattern: RegExp): string | null {
    pattern.lastIndex = this.#at;
    const found = pattern.exec(this.#text);
    if (found === null) return null;
    this.#at = pattern.lastIndex;
    return found[0];
  }

  #fail(message: string, at = this.#at): never {
    throw new TextProblem('bad-json', at, message);
  }
}
