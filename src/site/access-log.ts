import type { Exchange, ResponseStream, StreamListener } from '../http/exchange.ts';
import type { HeaderList } from '../http/header-list.ts';
import type { Clock } from '../kernel/clock.ts';
import type { Logger } from '../kernel/log.ts';
import { isSecretName, withoutSecretParts } from '../kernel/secret-names.ts';
import type { SiteHandler } from './site.ts';

const HIDDEN = 'REDACTED';
/** Longest target or value that a line repeats, in characters. */
const MAX_SHOWN = 1024;

/**
 * Writes a line for each exchange when it is over: for an event stream, when the client has gone.
 * Who reads the log must not be able to act for a user, so tokens and cookies are left out.
 */
export function logAccess(inner: SiteHandler, log: Logger, clock: Clock): SiteHandler {
  return async (exchange) => {
    const began = clock.monotonic();
    const write = (): void => {
      const { status } = exchange;
      const line = {
        request: exchange.id,
        remote_ip: exchange.remoteAddress,
        client_ip: exchange.clientAddress,
        proto: `HTTP/${exchange.httpVersion}`,
        method: exchange.method,
        host: exchange.host,
        uri: shownTarget(exchange),
        headers: shownHeaders(exchange.headers),
        status,
        duration_ms: Math.round(clock.monotonic() - began),
      };
      if (status >= 500) log.error('handled request', line);
      else log.info('handled request', line);
    };
    const streams = watchStreams(exchange, write);
    try {
      await inner(exchange);
    } finally {
      if (!streams.begun) write();
    }
  };
}

/** A stream is open long after it has been answered: it tells itself when it is over. */
function watchStreams(exchange: Exchange, over: () => void): { readonly begun: boolean } {
  const state = { begun: false };
  const open = exchange.stream.bind(exchange);
  exchange.stream = (head) => new WatchedStream(open(head), state, over);
  return state;
}

class WatchedStream implements ResponseStream, StreamListener {
  readonly framing: ResponseStream['framing'];
  readonly #stream: ResponseStream;
  readonly #state: { begun: boolean };
  readonly #over: () => void;
  #listener: StreamListener | null = null;

  constructor(stream: ResponseStream, state: { begun: boolean }, over: () => void) {
    this.framing = stream.framing;
    this.#stream = stream;
    this.#state = state;
    this.#over = over;
  }

  get bufferedBytes(): number {
    return this.#stream.bufferedBytes;
  }

  write(framed: Buffer): boolean {
    return this.#stream.write(framed);
  }

  listen(listener: StreamListener): void {
    this.#state.begun = true;
    this.#listener = listener;
    this.#stream.listen(this);
  }

  end(): void {
    this.#stream.end();
  }

  destroy(): void {
    this.#stream.destroy();
  }

  drained(): void {
    this.#listener?.drained();
  }

  closed(): void {
    this.#listener?.closed();
    this.#over();
  }
}

function shownTarget({ originalTarget }: Exchange): string {
  return withoutSecretParts(originalTarget.slice(0, MAX_SHOWN), HIDDEN);
}

/** A `Referer` and its like may hold what stood in the address bar. */
function shownHeaders(headers: HeaderList): Record<string, string> {
  const shown: Record<string, string> = Object.create(null);
  for (const [name, value] of headers) {
    const key = name.toLowerCase();
    shown[key] = isSecretName(key) ? HIDDEN : withoutSecretParts(value.slice(0, MAX_SHOWN), HIDDEN);
  }
  return shown;
}
