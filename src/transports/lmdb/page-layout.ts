import {
  NODE_HEADER_BYTES,
  nodeFlag,
  LARGE_VALUE_BYTES,
  PAGE_HEADER_BYTES,
} from './page-format.ts';

/** What a page of a tree is, or a small one inside the value of a node. */
export interface Layout {
  /** Nodes on it. */
  nodes: number;
  /** All flags of its nodes, together; 0 for a branch. */
  flags: number;
}

/**
 * Checks how the nodes of a page lie: without a gap and without an overlap between the free room and
 * the end. One object for many pages, as it keeps notes of the size of a page.
 */
export class PageLayout implements Layout {
  nodes = 0;
  flags = 0;
  readonly #maxKey: number;
  /** By half the offset: the number of the check that found a node to begin there, and its end. */
  readonly #seen: Uint32Array;
  readonly #ends: Uint32Array;
  #check = 0;

  constructor(pageBytes: number, maxKey: number) {
    this.#maxKey = maxKey;
    this.#seen = new Uint32Array(pageBytes / 2);
    this.#ends = new Uint32Array(pageBytes / 2);
  }

  /**
   * @param at where the page begins
   * @param bytes its size, header and all
   * @param minKey bytes of a key, at least; the first of a branch may have none
   * @returns what is wrong, or null
   */
  read(
    view: DataView,
    at: number,
    bytes: number,
    isBranch: boolean,
    minKey: number,
  ): string | null {
    const room = bytes - PAGE_HEADER_BYTES;
    const base = at + PAGE_HEADER_BYTES;
    const lower = view.getUint16(at + 20, true);
    const upper = view.getUint16(at + 22, true);
    if (lower > upper || upper > room || ((lower | upper) & 1) !== 0) {
      return 'the bounds of its free room are impossible';
    }
    const nodes = lower >> 1;
    this.nodes = nodes;
    this.flags = 0;
    this.#check = (this.#check + 1) >>> 0;
    if (this.#check === 0) {
      this.#seen.fill(0);
      this.#check = 1;
    }
    for (let index = 0; index < nodes; index += 1) {
      const from = view.getUint16(base + index * 2, true);
      if (from < upper || from + NODE_HEADER_BYTES > room || (from & 1) !== 0) {
        return `node ${index} lies outside of it`;
      }
      const node = base + from;
      const key = view.getUint16(node + 6, true);
      if (key > this.#maxKey || (key < minKey && !(isBranch && index === 0))) {
        return `the key of node ${index} has an impossible size`;
      }
      let size = NODE_HEADER_BYTES + key;
      if (!isBranch) {
        const flags = view.getUint16(node + 4, true);
        this.flags |= flags;
        size += (flags & nodeFlag.large) === 0 ? valueBytes(view, node) : LARGE_VALUE_BYTES;
      }
      const end = from + size + (size & 1);
      if (end > room) return `node ${index} reaches beyond it`;
      const slot = from >> 1;
      if (this.#seen[slot] === this.#check) return `node ${index} is there twice`;
      this.#seen[slot] = this.#check;
      this.#ends[slot] = end;
    }
    return this.#isFilled(upper, room) ? null : 'its nodes have gaps between them, or overlap';
  }

  #isFilled(upper: number, room: number): boolean {
    let found = 0;
    for (let from = upper; from < room; found += 1) {
      if (this.#seen[from >> 1] !== this.#check) return false;
      from = this.#ends[from >> 1] ?? room;
    }
    return found === this.nodes;
  }
}

/** Where a node begins. */
export function nodeAt(view: DataView, at: number, index: number): number {
  const base = at + PAGE_HEADER_BYTES;
  return base + view.getUint16(base + index * 2, true);
}

/** Bytes of the value of a node, wherever it lies. */
export function valueBytes(view: DataView, node: number): number {
  return view.getUint32(node, true);
}

export function keyBytes(view: DataView, node: number): number {
  return view.getUint16(node + 6, true);
}

/** The page to which a node of a branch leads. */
export function childOf(view: DataView, node: number): number {
  return view.getUint16(node + 4, true) * 0x1_0000_0000 + view.getUint32(node, true);
}
