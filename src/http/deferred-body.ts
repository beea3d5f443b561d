// Bodies of responses that are not simply sent: one whose destination is not known yet, and the content of a response whose
// client gets none (HEAD, 204, 205, 304). Their source is told to stop instead of being read for ever.

import { Writable } from 'node:stream';
import type { Clock } from '../kernel/clock.ts';
import { HubgateError, ignore } from '../kernel/error.ts';
import { writeTo } from './body-end.ts';

/** Bytes of an unwanted response body that are read, so that the connection to its source can be used again. */
export const MAX_DISCARDED_BYTES = 64 * 1024;
/** Milliseconds within which that body must end, because the request that does not want it may wait for its end. */
export const MAX_DISCARDING_MS = 1000;

/** Milliseconds after which the source of a content that nobody gets is told to stop, also if it is silent. */
export const MAX_UNWANTED_MS = 30_000;

/** Bodies whose response is complete without them. */
const unwanted = new WeakSet<Writable>();
/** The destinations of bodies that waited for one. */
const destinations = new WeakMap<Writable, Writable>();

/** Whether the response is complete without the rest of a body, so that a failure of its source matters to nobody. */
export function isUnwanted(body: Writable): boolean {
  const target = destinations.get(body);
  return unwanted.has(body) || (target !== undefined && isUnwanted(target));
}

/** Tells the source of a body to stop when that of its destination is told so. */
export function stopWith(body: Writable, target: Writable): void {
  if (!(target instanceof DiscardedBody || target instanceof DeferredBody)) return;
  destinations.set(body, target);
  target.once('close', () => {
    if (target.errored !== null && isUnwanted(target) && !body.writableEnded) stopSource(body);
  });
}

function stopSource(body: Writable): void {
  body.destroy(new HubgateError('client-left', 'The client gets no content of this response'));
}

/**
 * Returns a stream for the content of a response whose client gets none. It ends the real body, if there is one, when it ends,
 * or after {@link MAX_DISCARDING_MS}, because the next request may wait for that. Its source is told to stop
 * after {@link MAX_DISCARDED_BYTES} or {@link MAX_UNWANTED_MS}.
 */
export function discarding(body: Writable | null = null): Writable {
  return new DiscardedBody(body);
}

class DiscardedBody extends Writable {
  readonly #body: Writable | null;
  #limit = setTimeout(endInTime, MAX_DISCARDING_MS, this).unref();
  #discardable = MAX_DISCARDED_BYTES;

  constructor(body: Writable | null) {
    super();
    this.#body = body;
    // Its source listens only while it writes.
    this.on('error', ignore);
  }

  override _write(chunk: Buffer, _encoding: BufferEncoding, done: () => void): void {
    this.#discardable -= chunk.length;
    done();
    if (this.#discardable < 0) this.stop();
  }

  override _final(done: () => void): void {
    clearTimeout(this.#limit);
    this.#endBody();
    done();
  }

  override _destroy(error: Error | null, done: (error?: Error | null) => void): void {
    clearTimeout(this.#limit);
    done(error);
  }

  /** The client need not wait any longer, but the source may still have something to do. */
  endInTime(): void {
    this.#endBody();
    unwanted.add(this);
    this.#limit = setTimeout(stopInTime, MAX_UNWANTED_MS - MAX_DISCARDING_MS, this).unref();
  }

  stop(): void {
    this.#endBody();
    unwanted.add(this);
    stopSource(this);
  }

  #endBody(): void {
    if (this.#body?.writableEnded === false) this.#body.end();
  }
}

function endInTime(body: DiscardedBody): void {
  body.endInTime();
}

function stopInTime(body: DiscardedBody): void {
  body.stop();
}

/**
 * The body of a response whose destination is not known yet: a transform of the head waits for something, or routes
 * decide whether they respond instead. One chunk waits in it, and what fits below the stream's high-water mark.
 */
export class DeferredBody extends Writable {
  /** null: the body is discarded; undefined: not decided yet. */
  #target: Writable | null | undefined;
  #isForRoutes = false;
  #onDecided: (() => void) | null = null;
  #endTarget = (target: Writable): void => void target.end();
  /** How many more bytes are discarded before the source is told to stop. */
  #discardable = Infinity;

  constructor() {
    super();
    // Its source listens only while it writes.
    this.on('error', ignore);
  }

  /** Routes may respond instead until the body has a destination. */
  hold(): void {
    this.#isForRoutes = true;
  }

  /** Whether routes may respond instead, or have responded: the response of the exchange is not this one. */
  get isHeld(): boolean {
    const target = this.#target;
    if (target instanceof DeferredBody) return target.isHeld;
    return this.#isForRoutes && (target === undefined || target === null);
  }

  /** Sets the destination; null discards the body. Only the first decision counts. */
  decide(target: Writable | null): void {
    if (this.#target !== undefined) return;
    this.#target = target;
    if (target !== null) stopWith(this, target);
    // Routes further out may hold the destination. When they drop it, the source has to stop.
    if (target instanceof DeferredBody) {
      target.once('close', () => {
        if (!this.writableEnded) this.destroy(dropped());
      });
    }
    this.#onDecided?.();
    this.#onDecided = null;
  }

  /**
   * Another response is sent instead. A short rest is discarded, so that the connection to the source can be used again.
   * The source of a longer rest, which may be endless, is told to stop.
   */
  drop(clock: Clock): void {
    if (this.writableFinished || this.destroyed) return;
    this.#discardable = MAX_DISCARDED_BYTES;
    this.once(
      'close',
      clock.after(MAX_DISCARDING_MS, () => this.destroy(dropped())),
    );
    this.decide(null);
  }

  /** Ends the body, and its destination by this function after everything has been written. */
  endBy(end: (target: Writable) => void): void {
    this.#endTarget = end;
    this.end();
  }

  override _write(chunk: Buffer, _encoding: BufferEncoding, done: () => void): void {
    this.#whenDecided((target) => {
      if (target === null) this.#discard(chunk, done);
      else writeTo(target, chunk, done);
    });
  }

  override _final(done: () => void): void {
    this.#whenDecided((target) => {
      if (target !== null) this.#endTarget(target);
      done();
    });
  }

  override _destroy(error: Error | null, done: (error?: Error | null) => void): void {
    const target = this.#target;
    if (target instanceof DeferredBody && !this.writableEnded) target.destroy();
    done(error);
  }

  #discard(chunk: Buffer, done: () => void): void {
    this.#discardable -= chunk.length;
    done();
    if (this.#discardable < 0) this.destroy(dropped());
  }

  #whenDecided(task: (target: Writable | null) => void): void {
    if (this.#target === undefined) this.#onDecided = () => task(this.#target ?? null);
    else task(this.#target);
  }
}

function dropped(): HubgateError {
  return new HubgateError('client-left', 'Another response has replaced this one');
}
