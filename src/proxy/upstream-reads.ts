import type { OnReadOpts, Socket } from 'node:net';
import { bufferPool } from '../http/buffer-pool.ts';

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

interface UpstreamSocketOptions {
  readonly onread: OnReadOpts;
  readonly highWaterMark: undefined;
  readonly readableHighWaterMark: number;
  readonly writableHighWaterMark: number;
}

/**
 * Reads from upstreams. All connections read into the same memory, from which each read is copied at once into a
 * buffer of the pool.
 */
class UpstreamReads {
  readonly #readBuffer = Buffer.allocUnsafeSlow(READ_BYTES);
  readonly #smallReadBuffer = this.#readBuffer.subarray(0, NARROW_READ_BYTES);
  #waiting = 0;
  #bodies = 0;
  /** Whether the connection that asks for a buffer has just read. */
  #hasRead = false;

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
  readonly socketOptions = this.#optionsFor(
    readBy((bytes) => this.take(this.#readBuffer, 0, bytes)),
  );

  /**
   * Options of `net.connect` for a socket whose data a function reads out of the shared memory.
   *
   * @param read gets the number of bytes, and the memory, which the next read of any connection overwrites
   */
  into(read: (bytes: number, readBuffer: Buffer) => void): UpstreamSocketOptions {
    return this.#optionsFor((bytes) => {
      this.#hasRead = true;
      read(bytes, this.#readBuffer);
      return true;
    });
  }

  #optionsFor(callback: OnReadOpts['callback']): UpstreamSocketOptions {
    return {
      onread: {
        // Called when a connection begins, and after each read.
        buffer: () => this.#nextReadBuffer(),
        callback,
      },
      // Otherwise it would be the same for both.
      highWaterMark: undefined,
      readableHighWaterMark: CONNECTION_BUFFER_BYTES,
      writableHighWaterMark: WRITE_BUFFER_BYTES,
    };
  }

  /** Copies a part of what was read. */
  take(readBuffer: Buffer, start: number, end: number): Buffer {
    this.#hasRead = true;
    return bufferPool.copy(readBuffer, start, end);
  }

  /**
   * The first read of a connection is narrow, because connections that begin at the same time do not know of
   * each other yet.
   */
  #nextReadBuffer(): Buffer {
    const isFirst = !this.#hasRead;
    this.#hasRead = false;
    return isFirst || this.isNarrow ? this.#smallReadBuffer : this.#readBuffer;
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

/** A piece of a read with fewer bytes is joined to the one before. */
const LEAST_SEPARATE_BYTES = 1024;

/**
 * Passes on the parts of a body that one read contains. A part of a few bytes would cost hundreds of times its size
 * on its way, so it is moved next to the part before it, within the memory of the read.
 */
export class PiecesOfRead {
  readonly #bytes: Buffer;
  readonly #pass: (piece: Buffer) => void;
  #start = 0;
  #end = 0;

  /** @param bytes a copy of the read that nobody else uses */
  constructor(bytes: Buffer, pass: (piece: Buffer) => void) {
    this.#bytes = bytes;
    this.#pass = pass;
  }

  /** Adds a view of the read that is behind all earlier ones. */
  readonly add = (piece: Buffer): void => {
    const at = piece.byteOffset - this.#bytes.byteOffset;
    if (piece.length >= LEAST_SEPARATE_BYTES || this.#start === this.#end) {
      this.flush();
      this.#start = at;
      this.#end = at;
    }
    if (at !== this.#end) this.#bytes.copyWithin(this.#end, at, at + piece.length);
    this.#end += piece.length;
  };

  /** Passes on what is left. */
  flush(): void {
    const [start, end] = [this.#start, this.#end];
    this.#start = end;
    if (start < end) this.#pass(this.#bytes.subarray(start, end));
  }
}
