// Node allocates memory outside of V8's heap for what it reads. If the garbage collector has to release that memory, it
// is never in the CPU's cache, its pages are mapped again and again, and V8 marks the whole heap for every 32 MB of it.
// So large pieces of bodies, in both directions, are copied into buffers that are used again when their bytes have been
// sent. What is not sent, or may be read after that, is left to the garbage collector.

import type { Writable } from 'node:stream';
import { freeMemory, givesBack, hasSent } from './body-memory.ts';

/** Sizes of buffers in bytes. A piece gets the smallest one in which it fits. */
const SIZES = [16, 32, 64, 128].map((kib) => kib * 1024);
/** Bytes of unused buffers of each size that are kept; together at most 6 MiB. */
const MAX_SPARE_BYTES = 1.5 * 1024 * 1024;
/** From this size in bytes on, a piece gets a buffer of its own. Smaller ones share Node's pool of small buffers. */
export const LEAST_POOLED_BYTES = 8 * 1024;

/** What a buffer contains. */
interface Content {
  readonly bytes: number;
  /** Parts of it that are written and have not been sent. */
  unsent: number;
  /** All parts have been written. */
  isPassedOn: boolean;
}

class BufferPool {
  readonly #spare = new Map(SIZES.map((size): [number, ArrayBufferLike[]] => [size, []]));
  readonly #contents = new WeakMap<ArrayBufferLike, Content>();
  #made = 0;

  /** Number of buffers that had to be allocated. */
  get made(): number {
    return this.#made;
  }

  /** Copies a part of the memory into which a connection has read. */
  copy(readBuffer: Buffer, start: number, end: number): Buffer {
    const copy = this.#take(end - start);
    readBuffer.copy(copy, 0, start, end);
    return copy;
  }

  /** Copies pieces that have `bytes` bytes together. */
  join(pieces: readonly Buffer[], bytes: number): Buffer {
    const copy = this.#take(bytes);
    let end = 0;
    for (const piece of pieces) end += piece.copy(copy, end);
    return copy;
  }

  #take(bytes: number): Buffer {
    if (bytes < LEAST_POOLED_BYTES) return Buffer.allocUnsafe(bytes);
    const size = SIZES.find((one) => bytes <= one);
    if (size === undefined) return Buffer.allocUnsafeSlow(bytes);
    const memory = this.#spare.get(size)?.pop() ?? this.#make(size);
    this.#contents.set(memory, { bytes, unsent: 0, isPassedOn: false });
    return Buffer.from(memory, 0, bytes);
  }

  /**
   * Declares that no further part of a copy will be written. A response of unknown length has several chunks in one
   * read, whose buffer is used again when {@link pass} has sent all of them.
   */
  passedOn({ buffer }: Buffer): void {
    const content = this.#contents.get(buffer);
    if (content === undefined) return;
    content.isPassedOn = true;
    if (content.unsent === 0) this.#keep(buffer);
  }

  /**
   * Writes a piece of a body, which nothing else may read afterwards. If the piece is a whole copy, or the last part of
   * one that has not been sent, the buffer is used again when it has been sent, unless `body` may keep a part of it.
   *
   * @param taken called when `body` has accepted the piece, or has failed
   * @returns whether `body` accepts more at the moment
   */
  pass(piece: Buffer, body: Writable, taken?: (error?: Error | null) => void): boolean {
    const { buffer } = piece;
    const content = this.#contents.get(buffer);
    if (content === undefined) return body.write(piece, taken);
    content.unsent += 1;
    const isWhole = content.bytes === piece.length;
    return body.write(piece, (error) => {
      // Before `taken`, in which the connection may end.
      const isSent = givesBack(body) && hasSent(body, error);
      taken?.(error);
      if (!isSent) return;
      content.unsent -= 1;
      if ((isWhole || content.isPassedOn) && content.unsent === 0) this.#keep(buffer);
    });
  }

  #make(size: number): ArrayBufferLike {
    this.#made += 1;
    return Buffer.allocUnsafeSlow(size).buffer;
  }

  #keep(memory: ArrayBufferLike): void {
    if (!this.#contents.delete(memory)) return;
    const spare = this.#spare.get(memory.byteLength);
    if (spare === undefined) return;
    if ((spare.length + 1) * memory.byteLength <= MAX_SPARE_BYTES) spare.push(memory);
    else if (memory instanceof ArrayBuffer) freeMemory(memory);
  }
}

/** For all bodies in this process. */
export const bufferPool = new BufferPool();
