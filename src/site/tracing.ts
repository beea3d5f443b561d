import type { Exchange } from '../http/exchange.ts';
import { type TraceContext, traceRequest } from '../http/trace-context.ts';
import type { Clock } from '../kernel/clock.ts';
import { withoutSecretParts } from '../kernel/secret.ts';
import type { SiteHandler } from './site.ts';

/** A completed request in a trace. */
export interface Span extends Omit<TraceContext, 'flags'> {
  /** The method, because paths are unlimited in number. */
  readonly name: string;
  /** Milliseconds since the Unix epoch. */
  readonly startMs: number;
  readonly endMs: number;
  readonly isError: boolean;
  readonly attributes: Readonly<Record<string, string | number>>;
}

/** The destination of spans. It drops those that it cannot accept. */
export interface SpanSink {
  add(span: Span): void;
}

/** Continues or begins a trace (W3C Trace Context), and passes its span to the sink, if there is one. */
export function traceSite(
  inner: SiteHandler,
  site: string,
  sink: SpanSink | null,
  clock: Clock,
): SiteHandler {
  if (sink === null) {
    return (exchange) => {
      exchange.trace = traceRequest(exchange.headers);
      return inner(exchange);
    };
  }
  return async (exchange) => {
    const trace = traceRequest(exchange.headers);
    exchange.trace = trace;
    const startMs = clock.now();
    const began = clock.monotonic();
    try {
      await inner(exchange);
    } finally {
      const ended = (): void =>
        sink.add({
          ...trace,
          name: exchange.originalMethod,
          startMs,
          endMs: startMs + clock.monotonic() - began,
          isError: exchange.status >= 500,
          attributes: attributesOf(exchange, site),
        });
      if (exchange.awaitsSent?.(ended) !== true) ended();
    }
  };
}

/** Neither the query nor headers: they may contain secrets, and the data leaves this machine. */
function attributesOf(exchange: Exchange, site: string): Span['attributes'] {
  const { upstream, tlsVersion, originalTarget, httpVersion } = exchange;
  const [path = ''] = originalTarget.slice(0, MAX_PATH).split('?', 1);
  return {
    'http.request.method': exchange.originalMethod,
    'url.scheme': exchange.scheme,
    'url.path': withoutSecretParts(path, 'REDACTED'),
    'server.address': exchange.originalHost.slice(0, MAX_PATH),
    'client.address': exchange.clientAddress,
    'network.protocol.version': httpVersion === '2.0' ? '2' : httpVersion,
    'http.response.status_code': exchange.status,
    'http.response.body.size': exchange.responseBytes,
    'hubgate.site': site,
    ...(tlsVersion === null ? {} : { 'tls.protocol.version': tlsVersion.replace('TLSv', '') }),
    ...(upstream === null
      ? {}
      : {
          'hubgate.upstream.address': upstream.hostport,
          'hubgate.upstream.duration': upstream.latencyMs / 1000,
        }),
  };
}

/** Characters of a path or a host. */
const MAX_PATH = 1024;
