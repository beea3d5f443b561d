import type { Socket } from 'node:net';
import { constants, type ServerHttp2Session, type ServerHttp2Stream } from 'node:http2';
import type { Clock } from '../kernel/clock.ts';
import { HubgateError, ignore } from '../kernel/error.ts';
import { bytesBeforeStuckWrite, SessionClose } from '../kernel/node-internals.ts';

/** Interval between two checks of a connection. A write that does not progress between two checks ends it. */
const LOOK_INTERVAL_MS = 5_000;
/** Checks between two probes. A connection with streams that was silent since the last probe gets a PING. */
const LOOKS_PER_PROBE = 6;

/**
 * Streams that end before they are answered. A browser that leaves a page may cancel a hundred at once. A
 * client that cancels all the time makes the apps work for nothing (CVE-2023-44487), also if it provokes
 * resets (CVE-2025-8671).
 */
const BROKEN_STREAMS = { burst: 400, perSecond: 40 };
/**
 * PING and SETTINGS frames, each of which requires a response (CVE-2019-9512, CVE-2019-9515). gRPC clients
 * measure their path with one PING per round trip.
 */
const CONTROL_FRAMES = { burst: 2000, perSecond: 1000 };

export interface SessionLimits {
  /** How long a connection may stay without streams; 0 means no limit. */
  readonly idleMs: number;
  /** The connection itself; null if the session belongs to a foreign server. */
  readonly socket: Socket | null;
  readonly clock: Clock;
}

/**
 * Watches an HTTP/2 connection in addition to nghttp2, which limits concurrent streams, header blocks,
 * CONTINUATION frames and responses that are not read. A connection that exceeds a limit ends with an error
 * of its session.
 */
export function guardSession(session: ServerHttp2Session, limits: SessionLimits): void {
  const { clock } = limits;
  const brokenStreams = new RateBudget(BROKEN_STREAMS, clock);
  const controlFrames = new RateBudget(CONTROL_FRAMES, clock);
  const refuse = (why: string): void => {
    const error = new HubgateError('http2-refused', why);
    if (!session.destroyed) session.destroy(error, constants.NGHTTP2_ENHANCE_YOUR_CALM);
  };
  const life = new SessionLife(session, limits, refuse);

  // One function for all streams, each of which closes once.
  function onClose(this: ServerHttp2Stream): void {
    life.closed();
    // Also a client that does not wait for the response has aborted its stream, whatever it says.
    const isBroken = this.rstCode !== constants.NGHTTP2_NO_ERROR || !this.headersSent;
    if (isBroken && !brokenStreams.take()) refuse('The client has aborted too many streams');
    forgetListeners(this);
  }
  session.on('stream', (stream: ServerHttp2Stream) => {
    life.opened();
    stream.on('close', onClose);
  });
  for (const event of ['ping', 'remoteSettings']) {
    session.on(event, () => {
      if (!controlFrames.take()) refuse('The client has sent too many control frames');
    });
  }
  session.once('close', () => life.end());
}

/**
 * Removes all listeners of a stream that has closed. For V8's collections of young objects, such a stream stays
 * reachable from older garbage. Its listeners would keep everything about its request in memory until V8
 * collects the whole heap. The other listeners of its end are still called, because Node calls a copy of the list.
 */
function forgetListeners(stream: ServerHttp2Stream): void {
  // With this one, Node would count each of the others.
  stream.removeAllListeners('removeListener');
  stream.removeAllListeners();
  // A closed stream emits nothing more. If one did, it must not end the process.
  stream.on('error', ignore);
}

/** Closes an unused connection, and one whose client has left. */
class SessionLife {
  readonly #session: ServerHttp2Session;
  readonly #limits: SessionLimits;
  readonly #refuse: (why: string) => void;
  readonly #close: SessionClose;
  #streams = 0;
  #bytesRead = 0;
  #isAsked = false;
  /** The bytes that had left the connection when a write seemed stuck; null if none did. */
  #stuckAt: number | null = null;
  /** Checks since the number of streams became 1 or 0. */
  #looks = 0;
  #cancelLook: () => void = () => {};
  #cancelIdle: () => void = () => {};

  constructor(session: ServerHttp2Session, limits: SessionLimits, refuse: (why: string) => void) {
    this.#session = session;
    this.#limits = limits;
    this.#refuse = refuse;
    this.#close = new SessionClose(session, () => this.#streams > 0);
    this.#awaitStream();
    this.#lookLater();
  }

  opened(): void {
    this.#streams += 1;
    if (this.#streams > 1) return;
    this.#cancelIdle();
    this.#isAsked = false;
    this.#looks = 0;
  }

  closed(): void {
    this.#streams -= 1;
    if (this.#streams > 0) return;
    this.#awaitStream();
    this.#close.streamsEnded();
  }

  end(): void {
    this.#cancelLook();
    this.#cancelIdle();
  }

  #awaitStream(): void {
    const { idleMs, clock } = this.#limits;
    this.#looks = 0;
    if (idleMs === 0 || this.#session.destroyed) return;
    this.#cancelIdle = clock.after(idleMs, () => {
      this.#looks = 0;
      this.#session.close();
    });
  }

  #lookLater(): void {
    this.#cancelLook = this.#limits.clock.after(LOOK_INTERVAL_MS, () => {
      this.#looks += 1;
      const why = this.#whyGone();
      if (why === null) return this.#lookLater();
      this.#refuse(why);
      // Node closes the connection of a destroyed session only after the write in progress, which may never end.
      this.#limits.socket?.destroy();
    });
  }

  /** The reason why the client must be gone; null if it may still be there. */
  #whyGone(): string | null {
    const { socket } = this.#limits;
    const before = this.#stuckAt;
    this.#stuckAt = socket === null ? null : bytesBeforeStuckWrite(socket);
    if (before !== null && this.#stuckAt === before) {
      return 'The client has left: a write never ends';
    }
    if (this.#looks % LOOKS_PER_PROBE !== 0) return null;
    if (this.#streams > 0) return this.#isSilent() ? 'The client does not answer' : null;
    // A session without streams closes as soon as its written data is sent.
    return this.#session.closed ? 'The client does not read the end of its connection' : null;
  }

  /** An event stream may be silent forever, so the client gets a PING. Any byte counts as a response. */
  #isSilent(): boolean {
    const { socket } = this.#session;
    const isSilent = socket.bytesRead === this.#bytesRead;
    this.#bytesRead = socket.bytesRead;
    if (isSilent && this.#isAsked) return true;
    this.#isAsked = isSilent;
    if (isSilent) {
      this.#session.ping(() => {
        // The response is noticed by its bytes. Without one, the next probe ends the connection.
      });
    }
    return false;
  }
}

interface Rate {
  /** Capacity of the bucket. */
  readonly burst: number;
  /** Units that are added per second. */
  readonly perSecond: number;
}

/** A rate limit (a token bucket). */
class RateBudget {
  readonly #rate: Rate;
  readonly #clock: Clock;
  #left: number;
  #countedAt: number;

  constructor(rate: Rate, clock: Clock) {
    this.#rate = rate;
    this.#clock = clock;
    this.#left = rate.burst;
    this.#countedAt = clock.monotonic();
  }

  /** Takes one unit. Returns false if none is left. */
  take(): boolean {
    const now = this.#clock.monotonic();
    const back = ((now - this.#countedAt) / 1000) * this.#rate.perSecond;
    this.#countedAt = now;
    this.#left = Math.min(this.#rate.burst, this.#left + back);
    if (this.#left < 1) return false;
    this.#left -= 1;
    return true;
  }
}
