import { type ClientHttp2Session, constants } from 'node:http2';
import type { Clock } from '../kernel/clock.ts';
import { HubgateError } from '../kernel/error.ts';

/** Streams that one session has at once, whatever more the upstream allows. */
const MAX_STREAMS = 100;

/** How often a session with open streams is looked at. */
const WATCH_INTERVAL_MS = 30_000;

/**
 * Looks without a sign of life between two pings: servers of gRPC break sessions off that ask more
 * often than every five minutes.
 */
const LOOKS_BETWEEN_PINGS = 11;

/** One HTTP/2 session, with what its peer has said about it. */
export class Http2Session {
  readonly session: ClientHttp2Session;
  /** Streams above have not been processed (RFC 9113 §6.8); so the peer has said when it went away. */
  lastStream = Number.POSITIVE_INFINITY;
  #streams = 0;
  #heard = false;
  #silentLooks = 0;
  #isPinged = false;
  #stopWatch: (() => void) | null = null;
  #stopIdle: () => void = () => {};
  readonly #keepAliveMs: number;
  readonly #onRoom: () => void;

  /** `onRoom` is told when a stream has ended, `onGone` when no more can be opened. */
  constructor(
    session: ClientHttp2Session,
    keepAliveMs: number,
    onRoom: () => void,
    onGone: () => void,
  ) {
    this.session = session;
    this.#keepAliveMs = keepAliveMs;
    this.#onRoom = onRoom;
    session.on('goaway', (_code, lastStream) => {
      this.lastStream = Math.min(this.lastStream, lastStream);
      onGone();
    });
    session.on('remoteSettings', onRoom);
    // The streams are told too, and they tell whom it concerns.
    session.on('error', () => {});
    session.once('close', () => {
      this.#stopWatch?.();
      this.#stopIdle();
      onGone();
    });
  }

  get hasRoom(): boolean {
    const { closed, destroyed, remoteSettings } = this.session;
    const allowed = remoteSettings.maxConcurrentStreams ?? MAX_STREAMS;
    return !closed && !destroyed && this.#streams < Math.min(MAX_STREAMS, allowed);
  }

  /** Counts one stream more; it is to be given back. */
  take(clock: Clock): void {
    this.#streams += 1;
    this.#stopIdle();
    this.#stopWatch ??= clock.after(WATCH_INTERVAL_MS, () => this.#look(clock));
  }

  giveBack(clock: Clock): void {
    this.#streams -= 1;
    if (this.#streams === 0) this.#idle(clock);
    this.#onRoom();
  }

  /** Whatever comes says that the upstream is there. */
  heard(): void {
    this.#heard = true;
  }

  /** Lets the streams end, then closes. */
  close(): void {
    if (!this.session.closed && !this.session.destroyed) this.session.close();
  }

  #idle(clock: Clock): void {
    this.#stopWatch?.();
    this.#stopWatch = null;
    this.#isPinged = false;
    this.#silentLooks = 0;
    if (this.#keepAliveMs === 0) this.close();
    else this.#stopIdle = clock.after(this.#keepAliveMs, () => this.close());
  }

  #look(clock: Clock): void {
    const { session } = this;
    if (session.destroyed) return;
    if (this.#isPinged) {
      const silent = new HubgateError('upstream-timeout', 'The upstream does not answer a ping');
      session.destroy(silent, constants.NGHTTP2_CANCEL);
      return;
    }
    this.#silentLooks = this.#heard ? 0 : this.#silentLooks + 1;
    this.#heard = false;
    if (this.#silentLooks % LOOKS_BETWEEN_PINGS === 1) {
      this.#isPinged = session.ping((error) => {
        if (error === null) this.#isPinged = false;
      });
    }
    this.#stopWatch = clock.after(WATCH_INTERVAL_MS, () => this.#look(clock));
  }
}
