import type { OnReadOpts, Socket } from 'node:net';
import type { Writable } from 'node:stream';
import { givesBack } from '../http/writable-stream.ts';

/**
 * Bytes that one read of a connection to an upstream brings at most; Node's own 64 KiB cost a sixth more of
 * a download's CPU.
 */
export const READ_BYTES = 128 * 1024;
/** The same while many clients take their responses slowly, each of which holds two or three reads here. */
export const NARROW_READ_BYTES = 32 * 1024;
/**
 * Bodies on their way, from which on reads are narrow: whether its client is slow shows only when the system
 * takes no more for it, and then as much is held here as was read.
 */
export const MAX_WIDE_BODIES = 64;
/** Bytes of all bodies that wait to be taken, from which on reads are narrow. */
export const MAX_WIDE_WAITING_BYTES = 8 * 1024 * 1024;
/** Bytes that a connection to an upstream keeps for whoever has paused it, beside one read. */
const CONNECTION_BUFFER_BYTES = 16 * 1024;
/** Bytes that wait to be written to a connection to an upstream before the client of the body is held. */
const WRITE_BUFFER_BYTES = 128 * 1024;

/** Buffers of each of the two sizes that wait to be filled again; together at most 6 MiB. */
const MAX_SPARE_BYTES = 3 * 1024 * 1024;

/** From here on a read is worth a buffer that can be used again, however little of it is filled. */
const LEAST_REUSED_BYTES = NARROW_READ_BYTES / 4;

interface UpstreamSocketOptions {
  readonly onread: OnReadOpts;
  readonly highWaterMark: undefined;
  readonly readableHighWaterMark: number;
  readonly writableHighWaterMark: number;
}

/**
 * What is read from upstreams. All connections read into one place, from which each read is copied
 * at once: a small one to where small buffers lie together, a large one to a buffer that is filled
 * again when its bytes have left. A buffer for each read, which Node makes by itself, is memory
 * outside the heap that only the collector gives back: a download made it run every 32 MB.
 */
class UpstreamReads {
  readonly #landing = Buffer.allocUnsafeSlow(READ_BYTES);
  readonly #narrowLanding = this.#landing.subarray(0, NARROW_READ_BYTES);
  readonly #spare = new Map<number, Buffer[]>([
    [READ_BYTES, []],
    [NARROW_READ_BYTES, []],
  ]);
  /** Bytes with which those that are used again were filled last. */
  readonly #filled = new WeakMap<ArrayBufferLike, number>();
  #made = 0;
  #waiting = 0;
  #bodies = 0;
  /** Whether the connection that asks where to read has just read. */
  #hasRead = false;

  /** Buffers that had to be made. */
  get made(): number {
    return this.#made;
  }

  /** Bytes of all bodies that wait to be taken. */
  get waiting(): number {
    return this.#waiting;
  }

  /** Whether so many bodies are on their way, or so much of them waits, that each is given little. */
  get isNarrow(): boolean {
    return this.#bodies > MAX_WIDE_BODIES || this.#waiting > MAX_WIDE_WAITING_BYTES;
  }

  /** Counts bytes that wait to be taken, or, below 0, that do so no more. */
  wait(bytes: number): void {
    this.#waiting += bytes;
  }

  /** Counts a body that is on its way; returns what ends it. */
  begin(): () => void {
    this.#bodies += 1;
    return () => {
      this.#bodies -= 1;
    };
  }

  /** How a socket is told to read here: options of `net.connect`. */
  readonly socketOptions: UpstreamSocketOptions = {
    onread: {
      // Asked for when a connection begins, and after each read.
      buffer: () => this.#nextLanding(),
      callback: readBy((bytes) => this.#copy(bytes)),
    },
    // Else it would be the same for both.
    highWaterMark: undefined,
    readableHighWaterMark: CONNECTION_BUFFER_BYTES,
    writableHighWaterMark: WRITE_BUFFER_BYTES,
  };

  /**
   * Writes a chunk of a response to `body`. The buffer of one that is a whole large read is filled
   * again once it has been sent, unless the body may keep something of it.
   *
   * @param taken called when the body has taken it, or has failed
   */
  pass(chunk: Buffer, body: Writable, taken: (error?: Error | null) => void): void {
    if (this.#filled.get(chunk.buffer) !== chunk.length || !givesBack(body)) {
      body.write(chunk, taken);
      return;
    }
    body.write(chunk, (error) => {
      taken(error);
      // After a failure it is not known whether the system still reads from it.
      if (!(error instanceof Error)) this.#keep(Buffer.from(chunk.buffer));
    });
  }

  /** The first read of a connection is narrow: those that begin at once do not know of each other yet. */
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
    // What is kept for a slow client takes no more room than it needs.
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

/** Of all upstreams in this process. */
export const upstreamReads = new UpstreamReads();

/** Node calls it as a method of the socket that has read. */
function readBy(copy: (bytes: number) => Buffer): OnReadOpts['callback'] {
  return function (this: unknown, bytes) {
    return (this as Socket).push(copy(bytes));
  };
}
