// Node returns the connection's flow-control window as soon as bytes arrive, so only the windows of the
// streams bound the waiting data. They are wide until too much data waits in total, which is counted here.

import { constants, type ServerHttp2Session, type ServerHttp2Stream } from 'node:http2';
import { HubgateError } from '../kernel/error.ts';

/**
 * Bytes of one request's body that may be in transit or wait for the reader (RFC 9113 §6.9): enough for 20 MB
 * a second over 50 ms. A narrow window has the protocol's default size.
 */
export const WIDE_WINDOW_BYTES = 1024 * 1024;
export const NARROW_WINDOW_BYTES = 65_535;
/** Bytes of all bodies of a connection that may be in transit. Node does not count those that wait here. */
export const CONNECTION_WINDOW_BYTES = 4 * 1024 * 1024;

/** Bytes that wait for upstreams, of one connection or of all. At this limit, windows become narrow. */
export const MAX_WAITING_OF_CONNECTION = 4 * 1024 * 1024;
const MAX_WAITING_IN_TOTAL = 64 * 1024 * 1024;
/** Windows become wide again when at most this fraction of the limit waits. */
const WIDE_AGAIN = 1 / 4;
/**
 * Waiting bytes at which a connection is closed. A client that respects its narrow windows can never reach
 * it: 250 requests with 64 KiB each, and what was in transit before.
 */
export const MAX_UNHEEDED_OF_CONNECTION = 32 * 1024 * 1024;

/**
 * The flow-control windows of clients for their uploads over HTTP/2. Bodies that upstreams read slowly wait
 * here, and Node bounds each of them only by its window. So windows become narrow when too much waits.
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

  /** Counts all bytes that are pushed into a body, because Node emits events only while something reads. */
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

  /**
   * Sets the window of future streams, and changes that of existing ones by the difference (RFC 9113 §6.9.2).
   */
  announce(initialWindowSize: number): void {
    if (!this.#session.destroyed) this.#session.settings({ initialWindowSize });
  }

  refuse(): void {
    if (this.#session.destroyed) return;
    const error = new HubgateError('http2-refused', 'The client sent more than its windows allow');
    this.#session.destroy(error, constants.NGHTTP2_ENHANCE_YOUR_CALM);
  }
}
