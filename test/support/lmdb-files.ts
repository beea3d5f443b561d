import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { type Transport, NO_TAIL } from '../../src/hub/transport.ts';
import type { Update } from '../../src/hub/update.ts';
import { systemClock } from '../../src/kernel/clock.ts';
import { silentLogger } from '../../src/kernel/log.ts';
import { openLmdbTransport } from '../../src/transports/lmdb/lmdb-transport.ts';
import {
  childOf,
  keyBytes,
  nodeAt,
  treeRecord,
  type TreeRecord,
  whole,
} from '../../src/transports/lmdb/page-layout.ts';

/** A data file of LMDB in memory, with the ways to the places that a test wants to damage. */
export class LmdbFile {
  readonly bytes: Buffer;
  readonly view: DataView;
  readonly pageBytes = 4096;

  constructor(bytes: Buffer) {
    this.bytes = bytes;
    this.view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  }

  /** Where the newest meta page has its data. */
  get meta(): number {
    const [first, second] = [24, this.pageBytes + 24];
    return whole(this.view, first + 128) > whole(this.view, second + 128) ? first : second;
  }

  get free(): TreeRecord {
    return treeRecord(this.view, this.meta + 24);
  }

  /** Where the record of a database is: in the only leaf of the list of them. */
  record(name: string): number {
    const leaf = treeRecord(this.view, this.meta + 72).root * this.pageBytes;
    for (let index = 0; index < this.nodes(leaf); index += 1) {
      const node = nodeAt(this.view, leaf, index);
      const value = node + 8 + keyBytes(this.view, node);
      if (this.bytes.toString('latin1', node + 8, value).startsWith(name)) return value;
    }
    throw new Error(`no database ${name}`);
  }

  /** Where the root page of a database begins. */
  root(name: string): number {
    return treeRecord(this.view, this.record(name)).root * this.pageBytes;
  }

  /** Where the first leaf of a tree begins. */
  leaf(root: number, depth: number): number {
    let at = root;
    for (let level = 1; level < depth; level += 1) {
      at = childOf(this.view, nodeAt(this.view, at, 0)) * this.pageBytes;
    }
    return at;
  }

  firstLeaf(name: string): number {
    return this.leaf(this.root(name), treeRecord(this.view, this.record(name)).depth);
  }

  nodes(page: number): number {
    return this.view.getUint16(page + 20, true) >> 1;
  }

  node(page: number, index: number): number {
    return nodeAt(this.view, page, index);
  }

  /** The value of a node of a leaf, where it lies on the leaf. */
  value(page: number, index: number): number {
    const node = this.node(page, index);
    return node + 8 + keyBytes(this.view, node);
  }

  u16(at: number, value: number): void {
    this.view.setUint16(at, value, true);
  }

  u32(at: number, value: number): void {
    this.view.setUint32(at, value, true);
  }
}

export function historyFile(path: string): string {
  return join(path, 'history.mdb');
}

export async function patchHistory(path: string, change: (file: LmdbFile) => void): Promise<void> {
  const file = new LmdbFile(await readFile(historyFile(path)));
  change(file);
  await writeFile(historyFile(path), file.bytes);
}

export async function openHistory(path: string, size = 0): Promise<Transport> {
  const options = { path, size, maxAgeMs: 0, clock: systemClock, log: silentLogger };
  const transport = await openLmdbTransport({ ...options, durability: 'async' });
  transport.tail(NO_TAIL);
  return transport;
}

export function update(id: string, data = ''): Update {
  return { id, topics: ['topic'], data, private: false, type: null, retry: null };
}

/** Appends `count` updates, some in each transaction. */
export async function fill(
  transport: Transport,
  count: number,
  make: (index: number) => Update,
  atOnce = 100,
): Promise<void> {
  for (let from = 0; from < count; from += atOnce) {
    const length = Math.min(atOnce, count - from);
    await Promise.all(Array.from({ length }, (_, offset) => transport.append(make(from + offset))));
  }
}
