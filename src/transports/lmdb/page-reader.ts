import { fstatSync, readSync } from 'node:fs';
import { ID_BYTES, whole } from './page-layout.ts';

/** Most bytes of one read, if the wanted pages are next to each other. */
const RUN_BYTES = 256 * 1024;
/** Cost of a system call that waits for a disk, and of copying a page, in steps. */
const CALL_STEPS = 1_500;
const PAGE_STEPS = 60;

/** Consecutive pages of the file. */
export class PageWindow {
  readonly bytes: Buffer;
  readonly view: DataView;
  #first = 0;
  #count = 0;

  constructor(bytes: number) {
    this.bytes = Buffer.alloc(bytes);
    this.view = new DataView(this.bytes.buffer, this.bytes.byteOffset, bytes);
  }

  /** Offset of a page in the window; -1 if the window does not contain it. */
  at(page: number, pageBytes: number): number {
    const index = page - this.#first;
    return index >= 0 && index < this.#count ? index * pageBytes : -1;
  }

  hold(first: number, count: number): void {
    this.#first = first;
    this.#count = count;
  }
}

/** Reads pages with few system calls and little memory: one window per level of a tree. */
export class PageReader {
  readonly pageBytes: number;
  readonly #fd: number;
  readonly #lastPage: number;
  readonly #windows: PageWindow[] = [];
  /** Cost in steps since the last time it was read. */
  steps = 0;

  constructor(fd: number, pageBytes: number, lastPage: number) {
    this.#fd = fd;
    this.pageBytes = pageBytes;
    this.#lastPage = lastPage;
    if ((lastPage + 1) * pageBytes > Number.MAX_SAFE_INTEGER) {
      throw new PageFault(0, 'its last page lies behind the end of any file');
    }
  }

  window(level: number): PageWindow {
    this.#windows[level] ??= new PageWindow(Math.max(RUN_BYTES, this.pageBytes));
    return this.#windows[level];
  }

  /** Pages that fit into a window. */
  get room(): number {
    return Math.floor(Math.max(RUN_BYTES, this.pageBytes) / this.pageBytes);
  }

  /**
   * Offset of a page in the window of a level. If necessary, it reads the page with the `run - 1` pages after
   * it.
   */
  load(level: number, page: number, run: number): number {
    const window = this.window(level);
    const at = window.at(page, this.pageBytes);
    if (at >= 0) return at;
    const pages = Math.min(run, this.room, this.#lastPage - page + 1);
    window.hold(0, 0);
    const length = this.readBytes(window.bytes, page * this.pageBytes, pages * this.pageBytes);
    if (length < this.pageBytes) throw new PageFault(page, 'it lies behind the end of the file');
    window.hold(page, Math.floor(length / this.pageBytes));
    return 0;
  }

  /** Reads into the front of a buffer; returns the number of bytes. */
  readBytes(bytes: Buffer, from: number, length: number): number {
    this.steps += CALL_STEPS + Math.ceil(length / this.pageBytes) * PAGE_STEPS;
    return readSync(this.#fd, bytes, 0, length, from);
  }

  /** Current size of the file. */
  size(): number {
    return fstatSync(this.#fd).size;
  }
}

/** A fault of a page. The message contains neither the page number nor a final period. */
export class PageFault extends Error {
  readonly page: number;

  constructor(page: number, message: string) {
    super(message);
    this.name = 'PageFault';
    this.page = page;
  }
}

/**
 * A list of free pages: its length, then page numbers. A negative number is the length of a run of pages that
 * begins with the next number, and 0 is unused.
 */
export class FreeIds {
  readonly #take: (page: number, pages: number) => void;
  readonly #size: number;
  #left = -1;
  #pages = 1;

  constructor(size: number, take: (page: number, pages: number) => void) {
    this.#size = size;
    this.#take = take;
  }

  get done(): boolean {
    return this.#left === 0;
  }

  /** @returns the fault, or null */
  add(view: DataView, at: number, length: number): string | null {
    let from = at;
    if (this.#left < 0) {
      if (length < ID_BYTES) return 'a list of free pages is too short';
      this.#left = whole(view, from);
      from += ID_BYTES;
      if (this.#left > Math.floor(this.#size / ID_BYTES) - 1) {
        return 'a list of free pages is longer than its value';
      }
    }
    for (; from < at + length && this.#left > 0; from += ID_BYTES) {
      this.#left -= 1;
      const high = view.getInt32(from + 4, true);
      const entry = high * 0x1_0000_0000 + view.getUint32(from, true);
      if (this.#pages > 1 || entry > 0) {
        if (entry <= 0) return 'a list of free pages is impossible';
        this.#take(entry, this.#pages);
        this.#pages = 1;
      } else if (entry < 0) this.#pages = -entry;
    }
    return null;
  }

  end(): string | null {
    return this.#pages > 1 ? 'a list of free pages ends in the middle' : null;
  }
}
