import { ServerResponse } from 'node:http';
import type { OnReadOpts, Socket } from 'node:net';
import { Duplex, type Writable } from 'node:stream';

/**
 * Bytes that one read of a connection to an upstream brings at most. A client that takes a response
 * slowly holds two or three of them here (`HIGH_WATER_BYTES`); Node's own 64 KiB cost a sixth more of a download's CPU.
 */
export const READ_BYTES = 128 * 1024;

/** Buffers that wait to be filled again; together 2 MiB. */
export const MAX_SPARE_BUFFERS = 16;

/** From here on a read is worth a buffer that can be used again, however little of it is filled. */
const LARGE_READ_BYTES = READ_BYTES / 4;

/**
 * What is read from upstreams. All connections read into one place, from which each read is copied
 * at once: a small one to where small buffers lie together, a large one to a buffer that is filled
 * again when its bytes have left. A buffer for each read, which Node makes by itself, is memory
 * outside the heap that only the collector gives back: a download made it run every 32 MB.
 */
class UpstreamReads {
  readonly #landing = Buffer.allocUnsafeSlow(READ_BYTES);
  readonly #spare: Buffer[] = [];
  /** Bytes with which the large ones were filled last. */
  readonly #filled = new WeakMap<ArrayBufferLike, number>();
  #made = 0;

  /** Buffers that had to be made for large reads. */
  get made(): number {
    return this.#made;
  }

  /** How a socket is told to read here: `onread` of `net.connect`. */
  readonly onread: OnReadOpts = {
    buffer: this.#landing,
    callback: readBy((bytes) => this.#copy(bytes)),
  };

  /**
   * Writes a chunk of a response to `body`. The buffer of one that is a whole large read is filled
   * again once it has been sent, unless the body may keep something of it.
   *
   * @param taken called when the body has taken it, or has failed
   */
  pass(chunk: Buffer, body: Writable, taken: () => void): void {
    if (this.#filled.get(chunk.buffer) !== chunk.length || !givesBack(body)) {
      body.write(chunk, taken);
      return;
    }
    body.write(chunk, (error) => {
      taken();
      // After a failure it is not known whether the system still reads from it.
      if (error instanceof Error || this.#spare.length >= MAX_SPARE_BUFFERS) return;
      this.#spare.push(Buffer.from(chunk.buffer));
    });
  }

  #copy(bytes: number): Buffer {
    if (bytes < LARGE_READ_BYTES) {
      const small = Buffer.allocUnsafe(bytes);
      this.#landing.copy(small, 0, 0, bytes);
      return small;
    }
    const large = this.#spare.pop() ?? this.#make();
    this.#landing.copy(large, 0, 0, bytes);
    this.#filled.set(large.buffer, bytes);
    return bytes < large.length ? large.subarray(0, bytes) : large;
  }

  #make(): Buffer {
    this.#made += 1;
    return Buffer.allocUnsafeSlow(READ_BYTES);
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

/**
 * Whether a body has let go of a chunk when it calls back: what goes straight to the client, not
 * through anything that encodes, counts or keeps it.
 */
function givesBack(body: Writable): boolean {
  if (body instanceof ServerResponse) return body.write === ServerResponse.prototype.write;
  return 'sentHeaders' in body && body.write === Duplex.prototype.write;
}
