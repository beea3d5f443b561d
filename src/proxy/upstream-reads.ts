import type { OnReadOpts, Socket } from 'node:net';
import type { Writable } from 'node:stream';
import { givesBack, hasSent } from '../http/writable-stream.ts';

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
const WRITE_BUFFER_BYTES = 128 * 1024;

/** Bytes of spare buffers of each of the two sizes; together at most 6 MiB. */
const MAX_SPARE_BYTES = 3 * 1024 * 1024;

/** From this size on, a read is worth a reusable buffer, however little of it is filled. */
const LEAST_REUSED_BYTES = NARROW_READ_BYTES / 4;

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
  /** The number of bytes that each reusable buffer last contained. */
  readonly #filled = new WeakMap<ArrayBufferLike, number>();
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

  /** Options of `net.connect` for sockets that read here. */
  readonly socketOptions: UpstreamSocketOptions = {
    onread: {
      // Called when a connection begins, and after each read.
      buffer: () => this.#nextLanding(),
      callback: readBy((bytes) => this.#copy(bytes)),
    },
    // Otherwise it would be the same for both.
    highWaterMark: undefined,
    readableHighWaterMark: CONNECTION_BUFFER_BYTES,
    writableHighWaterMark: WRITE_BUFFER_BYTES,
  };

  /**
   * Writes a chunk of a response to `body`. If the chunk is a whole large read, its buffer is reused when it
   * has been sent, unless the body may keep a part of it.
   *
   * @param taken called when the body has accepted it, or has failed
   */
  pass(chunk: Buffer, body: Writable, taken: (error?: Error | null) => void): void {
    if (this.#filled.get(chunk.buffer) !== chunk.length || !givesBack(body)) {
      body.write(chunk, taken);
      return;
    }
    body.write(chunk, (error) => {
      taken(error);
      if (hasSent(body, error)) this.#keep(Buffer.from(chunk.buffer));
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

  #copy(bytes: number): Buffer {
    this.#hasRead = true;
    if (bytes < LEAST_REUSED_BYTES) {
      const small = Buffer.allocUnsafe(bytes);
      this.#landing.copy(small, 0, 0, bytes);
      return small;
    }
    // Data that is kept for a slow client uses no more memory than it needs.
    const size = bytes <= NARROW_READ_BYTES ? NARROW_READ_BYTES : READ_BYTES;
    const filled = this.#spare.get(size)?.pop() ?? this.#make(size);
    this.#landing.copy(filled, 0, 0, bytes);
    this.#filled.set(filled.buffer, bytes);
    return bytes < filled.length ? filled.subarray(0, bytes) : filled;
  }

  #make(size: number): Buffer {
    this.#made += 1;
    return Buffer.allocUnsafeSlow(size);
  }

  #keep(buffer: Buffer): void {
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
