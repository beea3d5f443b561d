import { readFileSync, readSync } from 'node:fs';
import {
  DATA_VERSION,
  MAGIC,
  META_PAGES,
  PAGE_HEADER_BYTES,
  pageFlag,
  treeFlag,
  treeRecord,
  type TreeRecord,
  whole,
} from './page-layout.ts';
import { PageFault } from './page-reader.ts';
import { orNull } from '../../kernel/parse.ts';

const MIN_PAGE_BYTES = 512;
const MAX_PAGE_BYTES = 65_536;
const META_BYTES = 144;
/** A flag of lmdb-js: the transaction may not be on the disk yet. */
const NOT_YET_FLUSHED = 0x1000;
const BOOT_ID = '/proc/sys/kernel/random/boot_id';

/** The fault of a meta page without LMDB's signature. */
export const NOT_LMDB = 'it is not a meta page of LMDB';

/** A state of the file, as described by one of the meta pages. */
export interface Snapshot {
  readonly page: number;
  readonly transaction: number;
  readonly pageBytes: number;
  readonly lastPage: number;
  readonly free: TreeRecord;
  readonly main: TreeRecord;
  /** The boot id of the system when it was written. */
  readonly boot: string;
}

export interface Snapshots {
  readonly newest: Snapshot;
  /**
   * The snapshots with which LMDB may begin. There are several if it is unknown whether the system was
   * restarted.
   */
  readonly candidates: readonly Snapshot[];
}

/**
 * Reads the meta pages. lmdb-js keeps a third one in the middle of the first: the last that is known to be on
 * the disk. It returns to that one if the system was restarted.
 *
 * @returns null for a file that is still empty
 * @throws PageFault for something that LMDB cannot have written
 */
export function readSnapshots(fd: number): Snapshots | null {
  const bytes = Buffer.alloc(2 * MAX_PAGE_BYTES);
  const length = readSync(fd, bytes, 0, bytes.length, 0);
  if (length === 0) return null;
  if (length < META_BYTES + PAGE_HEADER_BYTES) throw new PageFault(0, 'the file ends in it');
  const view = new DataView(bytes.buffer, bytes.byteOffset, length);
  const first = metaPage(view, 0, 0);
  const { pageBytes } = first;
  if (length < META_PAGES * pageBytes) throw new PageFault(1, 'the file ends in it');
  const second = metaPage(view, 1, pageBytes);
  if (second.pageBytes !== pageBytes) throw new PageFault(1, 'its size of a page is another');
  const newest = first.transaction >= second.transaction ? first : second;
  const older = newest === first ? second : first;
  if (newest.transaction % META_PAGES !== newest.page) {
    throw new PageFault(newest.page, 'its transaction belongs on the other meta page');
  }
  // A copy of the file begins with only one of them.
  if (older.transaction > 0 && newest.transaction - older.transaction > 1) {
    throw new PageFault(newest.page, 'its transaction does not follow that of the other meta page');
  }
  const flushed = flushedMeta(view, pageBytes);
  if (flushed !== null && flushed.transaction > newest.transaction) {
    throw new PageFault(0, 'what is on the disk is said to be newer than the newest');
  }
  return { newest, candidates: candidates(first, second, flushed) };
}

function metaPage(view: DataView, page: number, at: number): Snapshot {
  const meta = at + PAGE_HEADER_BYTES;
  if (view.getUint32(meta, true) !== MAGIC) throw new PageFault(page, NOT_LMDB);
  if ((view.getUint16(at + 18, true) & pageFlag.meta) === 0) {
    throw new PageFault(page, 'it is not a meta page');
  }
  if ((view.getUint32(meta + 4, true) & 0xffff) !== DATA_VERSION) {
    throw new PageFault(page, 'it is of another version of LMDB');
  }
  return snapshotAt(view, page, meta);
}

function flushedMeta(view: DataView, pageBytes: number): Snapshot | null {
  const meta = pageBytes / 2 + PAGE_HEADER_BYTES;
  if (whole(view, meta + 128) === 0) return null;
  const snapshot = snapshotAt(view, 0, meta);
  if (snapshot.pageBytes !== pageBytes) throw new PageFault(0, 'its size of a page is another');
  return snapshot;
}

function snapshotAt(view: DataView, page: number, meta: number): Snapshot {
  const pageBytes = view.getUint32(meta + 24, true);
  const isPower = Number.isInteger(Math.log2(pageBytes));
  if (!isPower || pageBytes < MIN_PAGE_BYTES || pageBytes > MAX_PAGE_BYTES) {
    throw new PageFault(page, 'its size of a page is impossible');
  }
  const free = treeRecord(view, meta + 24);
  if ((free.flags & 0xff) !== treeFlag.numberKeys || (free.flags & 0x2000) !== 0) {
    throw new PageFault(page, 'the kind of the free list is impossible');
  }
  return {
    page,
    transaction: whole(view, meta + 128),
    pageBytes,
    lastPage: whole(view, meta + 120),
    free,
    main: treeRecord(view, meta + 72),
    boot: `${view.getUint32(meta + 140, true)}:${view.getUint32(meta + 136, true)}`,
  };
}

/** lmdb-js chooses like this if it is the first to open the file. */
function candidates(first: Snapshot, second: Snapshot, flushed: Snapshot | null): Snapshot[] {
  const newest = first.transaction >= second.transaction ? first : second;
  const boot = bootId();
  const later = (a: Snapshot, b: Snapshot | null): Snapshot => {
    if (b === null || b.transaction === 0) return a;
    const latest = a.transaction >= b.transaction ? a : b;
    if (latest.boot === boot || (latest.free.flags & NOT_YET_FLUSHED) === 0) return latest;
    return a.transaction > b.transaction ? b : a;
  };
  const begun = later(later(first, second), flushed);
  if (begun.transaction === newest.transaction) return [newest];
  return boot === null ? [newest, begun] : [begun];
}

/** Like lmdb-js: the first group of digits. null if it cannot be known here. */
function bootId(): string | null {
  const id = orNull(() => readFileSync(BOOT_ID, 'utf8'));
  return id === null ? null : `0:${Number.parseInt(id, 16)}`;
}
