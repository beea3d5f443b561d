import type { OnReadOpts, Socket } from 'node:net';
import type { Writable } from 'node:stream';
import { givesBack, hasSent } from '../http/body-memory.ts';

/**
 * Most bytes of one read of a connection to an upstream; Node's own 64 KiB cost a sixth more of a download's
 * CPU time.
 */
export const READ_BYTES = 128 * 1024;
/**
 * The same while many clients read their responses slowly; each of them keeps two or three reads in memory.
 */
export const NARROW_READ_BYTES = 32 * 1024;
/**
 * Number of bodies in transit from which reads are narrow. A slow client is only detected when the system
 * accepts no more for it, and by then as much as one read is in memory.
 */
export const MAX_WIDE_BODIES = 64;
/** Waiting bytes of all bodies from which reads are narrow. */
export const MAX_WIDE_WAITING_BYTES = 8 * 1024 * 1024;
/** Bytes that a paused connection to an upstream stores, in addition to one read. */
const CONNECTION_BUFFER_BYTES = 16 * 1024;
/** Bytes that wait to be written to a connection to an upstream before the client of the body is paused. */
export const WRITE_BUFFER_BYTES = 128 * 1024;

/** Bytes of spare buffers of each of the two sizes; together at most 6 MiB. */
const MAX_SPARE_BYTES = 3 * 1024 * 1024;

/** From this size on, a read is worth a reusable buffer, however little of it is filled. */
export const LEAST_REUSED_BYTES = NARROW_READ_BYTES / 4;

/** What a reusable buffer contains. */
interface Read {
  readonly bytes: number;
  /** Parts of a response in it that have not been sent. */
  unsent: number;
  /** All parts have been passed on. */
  isPassedOn: boolean;
}

interface UpstreamSocketOptions {
  readonly onread: OnReadOpts;
  readonly highWaterMark: undefined;
  readonly readableHighWaterMark: number;
  readonly writableHighWaterMark: number;
}

/**
 * Reads from upstreams. All connections read into the same memory, from which each read is copied at once: a
 * small one into a shared pool of small buffers, a large one into a buffer that is reused when its bytes have
 * been sent. Node itself allocates a buffer for each read. That memory is outside the heap, and only the
 * garbage collector releases it: a download made it run every 32 MB.
 */
class UpstreamReads {
  readonly #landing = Buffer.allocUnsafeSlow(READ_BYTES);
  readonly #narrowLanding = this.#landing.subarray(0, NARROW_READ_BYTES);
  readonly #spare = new Map<number, Buffer[]>([
    [READ_BYTES, []],
    [NARROW_READ_BYTES, []],
  ]);
  readonly #reads = new WeakMap<ArrayBufferLike, Read>();
  #made = 0;
  #waiting = 0;
  #bodies = 0;
  /** Whether the connection that asks for a buffer has just read. */
  #hasRead = false;

  /** Number of buffers that had to be allocated. */
  get made(): number {
    return this.#made;
  }

  /** Bytes of all bodies that wait to be read. */
  get waiting(): number {
    return this.#waiting;
  }

  /** Whether so many bodies are in transit, or so much data waits, that each gets only a little. */
  get isNarrow(): boolean {
    return this.#bodies > MAX_WIDE_BODIES || this.#waiting > MAX_WIDE_WAITING_BYTES;
  }

  /** Counts bytes that begin to wait or, if negative, that have stopped waiting. */
  wait(bytes: number): void {
    this.#waiting += bytes;
  }

  /** Counts a body in transit. The returned function ends that. */
  begin(): () => void {
    this.#bodies += 1;
    return () => {
      this.#bodies -= 1;
    };
  }

  /** Options of `net.connect` for sockets whose data is copied here, and then read as of any stream. */
  readonly socketOptions = this.#optionsFor(readBy((bytes) => this.take(this.#landing, 0, bytes)));

  /**
   * Options of `net.connect` for a socket whose data a function reads out of the shared memory.
   *
   * @param read gets the number of bytes, and the memory, which the next read of any connection overwrites
   */
  into(read: (bytes: number, landing: Buffer) => void): UpstreamSocketOptions {
    return this.#optionsFor((bytes) => {
      this.#hasRead = true;
      read(bytes, this.#landing);
      return true;
    });
  }

  #optionsFor(callback: OnReadOpts['callback']): UpstreamSocketOptions {
    return {
      onread: {
        // Called when a connection begins, and after each read.
        buffer: () => this.#nextLanding(),
        callback,
      },
      // Otherwise it would be the same for both.
      highWaterMark: undefined,
      readableHighWaterMark: CONNECTION_BUFFER_BYTES,
      writableHighWaterMark: WRITE_BUFFER_BYTES,
    };
  }

  /** Copies a part of a read: a small part into shared memory, a large one into a buffer that is reused. */
  take(landing: Buffer, start: number, end: number): Buffer {
    this.#hasRead = true;
    return this.copy(landing, start, end);
  }

  /** The same for what a connection has read into other memory. */
  copy(landing: Buffer, start: number, end: number): Buffer {
    const bytes = end - start;
    if (bytes < LEAST_REUSED_BYTES) {
      const small = Buffer.allocUnsafe(bytes);
      landing.copy(small, 0, start, end);
      return small;
    }
    // Data that is kept for a slow client uses no more memory than it needs.
    const size = bytes <= NARROW_READ_BYTES ? NARROW_READ_BYTES : READ_BYTES;
    const filled = this.#spare.get(size)?.pop() ?? this.#make(size);
    landing.copy(filled, 0, start, end);
    this.#reads.set(filled.buffer, { bytes, unsent: 0, isPassedOn: false });
    return bytes < filled.length ? filled.subarray(0, bytes) : filled;
  }

  /**
   * Declares that nothing more of a copied read will be passed on. A response of unknown length has several
   * chunks in one read, whose buffer is reused when all of them have been sent by {@link pass}.
   */
  passedOn(bytes: Buffer): void {
    const read = this.#reads.get(bytes.buffer);
    if (read === undefined) return;
    read.isPassedOn = true;
    if (read.unsent === 0) this.#keep(bytes.buffer);
  }

  /**
   * Writes a chunk of a response to `body`. If the chunk is a whole large read, or the last part of one that
   * has not been sent, the buffer is reused when it has been sent, unless the body may keep a part of it.
   *
   * @param taken called when the body has accepted it, or has failed
   */
  pass(chunk: Buffer, body: Writable, taken: (error?: Error | null) => void): void {
    const read = this.#reads.get(chunk.buffer);
    if (read === undefined) {
      body.write(chunk, taken);
      return;
    }
    read.unsent += 1;
    const isWhole = read.bytes === chunk.length;
    body.write(chunk, (error) => {
      taken(error);
      if (!givesBack(body) || !hasSent(body, error)) return;
      read.unsent -= 1;
      if (isWhole || (read.isPassedOn && read.unsent === 0)) this.#keep(chunk.buffer);
    });
  }

  /**
   * The first read of a connection is narrow, because connections that begin at the same time do not know of
   * each other yet.
   */
  #nextLanding(): Buffer {
    const isFirst = !this.#hasRead;
    this.#hasRead = false;
    return isFirst || this.isNarrow ? this.#narrowLanding : this.#landing;
  }

  #make(size: number): Buffer {
    this.#made += 1;
    return Buffer.allocUnsafeSlow(size);
  }

  #keep(memory: ArrayBufferLike): void {
    this.#reads.delete(memory);
    const buffer = Buffer.from(memory);
    const spare = this.#spare.get(buffer.length);
    if (spare !== undefined && spare.length * buffer.length < MAX_SPARE_BYTES) spare.push(buffer);
  }
}

/** For all upstreams in this process. */
export const upstreamReads = new UpstreamReads();

/** Node calls it as a method of the socket that has read. */
function readBy(copy: (bytes: number) => Buffer): OnReadOpts['callback'] {
  return function (this: unknown, bytes) {
    return (this as Socket).push(copy(bytes));
  };
}
