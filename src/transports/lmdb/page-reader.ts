import { fstatSync, readSync } from 'node:fs';

/** Bytes that are read at once, at most, where pages that are wanted lie side by side. */
const RUN_BYTES = 256 * 1024;
/** What a call of the system costs where it has to wait for a drive, and a page that is copied, in steps. */
const CALL_STEPS = 1_500;
const PAGE_STEPS = 60;

/** Some pages of the file, one after the other. */
export class PageWindow {
  readonly bytes: Buffer;
  readonly view: DataView;
  #first = 0;
  #count = 0;

  constructor(bytes: number) {
    this.bytes = Buffer.alloc(bytes);
    this.view = new DataView(this.bytes.buffer, this.bytes.byteOffset, bytes);
  }

  /** Where in the window a page begins; -1 for one that is not in it. */
  at(page: number, pageBytes: number): number {
    const index = page - this.#first;
    return index >= 0 && index < this.#count ? index * pageBytes : -1;
  }

  hold(first: number, count: number): void {
    this.#first = first;
    this.#count = count;
  }
}

/** Reads pages with as few calls and as little memory as it can: one window for each level of a tree. */
export class PageReader {
  readonly pageBytes: number;
  readonly #fd: number;
  readonly #lastPage: number;
  readonly #windows: PageWindow[] = [];
  /** What it has cost, in steps, since somebody has last looked. */
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

  /** Pages that a window has room for. */
  get room(): number {
    return Math.floor(Math.max(RUN_BYTES, this.pageBytes) / this.pageBytes);
  }

  /** Where a page begins in the window of a level; reads it with the `run - 1` pages behind it if it must. */
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

  /** Reads from anywhere into the front of a buffer; says how much there was. */
  readBytes(bytes: Buffer, from: number, length: number): number {
    this.steps += CALL_STEPS + Math.ceil(length / this.pageBytes) * PAGE_STEPS;
    return readSync(this.#fd, bytes, 0, length, from);
  }

  /** Bytes of the file, now. */
  size(): number {
    return fstatSync(this.#fd).size;
  }
}

/** What is wrong with a page. The message has no page in it, and no end. */
export class PageFault extends Error {
  readonly page: number;

  constructor(page: number, message: string) {
    super(message);
    this.name = 'PageFault';
    this.page = page;
  }
}
