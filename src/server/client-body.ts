// HTTP clients destroy the bodies that they are given, which must not close the connection of the client. So
// an upstream reads from a stream of its own. The stream is created when it is first read, and the next
// attempt gets everything that the previous one did not read. A client that sends nothing, or an upstream
// that reads nothing, is detected here.
//
// The pieces of an HTTP/2 body are views of the memory into which Node has read many frames. They are copied, and
// that memory is freed at the end of the turn: http/body-memory.ts.

import { Readable } from 'node:stream';
import type { BodyLease, LeasedBody, WaitLimit } from '../http/exchange.ts';
import { PiecesOfTurn } from '../http/small-pieces.ts';
import { HubgateError } from '../kernel/error.ts';

/**
 * Bytes that have arrived and that the reader has not read yet, in addition to those in the connection's
 * buffers.
 */
const MAX_BUFFERED_BYTES = 64 * 1024;

/**
 * The body of a request for one reader. The reader may destroy it without closing the client's connection.
 * Neither the client nor the reader can let the other wait for too long.
 */
export class ClientBody extends Readable implements LeasedBody {
  consumed = false;
  readonly #source: Readable;
  readonly #pieces: PiecesOfTurn;
  readonly #loan: BodyLease | null;
  readonly #silence: WaitWatch | null;
  readonly #stall: WaitWatch | null;
  #isAttached = false;

  /**
   * @param isView its pieces are views of what an HTTP/2 session has read, and nothing else reads the source
   * @param silence how long the client may send nothing while the reader wants more
   * @param loan null for the last reader: what it leaves is read and discarded
   */
  constructor(
    source: Readable,
    isView: boolean,
    silence: WaitLimit | null,
    loan: BodyLease | null,
  ) {
    super({ highWaterMark: MAX_BUFFERED_BYTES });
    this.#source = source;
    // A client may send thousands of chunks in one packet. Otherwise, each would be a write of its own to the
    // upstream.
    this.#pieces = new PiecesOfTurn(isView, (bytes) => this.#handOn(bytes));
    this.#loan = loan;
    const stall = loan?.stall ?? null;
    const end = (error: Error): void => void this.destroy(error);
    this.#silence = silence === null ? null : new WaitWatch(silence, end);
    this.#stall = stall === null ? null : new WaitWatch(stall, end);
    // Nothing may be listening any more once the response has begun.
    this.on('error', ignore);
  }

  override _read(): void {
    if (!this.#isAttached && !this.#attach()) return;
    this.#stall?.end();
    this.#silence?.begin();
    this.#source.resume();
  }

  override _destroy(error: Error | null, done: (error?: Error | null) => void): void {
    this.#silence?.close();
    this.#stall?.close();
    const source = this.#source;
    source.off('data', this.#onData).off('end', this.#onEnd).off('close', this.#onClose);
    if (this.#isAttached && !source.readableEnded) {
      // What no reader wants is read and discarded, so that the connection can continue.
      if (this.#loan === null) source.resume();
      else source.pause();
    }
    done(error);
  }

  /** Returns false if nothing more will arrive. */
  #attach(): boolean {
    this.#isAttached = true;
    const source = this.#source;
    // Never removed: an error that the source emits when the client leaves must not end the process.
    if (!source.listeners('error').includes(ignore)) source.on('error', ignore);
    if (source.readableEnded) {
      this.#onEnd();
      return false;
    }
    if (source.destroyed) {
      this.#onClose();
      return false;
    }
    source.on('data', this.#onData).on('end', this.#onEnd).on('close', this.#onClose);
    this.#loan?.onWanted();
    return true;
  }

  readonly #onData = (chunk: Buffer): void => {
    this.consumed = true;
    this.#silence?.end();
    this.#pieces.add(chunk);
  };

  readonly #onEnd = (): void => {
    this.#silence?.end();
    this.#pieces.flush();
    this.push(null);
  };

  #handOn(bytes: Buffer): void {
    if (this.destroyed || this.push(bytes)) return;
    this.#source.pause();
    this.#stall?.begin();
  }

  readonly #onClose = (): void => {
    if (this.#source.readableEnded) return;
    const left = new HubgateError(
      'client-left',
      'The client disconnected in the middle of its request',
    );
    this.destroy(this.#source.errored ?? left);
  };
}

function ignore(): void {}

/**
 * Measures waits that begin and end with every piece of a body. There is one timer, whose deadline is checked
 * when it fires, so that a piece does not set a timer.
 */
export class WaitWatch {
  readonly #limit: WaitLimit;
  readonly #end: (error: Error) => void;
  #isWaiting = false;
  #since = 0;
  #cancel: (() => void) | null = null;

  /** `end` is called with the error that `limit` creates when a wait was too long. */
  constructor(limit: WaitLimit, end: (error: Error) => void) {
    this.#limit = limit;
    this.#end = end;
  }

  begin(): void {
    this.#isWaiting = true;
    this.#since = this.#limit.clock.monotonic();
    if (this.#cancel === null) this.#lookAfter(this.#limit.limitMs);
  }

  end(): void {
    this.#isWaiting = false;
  }

  /** Cancels the timer. */
  close(): void {
    this.#isWaiting = false;
    this.#cancel?.();
    this.#cancel = null;
  }

  #lookAfter(delayMs: number): void {
    this.#cancel = this.#limit.clock.after(delayMs, () => this.#look());
  }

  #look(): void {
    this.#cancel = null;
    if (!this.#isWaiting) return;
    const { clock, limitMs, over } = this.#limit;
    const leftMs = this.#since + limitMs - clock.monotonic();
    if (leftMs > 0) this.#lookAfter(leftMs);
    else this.#end(over());
  }
}
