import { Readable } from 'node:stream';
import type { Clock } from '../kernel/clock.ts';
import { HubgateError } from '../kernel/error.ts';
import { HttpError } from '../http/errors.ts';

/** Bytes that have come and nobody has taken yet, beside those that the connection holds. */
const MAX_BUFFERED_BYTES = 64 * 1024;

/** Bytes of small chunks that are handed on together. */
const GATHERED_BYTES = 16 * 1024;

export interface SilenceLimit {
  /** Longest time in milliseconds without a byte while somebody waits for one. */
  readonly limitMs: number;
  readonly clock: Clock;
}

/**
 * The body of a request as the client sends it. While it is read the client must not fall silent:
 * then it ends with an HttpError 408. Time in which nobody wants more of it does not count.
 */
export class ClientBody extends Readable {
  readonly #source: Readable;
  readonly #silence: SilenceLimit;
  readonly #onSilent: () => void;
  #isAttached = false;
  #isWanted = false;
  /** When the client was last heard, or first waited for. */
  #since = 0;
  #cancel: (() => void) | null = null;
  /** A chunk has been handed on in this turn: those that follow in it are gathered. */
  #isGathering = false;
  #gathered: Buffer[] = [];
  #gatheredBytes = 0;

  /** `onSilent` is told before the error is. */
  constructor(source: Readable, silence: SilenceLimit, onSilent: () => void) {
    super({ highWaterMark: MAX_BUFFERED_BYTES });
    this.#source = source;
    this.#silence = silence;
    this.#onSilent = onSilent;
    // Nobody may be listening when the answer has begun.
    this.on('error', () => {});
  }

  override _read(): void {
    if (!this.#isAttached) this.#attach();
    if (this.destroyed) return;
    this.#isWanted = true;
    this.#since = this.#silence.clock.monotonic();
    if (this.#cancel === null) this.#checkAfter(this.#silence.limitMs);
    this.#source.resume();
  }

  override _destroy(error: Error | null, done: (error?: Error | null) => void): void {
    this.#stopChecking();
    this.#source.off('data', this.#onData);
    this.#gathered = [];
    // What is not wanted is read and dropped, so that the connection can go on.
    if (this.#isAttached) this.#source.resume();
    done(error);
  }

  #attach(): void {
    this.#isAttached = true;
    this.#source.on('error', (error) => this.destroy(error));
    this.#source.on('close', this.#onClose);
    if (this.#source.destroyed) {
      this.#onClose();
      return;
    }
    this.#source.on('data', this.#onData);
    this.#source.on('end', () => {
      this.#stopChecking();
      this.#handOn();
      this.push(null);
    });
  }

  #checkAfter(delayMs: number): void {
    this.#cancel = this.#silence.clock.after(delayMs, () => this.#check());
  }

  #stopChecking(): void {
    this.#cancel?.();
    this.#cancel = null;
  }

  #check(): void {
    this.#cancel = null;
    if (!this.#isWanted) return;
    const { clock, limitMs } = this.#silence;
    const leftMs = this.#since + limitMs - clock.monotonic();
    if (leftMs > 0) {
      this.#checkAfter(leftMs);
      return;
    }
    this.#onSilent();
    this.destroy(new HttpError(408, `the client was silent for ${limitMs} ms`));
  }

  readonly #onData = (chunk: Buffer): void => {
    this.#isWanted = false;
    if (!this.#isGathering) {
      this.#isGathering = true;
      // Node runs what is due in the next tick between the chunks of one packet.
      setImmediate(this.#onTurn);
      if (!this.push(chunk)) this.#source.pause();
      return;
    }
    // A client may send thousands of chunks in one packet, each of which would be a write elsewhere.
    this.#gathered.push(chunk);
    this.#gatheredBytes += chunk.length;
    if (this.#gatheredBytes >= GATHERED_BYTES) this.#handOn();
  };

  readonly #onTurn = (): void => {
    this.#isGathering = false;
    this.#handOn();
  };

  #handOn(): void {
    const [first, ...more] = this.#gathered;
    if (first === undefined || this.destroyed) return;
    const bytes = more.length === 0 ? first : Buffer.concat(this.#gathered, this.#gatheredBytes);
    this.#gathered = [];
    this.#gatheredBytes = 0;
    if (!this.push(bytes)) this.#source.pause();
  }

  readonly #onClose = (): void => {
    if (this.#source.readableEnded || this.destroyed) return;
    const left = new HubgateError('client-left', 'The client left in the middle of its request');
    this.destroy(this.#source.errored ?? left);
  };
}
