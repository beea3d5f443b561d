// Node returns the connection's flow-control window as soon as bytes arrive, so only the windows of
// the streams bound what waits. They are wide until too much waits in total, which is counted here.

import { constants, type ServerHttp2Session, type ServerHttp2Stream } from 'node:http2';
import { HubgateError } from '../kernel/error.ts';

/**
 * Bytes of one request's body that may be on their way or wait to be taken (RFC 9113 §6.9): enough for
 * 20 MB a second over 50 ms. A narrow window is that of the protocol itself.
 */
export const WIDE_WINDOW_BYTES = 1024 * 1024;
export const NARROW_WINDOW_BYTES = 65_535;
/** Bytes of all bodies of a connection that may be on their way; Node counts none that wait here. */
export const CONNECTION_WINDOW_BYTES = 4 * 1024 * 1024;

/** Bytes that wait for upstreams: of one connection, or of all, at which windows become narrow. */
export const MAX_WAITING_OF_CONNECTION = 4 * 1024 * 1024;
const MAX_WAITING_IN_TOTAL = 64 * 1024 * 1024;
/** Windows become wide again where no more than this part of it waits. */
const WIDE_AGAIN = 1 / 4;
/**
 * Waiting bytes at which a connection is ended: more than who heeds its narrow windows can send, 250
 * requests with 64 KiB each and what was on its way before.
 */
export const MAX_UNHEEDED_OF_CONNECTION = 32 * 1024 * 1024;

/**
 * The windows that clients get for their uploads over HTTP/2. Bodies that upstreams take slowly wait here,
 * and Node bounds each of them by its window alone: where too much waits windows become narrow.
 */
export class UploadWindows {
  #total = 0;
  readonly #narrow = new Set<ConnectionWindows>();

  /** Bytes that wait. */
  get waiting(): number {
    return this.#total;
  }

  watch(session: ServerHttp2Session): void {
    session.setLocalWindowSize(CONNECTION_WINDOW_BYTES);
    const windows = new ConnectionWindows(session);
    if (this.#total > MAX_WAITING_IN_TOTAL) this.#setNarrow(windows);
    session.once('close', () => this.#narrow.delete(windows));
    session.on('stream', (stream: ServerHttp2Stream) => {
      if (!stream.endAfterHeaders) this.#count(stream, windows);
    });
  }

  /** What a body is pushed is what has come; Node tells of it only where somebody reads. */
  #count(stream: ServerHttp2Stream, windows: ConnectionWindows): void {
    let known = 0;
    const note = (waiting: number): void => {
      const more = waiting - known;
      known = waiting;
      if (more === 0) return;
      windows.waiting += more;
      this.#total += more;
      this.#adjust(windows);
    };
    const push = stream.push.bind(stream);
    stream.push = (chunk, encoding) => {
      const goesOn = push(chunk, encoding);
      note(stream.readableLength);
      return goesOn;
    };
    stream.once('close', () => note(0));
  }

  #adjust(windows: ConnectionWindows): void {
    const { waiting } = windows;
    if (waiting > MAX_UNHEEDED_OF_CONNECTION) {
      windows.refuse();
    } else if (waiting > MAX_WAITING_OF_CONNECTION || this.#total > MAX_WAITING_IN_TOTAL) {
      this.#setNarrow(windows);
    } else if (this.#total <= MAX_WAITING_IN_TOTAL * WIDE_AGAIN) {
      for (const one of this.#narrow) {
        if (one.waiting > MAX_WAITING_OF_CONNECTION * WIDE_AGAIN) continue;
        this.#narrow.delete(one);
        one.announce(WIDE_WINDOW_BYTES);
      }
    }
  }

  #setNarrow(windows: ConnectionWindows): void {
    if (this.#narrow.has(windows)) return;
    this.#narrow.add(windows);
    windows.announce(NARROW_WINDOW_BYTES);
  }
}

class ConnectionWindows {
  /** Bytes that wait. */
  waiting = 0;
  readonly #session: ServerHttp2Session;

  constructor(session: ServerHttp2Session) {
    this.#session = session;
  }

  /** Of streams to come, and of those there are by the difference (RFC 9113 §6.9.2). */
  announce(initialWindowSize: number): void {
    if (!this.#session.destroyed) this.#session.settings({ initialWindowSize });
  }

  refuse(): void {
    if (this.#session.destroyed) return;
    const error = new HubgateError('http2-refused', 'The client sent more than its windows allow');
    this.#session.destroy(error, constants.NGHTTP2_ENHANCE_YOUR_CALM);
  }
}
