/*
 * What LMDB writes, as lmdb-js builds it: data version 2, 64 bits, little-endian. Offsets within a
 * page count from behind its header.
 *
 * page      number 8, transaction 8, (of a list of fixed values) 2, flags 2, then for a tree
 *           lower 2, upper 2, offsets of the nodes 2 each; for a large value the number of pages 4
 * node      low half of the size 2, high half 2, flags 2, size of the key 2, key, value;
 *           in a branch the three first are the number of the child
 * tree      (size of a page) 4, flags 2, depth 2, pages of branches 8, of leaves 8, of large values
 *           8, entries 8, root 8
 * meta      magic 4, version 4, address 8, size of the map 8, tree of what is free, tree of the
 *           databases, last page 8, transaction 8, boot 8
 */

export const PAGE_HEADER_BYTES = 24;
export const NODE_HEADER_BYTES = 8;
export const TREE_BYTES = 48;
/** Where a large value is: page 8, transaction 8, number of pages 8. */
export const LARGE_VALUE_BYTES = 24;
export const ID_BYTES = 8;

export const MAGIC = 0xbeefc0de;
export const DATA_VERSION = 2;

/** In the place of a root, where a tree is empty. */
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

/** Bytes of a key, at most: two nodes must fit on a page, each with a tree as its value. */
export function maxKeyBytes(pageBytes: number): number {
  const node = (Math.floor((pageBytes - PAGE_HEADER_BYTES) / 2) & ~1) - 2;
  return node - (NODE_HEADER_BYTES + TREE_BYTES);
}

/** A tree as it is written down where it hangs. */
export interface TreeRecord {
  readonly flags: number;
  readonly depth: number;
  readonly entries: number;
  /** {@link NO_PAGE} where the tree is empty. */
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

/** 64 bits as a number: beyond 2^53 not exactly, and infinite where all are set. */
export function whole(view: DataView, at: number): number {
  const low = view.getUint32(at, true);
  const high = view.getUint32(at + 4, true);
  return low === 0xffffffff && high === 0xffffffff ? NO_PAGE : high * 0x1_0000_0000 + low;
}
