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

/** What a reusable buffer contains. */
interface Read {
  readonly bytes: number;
  /** Parts of a response in it that the parser has delivered and that have not been sent. */
  unsent: number;
  /** The parser has delivered the last byte. */
  isParsed: boolean;
}

/** Between the bytes of two chunks, without extensions, as far as it has arrived; or after the last chunk. */
const FRAMING = /^\r(?:\n(?:[0-9A-Fa-f]{0,8}(?:\r\n?)?|0\r\n\r\n?))?$/;
const MAX_FRAMING_BYTES = 12;

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
   * Declares a chunk that a parser has found in a read. A response of unknown length has several chunks in one
   * read, whose buffer is reused when all of them have been sent by {@link pass}.
   */
  delivered(chunk: Buffer): void {
    const read = this.#reads.get(chunk.buffer);
    if (read === undefined) return;
    read.unsent += 1;
    read.isParsed = endOf(chunk) === read.bytes;
  }

  /**
   * Declares that the parser has not been paused since it delivered a chunk, so it also parses what follows
   * the chunk. Nothing of the response does if only the framing of the next chunk follows (RFC 9112 §7.1).
   */
  continued(chunk: Buffer): void {
    const { buffer } = chunk;
    const read = this.#reads.get(buffer);
    if (read === undefined || read.isParsed || read.bytes - endOf(chunk) > MAX_FRAMING_BYTES)
      return;
    const rest = Buffer.from(buffer, endOf(chunk), read.bytes - endOf(chunk));
    if (!FRAMING.test(rest.toString('latin1'))) return;
    read.isParsed = true;
    if (read.unsent === 0) this.#keep(Buffer.from(buffer));
  }

  /**
   * Writes a chunk of a response to `body`. If the chunk is a whole large read, or the last delivered part of
   * one that has not been sent, the buffer is reused when it has been sent, unless the body may keep a part of
   * it.
   *
   * @param taken called when the body has accepted it, or has failed
   */
  pass(chunk: Buffer, body: Writable, taken: (error?: Error | null) => void): void {
    const read = this.#reads.get(chunk.buffer);
    if (read === undefined || !givesBack(body)) {
      body.write(chunk, taken);
      return;
    }
    const isWhole = read.bytes === chunk.length;
    body.write(chunk, (error) => {
      taken(error);
      if (!hasSent(body, error)) return;
      read.unsent -= 1;
      if (isWhole || (read.isParsed && read.unsent === 0)) this.#keep(Buffer.from(chunk.buffer));
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
    this.#reads.set(filled.buffer, { bytes, unsent: 0, isParsed: false });
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

function endOf({ byteOffset, length }: Buffer): number {
  return byteOffset + length;
}

/** Node calls it as a method of the socket that has read. */
function readBy(copy: (bytes: number) => Buffer): OnReadOpts['callback'] {
  return function (this: unknown, bytes) {
    return (this as Socket).push(copy(bytes));
  };
}
