import {
  type ClientHttp2Session,
  connect as connectHttp2,
  constants,
  type Settings,
} from 'node:http2';
import type { Clock } from '../kernel/clock.ts';
import { MAX_SENT_HEAD_BYTES, NO_MEMORY_LIMIT_MB } from '../http/http2-fields.ts';
import { HubgateError, ignore } from '../kernel/error.ts';
import { SessionClose } from '../kernel/node-internals.ts';
import { SessionPieces } from '../http/small-pieces.ts';
import { connect, type Socket } from 'node:net';
import { connect as connectTls, TLSSocket } from 'node:tls';
import { connectOptions } from './address.ts';
import { MAX_HEAD_BYTES } from './forwarding.ts';
import { type DialTarget, KEEP_ALIVE_PROBE_MS, tlsOptions } from './upgrade-request.ts';

/** Concurrent streams of one session, even if the upstream allows more. */
const MAX_STREAMS = 100;

/** How often a session with open streams is checked. */
const WATCH_INTERVAL_MS = 30_000;

/**
 * Checks without a sign of life between two pings. gRPC servers close sessions with pings more often than
 * every five minutes.
 */
const LOOKS_BETWEEN_PINGS = 11;

/** One HTTP/2 session, with the facts that its peer has announced. */
export class Http2Session {
  readonly session: ClientHttp2Session;
  /** Streams above this one have not been processed (RFC 9113 §6.8), according to the peer's GOAWAY. */
  lastStream = Number.POSITIVE_INFINITY;
  readonly pieces: SessionPieces;
  readonly #close: SessionClose;
  #streams = 0;
  #hasHeard = false;
  #silentLooks = 0;
  #isPinged = false;
  #stopWatch: (() => void) | null = null;
  #stopIdle: () => void = () => {};
  readonly #keepAliveMs: number;
  readonly #onRoom: () => void;

  /** `onRoom` is called when a stream has ended, `onGone` when no more can be opened. */
  constructor(
    session: ClientHttp2Session,
    keepAliveMs: number,
    onRoom: () => void,
    onGone: () => void,
  ) {
    this.session = session;
    this.pieces = new SessionPieces(session);
    this.#close = new SessionClose(session, () => this.#streams > 0);
    this.#keepAliveMs = keepAliveMs;
    this.#onRoom = onRoom;
    session.on('goaway', (_code, lastStream) => {
      this.lastStream = Math.min(this.lastStream, lastStream);
      onGone();
    });
    session.on('remoteSettings', onRoom);
    // The streams get the error too, and report it.
    session.on('error', ignore);
    session.once('close', () => {
      this.#stopWatch?.();
      this.#stopIdle();
      onGone();
    });
  }

  get hasRoom(): boolean {
    const { destroyed, remoteSettings } = this.session;
    const allowed = remoteSettings.maxConcurrentStreams ?? MAX_STREAMS;
    return !this.#close.isBegun && !destroyed && this.#streams < Math.min(MAX_STREAMS, allowed);
  }

  /** Counts one more stream, which must be released. */
  take(clock: Clock): void {
    this.#streams += 1;
    this.#stopIdle();
    this.#stopWatch ??= clock.after(WATCH_INTERVAL_MS, () => this.#look(clock));
  }

  giveBack(clock: Clock): void {
    this.#streams -= 1;
    if (this.#streams === 0) {
      this.#idle(clock);
      this.#close.streamsEnded();
    }
    this.#onRoom();
  }

  /** Begins the time without streams if nobody has taken one: all that have waited for the session have left. */
  idleUnlessUsed(clock: Clock): void {
    if (this.#streams === 0) this.#idle(clock);
  }

  /** Any received data shows that the upstream is alive. */
  heard(): void {
    this.#hasHeard = true;
  }

  /** Lets the streams end, then closes. */
  close(): void {
    this.session.close();
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
    this.#silentLooks = this.#hasHeard ? 0 : this.#silentLooks + 1;
    this.#hasHeard = false;
    if (this.#silentLooks % LOOKS_BETWEEN_PINGS === 1) {
      this.#isPinged = session.ping((error) => {
        if (error === null) this.#isPinged = false;
      });
    }
    this.#stopWatch = clock.after(WATCH_INTERVAL_MS, () => this.#look(clock));
  }
}

/**
 * Bytes of a response that may be in transit to a client that reads nothing, and of all responses of a
 * session.
 */
const STREAM_WINDOW = 256 * 1024;
const SESSION_WINDOW = 4 * 1024 * 1024;

/** Most fields of one head. */
const MAX_FIELDS = 1_000;

/** The protocols that are offered to an upstream behind TLS (RFC 7301). */
export type Offer = readonly ('h2' | 'http/1.1')[];

/**
 * Opens a session with an upstream and waits for its settings (RFC 9113 §3.4), so that its limits are known
 * before the first request. If it does not allow a stream yet, it waits until it does. Calls back once. The
 * returned function cancels it.
 */
export function dialHttp2(
  target: DialTarget,
  offer: Offer,
  clock: Clock,
  done: (error: Error | null, session: ClientHttp2Session | null) => void,
): () => void {
  const { address, settings } = target;
  const socket = openSocket(target, offer);
  let session: ClientHttp2Session | null = null;
  const stopLimit = clock.after(settings.dialTimeoutMs, () => {
    fail(new HubgateError('upstream-timeout', `no connection within ${settings.dialTimeoutMs} ms`));
  });
  const end = (): void => {
    stopLimit();
    socket.off('error', fail).off('close', onClose);
    session?.off('error', fail).off('close', onClose).off('remoteSettings', onSettings);
  };
  const fail = (error: Error): void => {
    end();
    socket.on('error', ignore).destroy();
    session?.on('error', ignore).destroy();
    done(error, null);
  };
  const onSettings = (settings: Settings): void => {
    if (session === null || settings.maxConcurrentStreams === 0) return;
    end();
    session.setLocalWindowSize(SESSION_WINDOW);
    done(null, session);
  };
  const onClose = (): void => fail(noHttp2('The upstream closed the connection'));
  socket.on('error', fail).on('close', onClose);
  socket.once(socket instanceof TLSSocket ? 'secureConnect' : 'connect', () => {
    if (socket instanceof TLSSocket && socket.alpnProtocol !== 'h2') {
      fail(noHttp2('The upstream does not speak HTTP/2'));
      return;
    }
    socket.setNoDelay(true).setKeepAlive(true, KEEP_ALIVE_PROBE_MS);
    const opened = connectHttp2(`${address.protocol}//${address.authority}`, {
      createConnection: () => socket,
      settings: {
        enablePush: false,
        initialWindowSize: STREAM_WINDOW,
        maxHeaderListSize: MAX_HEAD_BYTES,
      },
      maxHeaderListPairs: MAX_FIELDS,
      maxSendHeaderBlockLength: MAX_SENT_HEAD_BYTES,
      maxSessionMemory: NO_MEMORY_LIMIT_MB,
    });
    session = opened;
    opened.on('error', fail).on('close', onClose).on('remoteSettings', onSettings);
  });
  return () => fail(new HubgateError('upstream-aborted', 'The connection is no longer needed'));
}

function openSocket(target: DialTarget, offer: Offer): Socket {
  const where = connectOptions(target.address, target.settings);
  if (target.address.protocol === 'http:') return connect(where);
  return connectTls({
    ...where,
    ...tlsOptions(target),
    rejectUnauthorized: !target.settings.tlsInsecureSkipVerify,
    ALPNProtocols: [...offer],
  });
}

/** The upstream has selected, or only supports, another version. */
function noHttp2(message: string): HubgateError {
  return new HubgateError('no-http2', message);
}
