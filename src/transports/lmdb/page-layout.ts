/** The kind of a page of a tree, or of a small page inside the value of a node. */
interface Layout {
  /** The number of its nodes. */
  nodes: number;
  /** The flags of all its nodes combined; 0 for a branch. */
  flags: number;
}

/**
 * Checks that the nodes of a page have no gaps and no overlaps between the free space and the end. One object
 * checks many pages, because it keeps notes of the size of a page.
 */
export class PageLayout implements Layout {
  nodes = 0;
  flags = 0;
  readonly #maxKey: number;
  /** By half the offset: the number of the check that found a node there, and the end of that node. */
  readonly #seen: Uint32Array;
  readonly #ends: Uint32Array;
  #check = 0;

  constructor(pageBytes: number, maxKey: number) {
    this.#maxKey = maxKey;
    this.#seen = new Uint32Array(pageBytes / 2);
    this.#ends = new Uint32Array(pageBytes / 2);
  }

  /**
   * @param at offset of the page
   * @param bytes size of the page, including its header
   * @param minKey minimum size of a key; the first key of a branch may be empty
   * @returns the fault, or null
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

/** Offset of a node. */
export function nodeAt(view: DataView, at: number, index: number): number {
  const base = at + PAGE_HEADER_BYTES;
  return base + view.getUint16(base + index * 2, true);
}

/** Size of the value of a node, wherever it is stored. */
export function valueBytes(view: DataView, node: number): number {
  return view.getUint32(node, true);
}

export function keyBytes(view: DataView, node: number): number {
  return view.getUint16(node + 6, true);
}

/** The child page of a node of a branch. */
export function childOf(view: DataView, node: number): number {
  return view.getUint16(node + 4, true) * 0x1_0000_0000 + view.getUint32(node, true);
}

/*
 * The format that LMDB writes in lmdb-js: data version 2, 64 bits, little-endian. Offsets within a page begin
 * after its header. The numbers are sizes in bytes.
 *
 * page      number 8, transaction 8, (of a list of fixed values) 2, flags 2, then for a tree lower 2,
 *           upper 2, offsets of the nodes 2 each; for a large value the number of pages 4
 * node      low half of the size 2, high half 2, flags 2, size of the key 2, key, value; in a branch, the
 *           first three are the number of the child
 * tree      (size of a page) 4, flags 2, depth 2, number of branch pages 8, of leaf pages 8, of pages of
 *           large values 8, entries 8, root 8
 * meta      magic 4, version 4, address 8, size of the map 8, tree of the free pages, tree of the
 *           databases, last page 8, transaction 8, boot 8
 */

export const PAGE_HEADER_BYTES = 24;
export const NODE_HEADER_BYTES = 8;
export const TREE_BYTES = 48;
/** Reference to a large value: page 8, transaction 8, number of pages 8. */
const LARGE_VALUE_BYTES = 24;
export const ID_BYTES = 8;

export const MAGIC = 0xbeefc0de;
export const DATA_VERSION = 2;

/** Stands in place of the root of an empty tree. */
export const NO_PAGE = Number.POSITIVE_INFINITY;
export const META_PAGES = 2;

export const pageFlag = {
  branch: 0x01,
  leaf: 0x02,
  large: 0x04,
  meta: 0x08,
  inside: 0x40,
} as const;
export const nodeFlag = { large: 0x01, tree: 0x02, values: 0x04 } as const;
export const treeFlag = { sortedValues: 0x04, numberKeys: 0x08 } as const;

/** Maximum size of a key: two nodes must fit on a page, each with a tree as its value. */
export function maxKeyBytes(pageBytes: number): number {
  const node = (Math.floor((pageBytes - PAGE_HEADER_BYTES) / 2) & ~1) - 2;
  return node - (NODE_HEADER_BYTES + TREE_BYTES);
}

export interface TreeRecord {
  readonly flags: number;
  readonly depth: number;
  readonly entries: number;
  /** {@link NO_PAGE} for an empty tree. */
  readonly root: number;
}

export function treeRecord(view: DataView, at: number): TreeRecord {
  return {
    flags: view.getUint16(at + 4, true),
    depth: view.getUint16(at + 6, true),
    entries: whole(view, at + 32),
    root: whole(view, at + 40),
  };
}

/** 64 bits as a number: inexact beyond 2^53, and infinite if all bits are set. */
export function whole(view: DataView, at: number): number {
  const low = view.getUint32(at, true);
  const high = view.getUint32(at + 4, true);
  return low === 0xffffffff && high === 0xffffffff ? NO_PAGE : high * 0x1_0000_0000 + low;
}

/** A key on a page in a window. */
export interface Key {
  bytes: Buffer | null;
  from: number;
  length: number;
}

/** Without creating an object, because a walk would create millions. */
export function setKey(key: Key, bytes: Buffer | null, from: number, length: number): void {
  key.bytes = bytes;
  key.from = from;
  key.length = length;
}

export function copyKey(key: Key, { bytes, from, length }: Key): void {
  setKey(key, bytes, from, length);
}

/** Compares keys as LMDB does: byte by byte with the shorter first, or as numbers. */
export function compareKeys(
  a: Buffer,
  aFrom: number,
  aLength: number,
  b: Buffer,
  bFrom: number,
  bLength: number,
  isNumber: boolean,
): number {
  if (isNumber) {
    for (let index = ID_BYTES - 1; index >= 0; index -= 1) {
      const difference = (a[aFrom + index] ?? 0) - (b[bFrom + index] ?? 0);
      if (difference !== 0) return difference;
    }
    return 0;
  }
  const common = aLength < bLength ? aLength : bLength;
  for (let index = 0; index < common; index += 1) {
    const difference = (a[aFrom + index] ?? 0) - (b[bFrom + index] ?? 0);
    if (difference !== 0) return difference;
  }
  return aLength - bLength;
}
