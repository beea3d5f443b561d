import type { Exchange, ResponseStream, StreamListener } from '../http/exchange.ts';
import type { HeaderList } from '../http/header-list.ts';
import type { Clock } from '../kernel/clock.ts';
import type { LogFields, Logger } from '../kernel/log.ts';
import { isSecretName, withoutSecretParts } from '../kernel/secret-names.ts';
import type { SiteHandler } from './site.ts';

const HIDDEN = 'REDACTED';
/** Longest target or value that a line repeats, in characters. */
const MAX_SHOWN = 1024;

/**
 * Writes a line for each exchange when it is over; for what stays open (an event stream, another
 * protocol) one at its start as well. Who reads the log must not be able to act for a user, so
 * tokens and cookies are left out. The names of the fields are those of OpenTelemetry.
 *
 * @see https://opentelemetry.io/docs/specs/semconv/http/http-spans/
 */
export function logAccess(inner: SiteHandler, log: Logger, clock: Clock): SiteHandler {
  return async (exchange) => {
    const began = clock.monotonic();
    let isLong = false;
    const over = (more: LogFields): void => {
      const line = {
        ...requestFields(exchange),
        ...responseFields(exchange),
        ...more,
        'http.server.request.duration': seconds(clock.monotonic() - began),
      };
      if (exchange.status >= 500) log.error(isLong ? 'stream ended' : 'handled request', line);
      else log.info(isLong ? 'stream ended' : 'handled request', line);
    };
    exchange.onHead(({ status, headers }) => {
      if (!staysOpen(exchange, status, headers)) return undefined;
      isLong = true;
      log.info('stream began', {
        ...requestFields(exchange),
        'http.response.status_code': status,
        'http.server.request.duration': seconds(clock.monotonic() - began),
      });
      return undefined;
    });
    const streams = watchStreams(exchange, over);
    try {
      await inner(exchange);
    } finally {
      if (!streams.begun) over({});
    }
  };
}

function staysOpen({ method, upgrade }: Exchange, status: number, headers: HeaderList): boolean {
  if (method === 'HEAD' || status >= 300) return false;
  if (upgrade !== null) return true;
  return headers.get('content-type')?.toLowerCase().startsWith('text/event-stream') ?? false;
}

function requestFields(exchange: Exchange): LogFields {
  const [path = '', query] = shownTarget(exchange).split(/\?(.*)/s);
  const { trace, tlsVersion, httpVersion } = exchange;
  return {
    request: exchange.id,
    ...(trace === null ? {} : { trace_id: trace.traceId, span_id: trace.spanId }),
    'http.request.method': exchange.method,
    'url.scheme': exchange.scheme,
    'server.address': exchange.host.slice(0, MAX_SHOWN),
    'url.path': path,
    ...(query === undefined ? {} : { 'url.query': query }),
    'client.address': exchange.clientAddress,
    'network.peer.address': exchange.remoteAddress,
    'network.protocol.name': 'http',
    'network.protocol.version': httpVersion === '2.0' ? '2' : httpVersion,
    ...(tlsVersion === null ? {} : { 'tls.protocol.version': tlsVersion.replace('TLSv', '') }),
    ...shownHeaders(exchange.headers),
  };
}

function responseFields({ status, responseBytes, upstream }: Exchange): LogFields {
  return {
    'http.response.status_code': status,
    'http.response.body.size': responseBytes,
    ...(upstream === null
      ? {}
      : {
          'hubgate.upstream.address': upstream.hostport,
          'hubgate.upstream.duration': seconds(upstream.latencyMs),
        }),
  };
}

/** To the microsecond. */
function seconds(ms: number): number {
  return Math.round(ms * 1000) / 1_000_000;
}

/** A stream is open long after it has been answered: it tells itself when it is over. */
function watchStreams(
  exchange: Exchange,
  over: (more: LogFields) => void,
): { readonly begun: boolean } {
  const state = { begun: false };
  const open = exchange.stream.bind(exchange);
  exchange.stream = (head) => new WatchedStream(open(head), state, over);
  return state;
}

class WatchedStream implements ResponseStream, StreamListener {
  readonly framing: ResponseStream['framing'];
  readonly #stream: ResponseStream;
  readonly #state: { begun: boolean };
  readonly #over: (more: LogFields) => void;
  #listener: StreamListener | null = null;
  #bytes = 0;

  constructor(stream: ResponseStream, state: { begun: boolean }, over: (more: LogFields) => void) {
    this.framing = stream.framing;
    this.#stream = stream;
    this.#state = state;
    this.#over = over;
  }

  get bufferedBytes(): number {
    return this.#stream.bufferedBytes;
  }

  get events(): number {
    return this.#listener?.events ?? 0;
  }

  write(framed: Buffer): boolean {
    this.#bytes += framed.length;
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
    this.#over({ 'http.response.body.size': this.#bytes, 'hubgate.stream.events': this.events });
  }
}

function shownTarget({ originalTarget }: Exchange): string {
  return withoutSecretParts(originalTarget.slice(0, MAX_SHOWN), HIDDEN);
}

/** A `Referer` and its like may hold what stood in the address bar. */
function shownHeaders(headers: HeaderList): Record<string, readonly string[]> {
  const shown: Record<string, string[]> = Object.create(null);
  for (const [name, value] of headers) {
    const key = name.toLowerCase();
    // Ours, and told by its parts already.
    if (key === 'traceparent') continue;
    const text = isSecretName(key) ? HIDDEN : withoutSecretParts(value.slice(0, MAX_SHOWN), HIDDEN);
    (shown[`http.request.header.${key}`] ??= []).push(text);
  }
  return shown;
}
