import type { Budget } from '../../kernel/scheduler.ts';
import { FreeIds, PageFault, type PageReader, type PageWindow } from './page-reader.ts';
import {
  childOf,
  compareKeys,
  copyKey,
  ID_BYTES,
  type Key,
  keyBytes,
  maxKeyBytes,
  META_PAGES,
  NO_PAGE,
  NODE_HEADER_BYTES,
  nodeAt,
  nodeFlag,
  PAGE_HEADER_BYTES,
  pageFlag,
  PageLayout,
  setKey,
  TREE_BYTES,
  treeFlag,
  treeRecord,
  type TreeRecord,
  valueBytes,
  whole,
} from './page-layout.ts';
import type { Snapshot } from './snapshot.ts';

/** The purpose of a tree. */
type Kind = 'free' | 'main' | 'named' | 'values';

/** Maximum depth of a tree: the pages of no disk need more. */
const MAX_DEPTH = 20;
/** Unwanted pages between two wanted ones that are read with them. */
const MAX_GAP = 3;
/** In steps. */
const PAGE_STEPS = 60;
const NODE_STEPS = 6;
const ID_STEPS = 2;

/** The position of the walk in one level of a tree. */
interface Level {
  page: number;
  at: number;
  nodes: number;
  next: number;
  /** Bounds of the keys of the page: the lower one inclusive, the upper one exclusive. */
  readonly low: Key;
  readonly high: Key;
}

/**
 * Walks over everything that a snapshot reaches, so that LMDB finds nothing there that makes it read or write
 * elsewhere, loop for ever or end the process. Throws a {@link PageFault} for the first thing that LMDB
 * cannot have written.
 */
export class TreeCheck {
  readonly #reader: PageReader;
  readonly #snapshot: Snapshot;
  readonly #pageBytes: number;
  readonly #maxKey: number;
  readonly #layout: PageLayout;
  readonly #inner: PageLayout;
  /** One bit for each page that is accounted for. */
  readonly #taken: Uint8Array;
  readonly #levels: Level[] = [];
  readonly #header = new DataView(new ArrayBuffer(PAGE_HEADER_BYTES));
  readonly #headerBytes = Buffer.from(this.#header.buffer);
  /** Pages of the snapshot that the file contains. */
  readonly #pages: number;
  /** Entries of the current tree so far. */
  #entries = 0;
  /** Whether a key of the current database may have several values. */
  #hasSortedValues = false;

  constructor(reader: PageReader, snapshot: Snapshot) {
    this.#reader = reader;
    this.#snapshot = snapshot;
    this.#pageBytes = snapshot.pageBytes;
    this.#maxKey = maxKeyBytes(snapshot.pageBytes);
    this.#layout = new PageLayout(snapshot.pageBytes, this.#maxKey);
    this.#inner = new PageLayout(snapshot.pageBytes, this.#maxKey);
    if (snapshot.lastPage < META_PAGES - 1)
      this.#fail(snapshot.page, 'its last page is impossible');
    // The end of a file may be missing, but only if nothing there is in use.
    const pages = Math.min(snapshot.lastPage + 1, Math.ceil(reader.size() / snapshot.pageBytes));
    this.#taken = new Uint8Array((pages >> 3) + 1);
    this.#pages = pages;
  }

  *run(budget: Budget): Generator<void, void, void> {
    const { page, main, free } = this.#snapshot;
    if (main.flags !== 0) this.#fail(page, 'the kind of the list of databases is impossible');
    yield* this.#tree(main, 'main', page, 0, budget);
    yield* this.#tree(free, 'free', page, 0, budget);
  }

  /** @param owner the page that contains the record of the tree */
  *#tree(
    { root, depth, entries }: TreeRecord,
    kind: Kind,
    owner: number,
    base: number,
    budget: Budget,
  ): Generator<void, void, void> {
    if (root === NO_PAGE) {
      if (depth !== 0 || entries !== 0) this.#fail(owner, 'a tree without pages has entries');
      return;
    }
    if (depth < 1 || depth > MAX_DEPTH) this.#fail(owner, 'the depth of a tree is impossible');
    const before = this.#entries;
    this.#entries = 0;
    const leaf = base + depth - 1;
    const first = this.#level(base);
    setKey(first.low, null, 0, 0);
    setKey(first.high, null, 0, 0);
    let depthNow = base;
    this.#enter(root, owner, base, 1, kind, base === leaf);
    for (;;) {
      this.#account(budget);
      if (budget.isSpent) yield;
      if (depthNow === leaf) {
        yield* this.#leaf(depthNow, kind, budget);
        depthNow -= 1;
      }
      while (depthNow >= base && this.#level(depthNow).next >= this.#level(depthNow).nodes) {
        depthNow -= 1;
      }
      if (depthNow < base) break;
      this.#descend(depthNow, kind, depthNow + 1 === leaf);
      depthNow += 1;
    }
    if (this.#entries !== entries) this.#fail(owner, 'the number of entries of a tree is another');
    this.#entries = before;
  }

  /** Moves to the next child of a branch. */
  #descend(depth: number, kind: Kind, isLeaf: boolean): void {
    const level = this.#level(depth);
    const window = this.#reader.window(depth);
    const { view } = window;
    const index = level.next;
    level.next += 1;
    const node = nodeAt(view, level.at, index);
    const child = childOf(view, node);
    const below = this.#level(depth + 1);
    if (index === 0) copyKey(below.low, level.low);
    else setKey(below.low, window.bytes, node + NODE_HEADER_BYTES, keyBytes(view, node));
    if (index + 1 === level.nodes) copyKey(below.high, level.high);
    else {
      const following = nodeAt(view, level.at, index + 1);
      const key = following + NODE_HEADER_BYTES;
      setKey(below.high, window.bytes, key, keyBytes(view, following));
    }
    const isRead = this.#reader.window(depth + 1).at(child, this.#pageBytes) >= 0;
    const run = isRead ? 1 : this.#runFrom(view, level, index, child);
    this.#enter(child, level.page, depth + 1, run, kind, isLeaf);
  }

  /** How many pages to read from a child on, so that siblings that follow it are read as well. */
  #runFrom(view: DataView, level: Level, index: number, child: number): number {
    let last = child;
    for (let other = index + 1; other < level.nodes; other += 1) {
      const page = childOf(view, nodeAt(view, level.at, other));
      if (page <= last || page - last > MAX_GAP + 1 || page - child >= this.#reader.room) break;
      last = page;
    }
    return last - child + 1;
  }

  /** Reads a page of a tree and checks everything that needs no other page. */
  #enter(
    page: number,
    owner: number,
    depth: number,
    run: number,
    kind: Kind,
    isLeaf: boolean,
  ): void {
    this.#take(page, 1, owner);
    const at = this.#reader.load(depth, page, run);
    const { view, bytes } = this.#reader.window(depth);
    if (whole(view, at) !== page) this.#fail(page, 'it has the number of another page');
    if (whole(view, at + 8) > this.#snapshot.transaction) {
      this.#fail(page, 'it is of a transaction that has not been');
    }
    const flags = view.getUint16(at + 18, true);
    if (flags !== (isLeaf ? pageFlag.leaf : pageFlag.branch)) {
      this.#fail(page, `it is not a ${isLeaf ? 'leaf' : 'branch'} of a tree`);
    }
    const layout = this.#layout;
    const minKey = kind === 'values' ? 0 : 1;
    const fault = layout.read(view, at, this.#pageBytes, !isLeaf, minKey);
    if (fault !== null) this.#fail(page, fault);
    // LMDB itself does not check this for the free list.
    const least = isLeaf || kind === 'free' ? 1 : 2;
    if (layout.nodes < least) this.#fail(page, 'it has fewer nodes than it must have');
    const level = this.#level(depth);
    level.page = page;
    level.at = at;
    level.nodes = layout.nodes;
    level.next = 0;
    this.#inOrder(level, view, bytes, kind, isLeaf);
    this.#reader.steps += PAGE_STEPS + layout.nodes * NODE_STEPS;
  }

  /** Keys must ascend on the page and lie between the bounds of the branches above it. */
  #inOrder(level: Level, view: DataView, bytes: Buffer, kind: Kind, isLeaf: boolean): void {
    const { low, high, at, nodes, page } = level;
    let [from, length] = [0, 0];
    const isNumber = kind === 'free';
    // Nothing reads the first key of a branch.
    const first = isLeaf ? 0 : 1;
    for (let index = first; index < nodes; index += 1) {
      const node = nodeAt(view, at, index);
      const key = node + NODE_HEADER_BYTES;
      const size = keyBytes(view, node);
      if (isNumber && size !== ID_BYTES)
        this.#fail(page, 'an entry of the free list has no number');
      const order =
        index > first
          ? compareKeys(bytes, from, length, bytes, key, size, isNumber)
          : low.bytes === null || (!isLeaf && low.length === 0)
            ? -1
            : compareKeys(low.bytes, low.from, low.length, bytes, key, size, isNumber);
      // Only the first key may equal the lower bound.
      if (order > 0 || (order === 0 && index > first)) {
        this.#fail(page, 'its keys are not in ascending order');
      }
      [from, length] = [key, size];
    }
    if (high.bytes !== null && nodes > first) {
      if (compareKeys(bytes, from, length, high.bytes, high.from, high.length, isNumber) >= 0) {
        this.#fail(page, 'its keys belong to another page');
      }
    }
  }

  *#leaf(depth: number, kind: Kind, budget: Budget): Generator<void, void, void> {
    const level = this.#level(depth);
    level.next = level.nodes;
    const { flags } = this.#layout;
    if (flags === 0 && kind !== 'free' && kind !== 'values') {
      this.#entries += level.nodes;
      return;
    }
    const window = this.#reader.window(depth);
    for (let index = 0; index < level.nodes; index += 1) {
      const node = nodeAt(window.view, level.at, index);
      yield* this.#value(level, window, node, depth, kind, budget);
    }
  }

  *#value(
    level: Level,
    { view, bytes }: PageWindow,
    node: number,
    depth: number,
    kind: Kind,
    budget: Budget,
  ): Generator<void, void, void> {
    const { page } = level;
    const flags = view.getUint16(node + 4, true);
    const size = valueBytes(view, node);
    const value = node + NODE_HEADER_BYTES + keyBytes(view, node);
    this.#entries += 1;
    switch (flags) {
      case 0:
        if (kind === 'values' && size !== 0) this.#fail(page, 'a value of a list has a value');
        if (kind === 'free') this.#freePages(view, value, size, page);
        return;
      case nodeFlag.large: {
        if (kind === 'values') break;
        const first = this.#largeValue(view, value, size, page);
        if (kind === 'free') yield* this.#largeFreeList(first, size, page, depth, budget);
        return;
      }
      case nodeFlag.tree: {
        if (kind !== 'main') break;
        if (size !== TREE_BYTES) this.#fail(page, 'a database has a record of another size');
        const name = bytes.toString('latin1', node + NODE_HEADER_BYTES, value);
        const tree = treeRecord(view, value);
        if ((tree.flags & ~treeFlag.sortedValues) !== 0) {
          this.#fail(page, `the kind of the database ${JSON.stringify(name)} is impossible`);
        }
        this.#hasSortedValues = tree.flags === treeFlag.sortedValues;
        yield* this.#tree(tree, 'named', page, depth + 1, budget);
        return;
      }
      case nodeFlag.values:
        if (!this.#hasSortedValues || kind !== 'named') break;
        this.#entries += this.#innerPage(view, bytes, value, size, page) - 1;
        return;
      case nodeFlag.values | nodeFlag.tree: {
        if (!this.#hasSortedValues || kind !== 'named') break;
        if (size !== TREE_BYTES) this.#fail(page, 'a list of values has a record of another size');
        const tree = treeRecord(view, value);
        if (tree.flags !== 0) this.#fail(page, 'the kind of a list of values is impossible');
        yield* this.#tree(tree, 'values', page, depth + 1, budget);
        this.#entries += tree.entries - 1;
        return;
      }
      default:
    }
    this.#fail(page, 'the kind of a value is impossible');
  }

  /** A small page inside a value: the values of one key, stored as keys. */
  #innerPage(view: DataView, bytes: Buffer, at: number, size: number, page: number): number {
    const fault = 'a list of values is impossible';
    if (size < PAGE_HEADER_BYTES) this.#fail(page, fault);
    if (view.getUint16(at + 18, true) !== (pageFlag.leaf | pageFlag.inside))
      this.#fail(page, fault);
    const layout = this.#inner;
    if (layout.read(view, at, size, false, 0) !== null) this.#fail(page, fault);
    if (layout.nodes === 0 || layout.flags !== 0) this.#fail(page, fault);
    let [from, length] = [0, 0];
    for (let index = 0; index < layout.nodes; index += 1) {
      const node = nodeAt(view, at, index);
      const key = node + NODE_HEADER_BYTES;
      const keySize = keyBytes(view, node);
      if (valueBytes(view, node) !== 0) this.#fail(page, fault);
      if (index > 0 && compareKeys(bytes, from, length, bytes, key, keySize, false) >= 0) {
        this.#fail(page, 'the values of a key are not in ascending order');
      }
      [from, length] = [key, keySize];
    }
    return layout.nodes;
  }

  /** Separate pages for one value; returns the first. */
  #largeValue(view: DataView, at: number, size: number, owner: number): number {
    const first = whole(view, at);
    const pages = whole(view, at + 16);
    if (PAGE_HEADER_BYTES + size > pages * this.#pageBytes) {
      this.#fail(owner, 'a value is larger than the pages that it has');
    }
    this.#take(first, pages, owner);
    const length = this.#reader.readBytes(
      this.#headerBytes,
      first * this.#pageBytes,
      PAGE_HEADER_BYTES,
    );
    const header = this.#header;
    if (length < PAGE_HEADER_BYTES) this.#fail(first, 'it lies behind the end of the file');
    if (whole(header, 0) !== first) this.#fail(first, 'it has the number of another page');
    if (whole(header, 8) > this.#snapshot.transaction) {
      this.#fail(first, 'it is of a transaction that has not been');
    }
    if (header.getUint16(18, true) !== pageFlag.large || header.getUint32(20, true) !== pages) {
      this.#fail(first, 'it is not what its value says');
    }
    return first;
  }

  /** A list of free pages that is stored on separate pages. */
  *#largeFreeList(
    first: number,
    size: number,
    owner: number,
    depth: number,
    budget: Budget,
  ): Generator<void, void, void> {
    const { bytes, view } = this.#reader.window(depth + 1);
    this.#reader.window(depth + 1).hold(0, 0);
    const start = first * this.#pageBytes + PAGE_HEADER_BYTES;
    const scan = new FreeIds(size, (page, pages) => this.#take(page, pages, owner, true));
    for (let from = 0; from < size && !scan.done; ) {
      const length = Math.min(bytes.length, size - from) & ~(ID_BYTES - 1);
      if (length === 0) break;
      if (this.#reader.readBytes(bytes, start + from, length) < length) {
        this.#fail(first, 'it lies behind the end of the file');
      }
      const fault = scan.add(view, 0, length);
      if (fault !== null) this.#fail(owner, fault);
      this.#reader.steps += (length / ID_BYTES) * ID_STEPS;
      from += length;
      this.#account(budget);
      if (budget.isSpent) yield;
    }
    const fault = scan.end();
    if (fault !== null) this.#fail(owner, fault);
  }

  #freePages(view: DataView, at: number, size: number, owner: number): void {
    const scan = new FreeIds(size, (page, pages) => this.#take(page, pages, owner, true));
    const fault = scan.add(view, at, size) ?? scan.end();
    if (fault !== null) this.#fail(owner, fault);
    this.#reader.steps += (size / ID_BYTES) * ID_STEPS;
  }

  /** Marks pages as accounted for; each may be marked once. Free pages may lie beyond the end of the file. */
  #take(first: number, pages: number, owner: number, isFree = false): void {
    const last = first + pages - 1;
    if (!(first >= META_PAGES && pages >= 1 && last <= this.#snapshot.lastPage)) {
      this.#fail(owner, 'it leads to a page that does not exist');
    }
    if (!isFree && last >= this.#pages) this.#fail(first, 'it lies behind the end of the file');
    const end = Math.min(last, this.#pages - 1);
    for (let page = first; page <= end; page += 1) {
      const bit = 1 << (page & 7);
      const byte = this.#taken[page >> 3] ?? 0;
      if ((byte & bit) !== 0) {
        this.#fail(page, isFree ? 'it is free and in use, or free twice' : 'it is used twice');
      }
      this.#taken[page >> 3] = byte | bit;
    }
    this.#reader.steps += pages;
  }

  #level(depth: number): Level {
    this.#levels[depth] ??= {
      page: 0,
      at: 0,
      nodes: 0,
      next: 0,
      low: { bytes: null, from: 0, length: 0 },
      high: { bytes: null, from: 0, length: 0 },
    };
    return this.#levels[depth];
  }

  #account(budget: Budget): void {
    budget.spend(this.#reader.steps);
    this.#reader.steps = 0;
  }

  #fail(page: number, message: string): never {
    throw new PageFault(Number.isSafeInteger(page) ? page : this.#snapshot.page, message);
  }
}
