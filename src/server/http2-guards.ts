import type { Socket } from 'node:net';
import { constants, type ServerHttp2Session, type ServerHttp2Stream } from 'node:http2';
import type { Clock } from '../kernel/clock.ts';
import { HubgateError } from '../kernel/error.ts';
import { bytesBeforeStuckWrite } from './node-internals.ts';

/** How often a connection is checked. A write that does not move between two checks ends it. */
const LOOK_INTERVAL_MS = 5_000;
/** Checks between two probes. A connection with streams that was silent since the last probe gets a PING. */
const LOOKS_PER_PROBE = 6;

/**
 * Streams that end before they are answered. A browser that leaves a page may give up a hundred at
 * once; who does it all the time makes the apps behind us work for nothing (CVE-2023-44487), also by
 * making us reset them (CVE-2025-8671).
 */
const BROKEN_STREAMS = { burst: 400, perSecond: 40 };
/**
 * PING and SETTINGS frames, each of which is to be answered (CVE-2019-9512, CVE-2019-9515). gRPC
 * clients measure their path with one PING for each turn of it.
 */
const CONTROL_FRAMES = { burst: 2000, perSecond: 1000 };

export interface SessionLimits {
  /** How long a connection may stay without a stream; 0 means no limit. */
  readonly idleMs: number;
  /** The connection itself; null where the session is of a server that is not ours. */
  readonly socket: Socket | null;
  readonly clock: Clock;
}

/**
 * Watches an HTTP/2 connection beyond what nghttp2 does, which limits concurrent streams, header
 * blocks, CONTINUATION frames and answers that nobody takes. One that goes too far ends with an
 * error of its session.
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

  session.on('stream', (stream: ServerHttp2Stream) => {
    life.opened();
    stream.once('close', () => {
      life.closed();
      const isBroken = stream.rstCode !== constants.NGHTTP2_NO_ERROR;
      if (isBroken && !brokenStreams.take()) refuse('The client has aborted too many streams');
    });
  });
  for (const event of ['ping', 'remoteSettings']) {
    session.on(event, () => {
      if (!controlFrames.take()) refuse('The client has sent too many control frames');
    });
  }
  session.once('close', () => life.end());
}

/** Ends a connection that nobody uses, and one whose client has left. */
class SessionLife {
  readonly #session: ServerHttp2Session;
  readonly #limits: SessionLimits;
  readonly #refuse: (why: string) => void;
  #streams = 0;
  #bytesRead = 0;
  #isAsked = false;
  /** The bytes that had left the connection when a write of it seemed stuck; null if none did. */
  #stuckAt: number | null = null;
  /** Looks since the number of streams became 1 or 0. */
  #looks = 0;
  #cancelLook: () => void = () => {};
  #cancelIdle: () => void = () => {};

  constructor(session: ServerHttp2Session, limits: SessionLimits, refuse: (why: string) => void) {
    this.#session = session;
    this.#limits = limits;
    this.#refuse = refuse;
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
    if (this.#streams === 0) this.#awaitStream();
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
      if (why === null) {
        this.#lookLater();
        return;
      }
      this.#refuse(why);
      // Node closes the connection of a destroyed session only after the write in progress, which may never end.
      this.#limits.socket?.destroy();
    });
  }

  /** Why the client must be gone; null if it may be there. */
  #whyGone(): string | null {
    const { socket } = this.#limits;
    const before = this.#stuckAt;
    this.#stuckAt = socket === null ? null : bytesBeforeStuckWrite(socket);
    if (before !== null && this.#stuckAt === before) {
      return 'The client has left: a write never ends';
    }
    if (this.#looks % LOOKS_PER_PROBE !== 0) return null;
    if (this.#streams > 0) return this.#isSilent() ? 'The client does not answer' : null;
    // A session that has no streams closes as soon as what it has written is sent.
    return this.#session.closed ? 'The client does not read the end of its connection' : null;
  }

  /** An event stream may be silent for ever, so the client is asked. Any byte counts as an answer. */
  #isSilent(): boolean {
    const { socket } = this.#session;
    const isSilent = socket.bytesRead === this.#bytesRead;
    this.#bytesRead = socket.bytesRead;
    if (isSilent && this.#isAsked) return true;
    this.#isAsked = isSilent;
    if (isSilent) {
      this.#session.ping(() => {
        // The answer is noticed by its bytes; without one the next probe ends the connection.
      });
    }
    return false;
  }
}

interface Rate {
  /** What may be taken at once. */
  readonly burst: number;
  /** What comes back. */
  readonly perSecond: number;
}

/** How often something may still happen (a token bucket). */
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

  /** Takes one; false when nothing is left. */
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
