import { fstatSync, readSync } from 'node:fs';

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
