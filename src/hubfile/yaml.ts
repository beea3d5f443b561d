import {
  Composer,
  type CST,
  type Document,
  isAlias,
  isMap,
  isScalar,
  isSeq,
  type Node,
  Parser,
  type YAMLMap,
} from 'yaml';
import type { DataMember, DataNode, SourceRange } from '../config/shape.ts';
import { TextProblem } from './source.ts';

/** Deepest nesting of mappings and lists. Each of the 64 levels of blocks in a Hubfile becomes up to four. */
export const MAX_DEPTH = 300;
/** Most values of a document with its aliases replaced. */
const MAX_NODES = 100_000;

/**
 * Parses YAML 1.2 and records the place of every value. Aliases are allowed as long as the document stays
 * small when they are replaced. Merge keys (`<<`) are not part of YAML 1.2.
 * @throws {TextProblem} `bad-yaml` at the first fault
 */
export function readYaml(text: string): DataNode {
  const document = parse(text);
  if (document === undefined) return { value: new Map(), start: 0, end: 0 };
  const [fault] = [...document.errors, ...document.warnings].sort((a, b) => a.pos[0] - b.pos[0]);
  if (fault !== undefined)
    throw new TextProblem('bad-yaml', fault.pos[0], withoutSource(fault.message));
  if (document.contents === null) return { value: new Map(), start: 0, end: 0 };
  return new YamlReader().node(document.contents);
}

function parse(text: string): Document.Parsed | undefined {
  const tokens = [...new Parser().parse(text)];
  // The composer is recursive, and beyond some depth it would end the whole process.
  for (const token of tokens) checkDepth(token);
  const composer = new Composer({
    version: '1.2',
    schema: 'core',
    merge: false,
    // The library's check compares each key with all others; the check below is faster.
    uniqueKeys: false,
    prettyErrors: false,
    logLevel: 'silent',
  });
  const [first, second] = composer.compose(tokens, false, text.length);
  if (second !== undefined) {
    const message = 'a configuration is a single document, and this is the second';
    throw new TextProblem('bad-yaml', second.range[0], message);
  }
  return first;
}

function checkDepth(root: CST.Token): void {
  const waiting = [{ token: root, depth: 0 }];
  for (let next = waiting.pop(); next !== undefined; next = waiting.pop()) {
    const { token, depth } = next;
    if (depth > MAX_DEPTH)
      throw new TextProblem('bad-yaml', offsetOf(token), 'this is nested too deeply');
    if (token.type === 'document' && token.value !== undefined) {
      waiting.push({ token: token.value, depth });
    }
    if (!('items' in token)) continue;
    for (const { key, value } of token.items) {
      for (const child of [key, value]) {
        if (child) waiting.push({ token: child, depth: depth + 1 });
      }
    }
  }
}

function offsetOf(token: CST.Token): number {
  return 'offset' in token ? token.offset : 0;
}

class YamlReader {
  /** The values that have been read, for aliases. A node that is being read is not included yet. */
  readonly #anchors = new Map<string, { readonly node: DataNode; readonly size: number }>();
  #size = 0;

  node(node: Node): DataNode {
    const at = sourceRangeOf(node);
    if (isAlias(node)) {
      const known = this.#anchors.get(node.source);
      if (known === undefined) {
        const message = 'this alias refers to nothing before it';
        throw new TextProblem('bad-yaml', at.start, message);
      }
      this.#count(known.size, at);
      return { ...known.node, ...at };
    }
    const before = this.#size;
    this.#count(1, at);
    const read = { value: this.#value(node), ...at };
    const anchor = 'anchor' in node ? node.anchor : undefined;
    if (anchor) this.#anchors.set(anchor, { node: read, size: this.#size - before });
    return read;
  }

  #value(node: Node): DataNode['value'] {
    if (isMap(node)) return this.#members(node);
    if (isSeq(node)) {
      // Items of a parsed sequence are nodes; an empty one is a scalar null.
      return node.items.map((item) => this.node(item as Node));
    }
    const value: unknown = isScalar(node) ? node.value : undefined;
    if (value === null || ['string', 'number', 'boolean'].includes(typeof value)) {
      // One of the four types that have just been checked.
      return value as string | number | boolean | null;
    }
    throw new TextProblem(
      'bad-yaml',
      sourceRangeOf(node).start,
      'expected a text, a number, true, false, null, a list or a mapping',
    );
  }

  #members(map: YAMLMap): ReadonlyMap<string, DataMember> {
    const members = new Map<string, DataMember>();
    for (const { key, value } of map.items) {
      // Keys and values of a parsed mapping are nodes; a missing value is null.
      const [name, written] = [key as Node, value as Node | null];
      const at = sourceRangeOf(name);
      if (!isScalar(name) || typeof name.value !== 'string') {
        throw new TextProblem('bad-yaml', at.start, 'expected a name');
      }
      const first = members.get(name.value)?.key.start;
      if (first !== undefined) {
        const message = 'this name is given twice in the mapping';
        throw new TextProblem('bad-yaml', at.start, message, undefined, first);
      }
      const member = written === null ? { value: null, ...at } : this.node(written);
      members.set(name.value, { key: at, value: member });
    }
    return members;
  }

  #count(nodes: number, at: SourceRange): void {
    this.#size += nodes;
    if (this.#size <= MAX_NODES) return;
    const message = `with its aliases, this document has more than ${MAX_NODES} values`;
    throw new TextProblem('bad-yaml', at.start, message);
  }
}

function sourceRangeOf({ range }: Node): SourceRange {
  return { start: range?.[0] ?? 0, end: range?.[1] ?? 0 };
}

/** The library ends some messages with a part of the text, which may be a secret. */
function withoutSource(message: string): string {
  return message.split(/: |\n/, 1)[0] ?? '';
}
