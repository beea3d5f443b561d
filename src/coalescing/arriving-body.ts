import { Writable } from 'node:stream';
import { ignore } from '../kernel/error.ts';
import { drained } from '../http/body-end.ts';
import { HeaderList } from '../http/header-list.ts';
import { afterSilence, type Clock } from '../kernel/clock.ts';

/** Bytes of all bodies in this process that are held completely while they arrive, or while somebody reads them. */
const MAX_HELD_BYTES = 64 * 1024 * 1024;
/** Bytes of a body that is not held completely, between the app and its readers. */
const WINDOW_BYTES = 256 * 1024;
/** Bytes that are written to a client at a time. */
const PIECE_BYTES = 64 * 1024;
/** How long a client may read nothing of an available body, in milliseconds. */
const MAX_STALL_MS = 120_000;
/** How long other readers may wait for it in total while it takes less than {@link LEAST_OF_MANY_BYTES}, in milliseconds. */
const MAX_STALL_OF_MANY_MS = 10_000;
const LEAST_OF_MANY_BYTES = 1024 * 1024;
/** How long the readers of a complete body may take nothing before others may have its memory, in milliseconds. */
const MAX_UNREAD_MS = 30_000;
/** How long the app may send nothing of a body, in milliseconds. After that, nobody else waits for the rest. */
const MAX_SILENCE_MS = 30_000;

/**
 * The memory of all bodies that several clients may read. When it is full, the oldest complete body of which nobody
 * takes anything is removed, and its readers are disconnected. After that, readers are disconnected that are more than
 * {@link WINDOW_BYTES} behind others. A client that reads is not: otherwise, one that asks for many bodies could end the
 * downloads of everybody. Only windows, and bodies that were complete before anybody could read them, may exceed the
 * limit.
 */
export class BodyMemory {
  readonly #maxBytes: number;
  /** The oldest first. */
  readonly #held = new Map<ArrivingBody, number>();
  #bytes = 0;

  constructor(maxBytes = MAX_HELD_BYTES) {
    this.#maxBytes = maxBytes;
  }

  /** Bytes that are held now. */
  get bytes(): number {
    return this.#bytes;
  }

  /** Makes space for more of a body, and returns whether there is enough. */
  makeSpace(body: ArrivingBody, bytes: number): boolean {
    while (this.#bytes + bytes > this.#maxBytes) {
      const oldest = this.#oldestBut(body);
      if (oldest === null) return false;
      if (oldest.isComplete) oldest.fail();
      else oldest.disconnectLagging();
    }
    return true;
  }

  has(body: ArrivingBody): boolean {
    return this.#held.has(body);
  }

  /** Sets the number of bytes that are held of a body. */
  count(body: ArrivingBody, bytes: number): void {
    this.#bytes += bytes - (this.#held.get(body) ?? 0);
    this.#held.set(body, bytes);
  }

  forget(body: ArrivingBody): void {
    this.#bytes -= this.#held.get(body) ?? 0;
    this.#held.delete(body);
  }

  #oldestBut(body: ArrivingBody): ArrivingBody | null {
    let lagging: ArrivingBody | null = null;
    for (const one of this.#held.keys()) {
      if (one === body) continue;
      if (one.isComplete && one.isWhole && one.isUnread) return one;
      if (lagging === null && one.isLagging) lagging = one;
    }
    return lagging;
  }
}

/** What happens to a body. */
interface BodyEvents {
  readonly complete: () => void;
  /** It was aborted, nobody wants it, or its memory was needed: it can no longer be read. */
  readonly failed: () => void;
  /** From now on, it is not held completely: nobody can begin to read it. */
  readonly tooLarge: () => void;
  /** The app has sent nothing for {@link MAX_SILENCE_MS}. */
  readonly silent: () => void;
}

interface BodyReader {
  /** The next chunk. */
  at: number;
  wake(): void;
  disconnect(): void;
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
  readonly #memory: BodyMemory;
  readonly #clock: Clock;
  readonly #events: BodyEvents;
  #chunks: Buffer[] = [];
  /** Chunks at the front that have been released. */
  #released = 0;
  /** Bytes that have arrived. */
  #bytes = 0;
  /** Bytes of the chunks that are held. */
  #heldBytes = 0;
  #state: 'open' | 'complete' | 'failed' = 'open';
  #isWhole = true;
  /** Whether somebody may still begin to read it. */
  #isOffered = true;
  /** Whether it fails as soon as nobody reads it. */
  #isGivenUp = false;
  readonly #readers = new Set<BodyReader>();
  /** Asks the app for more. */
  #resumeInput: (() => void) | null = null;
  #stopStall: () => void = () => {};
  /** When a reader began, or took something, by the clock that is never set. */
  #takenMs = 0;
  /** Since when a reader waits for another one, by the clock that is never set; null if none does. */
  #waitSinceMs: number | null = null;
  /** How long readers had waited before, since all of them had taken {@link #takenBefore}. */
  #waitedMs = 0;
  #takenBefore = 0;
  /** When the app has sent something, or could continue after it had to wait, by the clock that is never set. */
  #heardMs: number;
  #stopSilence: () => void = () => {};
  /** Resolves when it is complete, or when nobody receives more of it. */
  readonly settled: Promise<void>;
  #resolveSettled: () => void = () => {};
  /** Those of a complete response; empty before. */
  trailers = new HeaderList();

  /** @param maxBytes limit for a body that is held completely */
  constructor(maxBytes: number, memory: BodyMemory, clock: Clock, events: BodyEvents) {
    this.#maxBytes = maxBytes;
    this.#memory = memory;
    this.#clock = clock;
    this.#events = events;
    this.settled = new Promise((resolve) => {
      this.#resolveSettled = resolve;
    });
    this.input = new Writable({
      write: (chunk: Buffer, _encoding, done) => this.#take(chunk, done),
      final: (done) => {
        this.#complete();
        done();
      },
      destroy: (_error, done) => {
        if (this.#state === 'open') this.fail();
        done(null);
      },
    });
    this.input.on('error', ignore);
    this.#heardMs = clock.monotonic();
    this.#awaitApp(MAX_SILENCE_MS);
  }

  /** Whether a reader that begins now receives all of it. */
  get isWhole(): boolean {
    return this.#isWhole && this.#state !== 'failed';
  }

  get isComplete(): boolean {
    return this.#state === 'complete';
  }

  /** The app has aborted it, nobody wants it, or its memory is needed. */
  fail(): void {
    if (this.#state === 'failed') return;
    this.#state = 'failed';
    this.#memory.forget(this);
    this.#settle();
    this.#events.failed();
    for (const reader of this.#readers) reader.disconnect();
    this.#chunks = [];
    this.#heldBytes = 0;
  }

  /** Whether no reader has taken anything for a while. */
  get isUnread(): boolean {
    return this.#readers.size === 0 || this.#clock.monotonic() - this.#takenMs >= MAX_UNREAD_MS;
  }

  /** Whether it is not held completely, and a reader is so far behind others that the app has to wait. */
  get isLagging(): boolean {
    if (this.#isWhole || this.#state !== 'open' || this.#readers.size < 2) return false;
    return this.#heldBytes > WINDOW_BYTES;
  }

  /** Disconnects the readers that are more than a window behind. */
  disconnectLagging(): void {
    while (this.isLagging) this.#disconnectLast();
  }

  /** Nobody else begins to read it: it is held until those that read it are done. */
  withdraw(): void {
    this.#isOffered = false;
    this.#forgetUnread();
  }

  /** If it is not complete, it fails as soon as nobody reads it. */
  giveUp(): void {
    this.#isGivenUp = true;
    this.#failUnread();
  }

  /** All of a complete body. */
  toBuffer(): Buffer {
    const [only] = this.#chunks;
    if (this.#chunks.length === 1 && only !== undefined) return only;
    // Not from the pool of small buffers, which would stay in memory with it.
    const whole = Buffer.allocUnsafeSlow(this.#bytes);
    let at = 0;
    for (const chunk of this.#chunks) at += chunk.copy(whole, at);
    return whole;
  }

  /**
   * Writes all of it to a client as it arrives. Resolves when the last byte has been passed on: to true if
   * the body is complete.
   *
   * @param abort called if the client reads nothing, or if the body is aborted
   */
  async sendTo(body: Writable, abort: () => void): Promise<boolean> {
    const state = { isDisconnected: false };
    let resume: () => void = () => {};
    const reader: BodyReader = {
      at: this.#released,
      wake: () => resume(),
      disconnect: () => {
        state.isDisconnected = true;
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
    this.#takenMs = this.#clock.monotonic();
    // Its beginning is no longer held.
    if (this.#released > 0) reader.disconnect();
    // A short one may be complete before its first reader begins. It is here, whether there is space for it or not.
    if (this.#state === 'complete' && !this.#memory.has(this)) {
      this.#memory.makeSpace(this, this.#heldBytes);
      this.#memory.count(this, this.#heldBytes);
    }
    try {
      for (;;) {
        if (state.isDisconnected || this.#state === 'failed') {
          abort();
          return false;
        }
        if (body.destroyed) return false;
        const chunk = this.#chunks[reader.at - this.#released];
        if (chunk === undefined) {
          if (this.#state === 'complete') return true;
          this.#awaitOthers();
          await awake();
          continue;
        }
        reader.at += 1;
        this.#takenMs = this.#clock.monotonic();
        if (!body.write(chunk)) {
          const cancel = this.#clock.after(MAX_STALL_MS, reader.disconnect);
          while (body.writableNeedDrain && !body.destroyed && !state.isDisconnected) await awake();
          cancel();
        }
        this.#release();
      }
    } finally {
      body.off('drain', wake);
      body.off('close', wake);
      this.#readers.delete(reader);
      this.#release();
      this.#countWaitsAnew();
      this.#forgetUnread();
      this.#failUnread();
    }
  }

  #take(chunk: Buffer, done: () => void): void {
    if (this.#state !== 'open') return done();
    this.#heardMs = this.#clock.monotonic();
    // A copy, because the buffer of the read may be larger.
    const copy = Buffer.allocUnsafeSlow(chunk.length);
    chunk.copy(copy);
    this.#chunks.push(copy);
    this.#bytes += chunk.length;
    const isBeyond = this.#bytes > this.#maxBytes;
    const isHeld = this.#isWhole && !isBeyond && this.#memory.makeSpace(this, chunk.length);
    this.#heldBytes += chunk.length;
    this.#memory.count(this, this.#heldBytes);
    if (this.#isWhole && !isHeld) this.#stopHolding();
    for (const reader of this.#readers) reader.wake();
    if (this.#isWhole || this.#heldBytes <= WINDOW_BYTES) done();
    else {
      this.#resumeInput = done;
      this.#awaitReaders();
    }
  }

  #stopHolding(): void {
    this.#isWhole = false;
    this.#isGivenUp = true;
    this.#events.tooLarge();
  }

  /** Releases what all readers have received, and lets the app continue. */
  #release(): void {
    if (this.#isWhole) return;
    let first = this.#released + this.#chunks.length;
    for (const { at } of this.#readers) first = Math.min(first, at);
    if (first > this.#released) {
      const read = this.#chunks.splice(0, first - this.#released);
      this.#released = first;
      this.#heldBytes -= read.reduce((sum, { length }) => sum + length, 0);
      if (this.#memory.has(this)) this.#memory.count(this, this.#heldBytes);
    }
    if (this.#resumeInput === null || this.#heldBytes > WINDOW_BYTES) return;
    const resume = this.#resumeInput;
    this.#resumeInput = null;
    this.#stopStall();
    this.#heardMs = this.#clock.monotonic();
    this.#endWait();
    resume();
  }

  /** The timer runs on while chunks arrive, so that they cost nothing. */
  #awaitApp(forMs: number): void {
    this.#stopSilence = afterSilence(forMs, this.#clock, () => {
      const silentMs = this.#clock.monotonic() - this.#heardMs;
      // An app that waits for the readers cannot send.
      if (this.#resumeInput !== null) this.#awaitApp(MAX_SILENCE_MS);
      else if (silentMs < MAX_SILENCE_MS) this.#awaitApp(MAX_SILENCE_MS - silentMs);
      else this.#events.silent();
    });
  }

  /** The app waits. If no reader takes anything, those that are furthest behind are disconnected. */
  #awaitReaders(): void {
    this.#stopStall();
    this.#stopStall = this.#clock.after(MAX_STALL_MS, () => {
      if (this.#readers.size === 0) this.fail();
      else this.#disconnectLast();
      if (this.#resumeInput !== null) this.#awaitReaders();
    });
  }

  /**
   * A reader has everything that has arrived, and the app waits for another one. One that takes a little from time to
   * time would slow the others down as much as it likes, so their waits are added up.
   */
  #awaitOthers(): void {
    if (this.#resumeInput === null || this.#waitSinceMs !== null) return;
    if (this.#isEnoughTaken) this.#forgetWaits();
    this.#waitSinceMs = this.#clock.monotonic();
    this.#stopStall();
    this.#stopStall = this.#clock.after(MAX_STALL_OF_MANY_MS - this.#waitedMs, () => {
      if (!this.#isEnoughTaken) this.#disconnectLast();
      this.#endWait();
      this.#forgetWaits();
      this.#countWaitsAnew();
    });
  }

  #endWait(): void {
    if (this.#waitSinceMs !== null) this.#waitedMs += this.#clock.monotonic() - this.#waitSinceMs;
    this.#waitSinceMs = null;
  }

  /** A reader has left, perhaps the one that waited. What others have waited until now still counts. */
  #countWaitsAnew(): void {
    this.#endWait();
    if (this.#resumeInput === null) return;
    this.#awaitReaders();
    for (const reader of this.#readers) reader.wake();
  }

  get #isEnoughTaken(): boolean {
    return this.#bytes - this.#heldBytes - this.#takenBefore >= LEAST_OF_MANY_BYTES;
  }

  #forgetWaits(): void {
    this.#waitedMs = 0;
    this.#takenBefore = this.#bytes - this.#heldBytes;
  }

  #disconnectLast(): void {
    let last = Number.POSITIVE_INFINITY;
    for (const { at } of this.#readers) last = Math.min(last, at);
    for (const reader of this.#readers) {
      if (reader.at > last) continue;
      this.#readers.delete(reader);
      reader.disconnect();
    }
    this.#release();
  }

  #complete(): void {
    if (this.#state !== 'open') return;
    this.#state = 'complete';
    if (this.#isWhole) this.#events.complete();
    this.#forgetUnread();
    this.#settle();
    for (const reader of this.#readers) reader.wake();
  }

  #settle(): void {
    this.#resolveSettled();
    this.#stopStall();
    this.#stopSilence();
    const resume = this.#resumeInput;
    this.#resumeInput = null;
    resume?.();
  }

  #failUnread(): void {
    const isUnwanted = this.#isGivenUp && this.#readers.size === 0;
    if (isUnwanted && this.#state === 'open') this.fail();
  }

  #forgetUnread(): void {
    const isRead = this.#readers.size > 0 || this.#isOffered || this.#state === 'open';
    if (!isRead) this.#memory.forget(this);
  }
}

/**
 * Writes a complete body at the speed of its reader. Resolves to true if all of it was passed on.
 *
 * @param abort called if the client reads nothing
 */
export async function sendWhole(
  whole: Buffer,
  body: Writable,
  clock: Clock,
  abort: () => void,
): Promise<boolean> {
  for (let at = 0; at < whole.length; at += PIECE_BYTES) {
    if (body.destroyed) return false;
    const piece = whole.subarray(at, at + PIECE_BYTES);
    // Nobody waits until the last piece is written. It is a copy, so that it keeps nothing else in memory.
    if (at + PIECE_BYTES >= whole.length) body.write(Buffer.from(piece));
    else if (!body.write(piece)) await drained(body, clock, MAX_STALL_MS, abort);
  }
  return !body.destroyed;
}
