import { Writable } from 'node:stream';
import type { HeaderList } from '../http/header-list.ts';
import type { Clock } from '../kernel/clock.ts';

/** Bytes of all arriving bodies in this process that are held completely. */
const MAX_ARRIVING_BYTES = 64 * 1024 * 1024;
/** Bytes of a body that is not held completely, between the app and its readers. */
const WINDOW_BYTES = 256 * 1024;
/** Bytes that are written to a client at a time. */
const PIECE_BYTES = 64 * 1024;
/** How long a client may read nothing of an available body, in milliseconds. */
const MAX_STALL_MS = 120_000;
/** The same if other readers wait for it. */
const MAX_STALL_OF_MANY_MS = 10_000;

/** The memory of all arriving bodies. */
export class ArrivingBytes {
  #bytes = 0;

  take(bytes: number): boolean {
    if (this.#bytes + bytes > MAX_ARRIVING_BYTES) return false;
    this.#bytes += bytes;
    return true;
  }

  give(bytes: number): void {
    this.#bytes -= bytes;
  }
}

/** Ends one reader. */
interface BodyReader {
  /** The next chunk. */
  at: number;
  wake(): void;
  cut(): void;
}

/**
 * A body on its way from the app to all its readers. Up to a limit it is held completely and arrives as fast
 * as the app sends: a slow client delays nobody, and a client that leaves spoils nothing. Beyond the limit it
 * flows at the speed of its readers and is not stored.
 */
export class ArrivingBody {
  /** Receives the bytes of the app. */
  readonly input: Writable;
  readonly #maxBytes: number;
  readonly #memory: ArrivingBytes;
  readonly #clock: Clock;
  readonly #told: { complete(body: Buffer): void; failed(): void; tooLarge(): void };
  #chunks: Buffer[] = [];
  /** Chunks at the front that have been released. */
  #gone = 0;
  #bytes = 0;
  #held = 0;
  #state: 'open' | 'complete' | 'failed' = 'open';
  #isWhole = true;
  readonly #readers = new Set<BodyReader>();
  #goOn: (() => void) | null = null;
  #stopStall: () => void = () => {};
  /** Resolves when it is complete, or when nobody receives more of it. */
  readonly settled: Promise<void>;
  #tellSettled: () => void = () => {};
  /** Trailers of a complete response; empty before. */
  trailers: HeaderList | null = null;

  /** @param maxBytes limit for a body that is held completely */
  constructor(
    maxBytes: number,
    memory: ArrivingBytes,
    clock: Clock,
    told: { complete(body: Buffer): void; failed(): void; tooLarge(): void },
  ) {
    this.#maxBytes = maxBytes;
    this.#memory = memory;
    this.#clock = clock;
    this.#told = told;
    this.settled = new Promise((resolve) => {
      this.#tellSettled = resolve;
    });
    this.input = new Writable({
      write: (chunk: Buffer, _encoding, done) => this.#take(chunk, done),
      final: (done) => {
        this.#complete();
        done();
      },
      destroy: (_error, done) => {
        this.fail();
        done(null);
      },
    });
    this.input.on('error', () => {});
  }

  /** Whether a reader that begins now receives all of it. */
  get isWhole(): boolean {
    return this.#isWhole && this.#state !== 'failed';
  }

  /** The app has aborted it, or nobody wants it. */
  fail(): void {
    if (this.#state !== 'open') return;
    this.#state = 'failed';
    this.#settle();
    this.#told.failed();
    for (const reader of this.#readers) reader.cut();
    this.#chunks = [];
  }

  /**
   * Writes all of it to a client as it arrives. Resolves when the last byte has been passed on: to true if
   * the body is complete.
   *
   * @param giveUp called if the client reads nothing, or if the body is aborted
   */
  async sendTo(body: Writable, giveUp: () => void): Promise<boolean> {
    const state = { isCut: false };
    let resume: () => void = () => {};
    const reader: BodyReader = {
      at: this.#gone,
      wake: () => resume(),
      cut: () => {
        state.isCut = true;
        resume();
      },
    };
    const awake = (): Promise<void> =>
      new Promise((resolve) => {
        resume = resolve;
      });
    const wake = (): void => resume();
    body.on('drain', wake);
    body.on('close', wake);
    this.#readers.add(reader);
    try {
      for (;;) {
        if (state.isCut || this.#state === 'failed') {
          giveUp();
          return false;
        }
        if (body.destroyed) return false;
        const chunk = this.#chunks[reader.at - this.#gone];
        if (chunk === undefined) {
          if (this.#state === 'complete') return true;
          await awake();
          continue;
        }
        reader.at += 1;
        if (!body.write(chunk)) {
          const cancel = this.#clock.after(MAX_STALL_MS, reader.cut);
          while (body.writableNeedDrain && !body.destroyed && !state.isCut) await awake();
          cancel();
        }
        this.#release();
      }
    } finally {
      body.off('drain', wake);
      body.off('close', wake);
      this.#readers.delete(reader);
      this.#release();
      if (this.#readers.size === 0 && !this.#isWhole) this.fail();
    }
  }

  #take(chunk: Buffer, done: () => void): void {
    if (this.#state !== 'open') {
      done();
      return;
    }
    // A copy, because the buffer of the read may be larger.
    this.#chunks.push(Buffer.from(chunk));
    this.#bytes += chunk.length;
    if (this.#isWhole) {
      if (this.#bytes <= this.#maxBytes && this.#memory.take(chunk.length)) {
        this.#held += chunk.length;
      } else this.#stopHolding();
    }
    for (const reader of this.#readers) reader.wake();
    if (this.#isWhole || this.#waiting() <= WINDOW_BYTES) done();
    else {
      this.#goOn = done;
      this.#awaitReaders();
    }
  }

  #stopHolding(): void {
    this.#isWhole = false;
    this.#giveBack();
    this.#told.tooLarge();
  }

  /** Releases what all readers have received, and lets the app continue. */
  #release(): void {
    if (this.#isWhole) return;
    let first = this.#gone + this.#chunks.length;
    for (const { at } of this.#readers) first = Math.min(first, at);
    if (first > this.#gone) {
      this.#chunks.splice(0, first - this.#gone);
      this.#gone = first;
    }
    if (this.#goOn === null || this.#waiting() > WINDOW_BYTES) return;
    const goOn = this.#goOn;
    this.#goOn = null;
    this.#stopStall();
    goOn();
  }

  #waiting(): number {
    return this.#chunks.reduce((sum, { length }) => sum + length, 0);
  }

  /** Disconnects the readers that are furthest behind if others wait for them. */
  #awaitReaders(): void {
    const limitMs = this.#readers.size > 1 ? MAX_STALL_OF_MANY_MS : MAX_STALL_MS;
    this.#stopStall();
    this.#stopStall = this.#clock.after(limitMs, () => {
      if (this.#readers.size === 0) this.fail();
      for (const reader of [...this.#readers]) if (reader.at === this.#gone) reader.cut();
    });
  }

  #complete(): void {
    if (this.#state !== 'open') return;
    this.#state = 'complete';
    if (this.#isWhole) {
      // Not from the pool of small buffers, which would stay in memory with it.
      const whole = Buffer.alloc(this.#bytes);
      let at = 0;
      for (const chunk of this.#chunks) at += chunk.copy(whole, at);
      this.#told.complete(whole);
    }
    this.#settle();
    for (const reader of this.#readers) reader.wake();
  }

  #settle(): void {
    this.#giveBack();
    this.#tellSettled();
    this.#stopStall();
    const goOn = this.#goOn;
    this.#goOn = null;
    goOn?.();
  }

  #giveBack(): void {
    this.#memory.give(this.#held);
    this.#held = 0;
  }
}

/**
 * Writes a complete body at the speed of its reader. Resolves to true if all of it was passed on.
 *
 * @param giveUp called if the client reads nothing
 */
export async function sendWhole(
  whole: Buffer,
  body: Writable,
  clock: Clock,
  giveUp: () => void,
): Promise<boolean> {
  for (let at = 0; at < whole.length; at += PIECE_BYTES) {
    if (body.destroyed) return false;
    if (!body.write(whole.subarray(at, at + PIECE_BYTES)) && at + PIECE_BYTES < whole.length) {
      await drained(body, clock, giveUp);
    }
  }
  return !body.destroyed;
}

function drained(body: Writable, clock: Clock, giveUp: () => void): Promise<void> {
  return new Promise((resolve) => {
    const cancel = clock.after(MAX_STALL_MS, () => {
      giveUp();
      settle();
    });
    const settle = (): void => {
      cancel();
      body.off('drain', settle);
      body.off('close', settle);
      resolve();
    };
    body.once('drain', settle);
    body.once('close', settle);
  });
}
