// HTTP clients destroy the bodies that they are given, which must not close the connection of the client. So
// an upstream reads from a stream of its own. The stream is created when it is first read, and the next
// attempt gets everything that the previous one did not read. A client that sends nothing, or an upstream
// that reads nothing, is detected here.
//
// The pieces of an HTTP/2 body are views of the memory into which Node has read many frames. They are copied, and
// that memory is freed at the end of the turn: body-memory.ts.

import { Readable, type ReadableOptions } from 'node:stream';
import type { BodyLease, LeasedBody, WaitLimit } from './exchange.ts';
import { HttpError } from './errors.ts';
import { PiecesOfTurn } from './small-pieces.ts';
import { HubgateError, ignore } from '../kernel/error.ts';

/**
 * The body of a request that comes from another stream. It reads its source once somebody reads it, and may be
 * destroyed without closing the source.
 */
export abstract class RelayedBody extends Readable {
  protected readonly source: Readable;
  protected isAttached = false;

  constructor(source: Readable, options?: ReadableOptions) {
    super(options);
    this.source = source;
    // Nothing may be listening any more once the response has begun.
    this.on('error', ignore);
  }

  /** Passes on what has arrived, or ends the body. */
  protected abstract receive(chunk: Buffer): void;

  /** Nobody reads it any longer, although the source may not have ended: discards the rest, or keeps it. */
  protected abstract leave(): void;

  /** The source has ended. */
  protected receiveEnd(): void {
    this.push(null);
  }

  override _read(): void {
    if (this.attach()) this.source.resume();
  }

  override _destroy(error: Error | null, done: (error?: Error | null) => void): void {
    const { source } = this;
    source.off('data', this.#onData).off('end', this.#onEnd).off('close', this.#onClose);
    this.leave();
    done(error);
  }

  /** Begins to listen to the source. Returns false if nothing more will arrive. */
  protected attach(): boolean {
    if (this.isAttached) return true;
    this.isAttached = true;
    const { source } = this;
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
    return true;
  }

  /** Passes bytes on. The source waits until they have been read. */
  protected relay(bytes: Buffer): boolean {
    if (this.destroyed || this.push(bytes)) return true;
    this.source.pause();
    return false;
  }

  readonly #onData = (chunk: Buffer): void => this.receive(chunk);

  readonly #onEnd = (): void => this.receiveEnd();

  readonly #onClose = (): void => {
    if (this.source.readableEnded) return;
    const left = new HubgateError(
      'client-left',
      'The client disconnected in the middle of its request',
    );
    this.destroy(this.source.errored ?? left);
  };
}

/**
 * Bytes that have arrived and that the reader has not read yet, in addition to those in the connection's
 * buffers.
 */
const MAX_BUFFERED_BYTES = 64 * 1024;

/** What the loans of one body have in common. */
export interface BodyReads {
  /** Whether one of them has received bytes. */
  haveBegun: boolean;
  /** How many have not ended. */
  open: number;
}

/**
 * The body of a request for one reader. The reader may destroy it without closing the client's connection.
 * Neither the client nor the reader can let the other wait for too long.
 */
export class ClientBody extends RelayedBody implements LeasedBody {
  consumed = false;
  readonly #pieces: PiecesOfTurn;
  readonly #loan: BodyLease | null;
  readonly #reads: BodyReads;
  readonly #silence: WaitWatch | null;
  readonly #stall: WaitWatch | null;

  /**
   * @param isView its pieces are views of what an HTTP/2 session has read, and nothing else reads the source
   * @param silence how long the client may send nothing while the reader wants more
   * @param loan null for the last reader: what it leaves is read and discarded
   * @param reads shared by all loans of a body: whoever begins to read after another has received bytes would take the
   * rest for the whole
   */
  constructor(
    source: Readable,
    isView: boolean,
    silence: WaitLimit | null,
    loan: BodyLease | null,
    reads: BodyReads = { haveBegun: false, open: 0 },
  ) {
    super(source, { highWaterMark: MAX_BUFFERED_BYTES });
    // A client may send thousands of chunks in one packet. Otherwise, each would be a write of its own to the
    // upstream.
    this.#pieces = new PiecesOfTurn(isView, (bytes) => {
      if (!this.relay(bytes)) this.#stall?.begin();
    });
    this.#loan = loan;
    this.#reads = reads;
    if (loan !== null) reads.open += 1;
    const stall = loan?.stall ?? null;
    const end = (error: Error): void => void this.destroy(error);
    this.#silence = silence === null ? null : new WaitWatch(silence, end);
    this.#stall = stall === null ? null : new WaitWatch(stall, end);
  }

  override _read(): void {
    const isFirst = !this.isAttached;
    if (isFirst && this.#reads.haveBegun) {
      this.destroy(new HttpError(502, 'another upstream has received a part of the body'));
      return;
    }
    if (!this.attach()) return;
    if (isFirst) this.#loan?.onWanted();
    this.#stall?.end();
    this.#silence?.begin();
    this.source.resume();
  }

  protected receive(chunk: Buffer): void {
    this.consumed = true;
    if (this.#loan !== null) this.#reads.haveBegun = true;
    this.#silence?.end();
    this.#pieces.add(chunk);
  }

  protected override receiveEnd(): void {
    this.#silence?.end();
    this.#pieces.flush();
    super.receiveEnd();
  }

  protected leave(): void {
    this.#silence?.close();
    this.#stall?.close();
    if (this.#loan !== null) this.#reads.open -= 1;
    const { source } = this;
    if (!this.isAttached || source.readableEnded) return;
    // What no reader wants is read and discarded, so that the connection can continue.
    // Another reader may have begun meanwhile. It waits for more, or pauses the source itself.
    if (this.#loan === null || source.listenerCount('data') > 0) source.resume();
    else source.pause();
  }
}

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
