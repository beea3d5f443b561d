import type { Clock } from '../kernel/clock.ts';
import {
  BYTES,
  counter,
  distribution,
  type Family,
  gauge,
  Histogram,
  type Labels,
  SECONDS,
  type Series,
} from '../kernel/measures.ts';
import type { SiteHandler } from './site.ts';

/** Methods with a series of their own; any other method of a client is `other`. */
const METHODS = [
  'GET',
  'HEAD',
  'POST',
  'PUT',
  'PATCH',
  'DELETE',
  'OPTIONS',
  'QUERY',
  'CONNECT',
  'other',
] as const;
const OTHER = METHODS.length - 1;
/** `none`: the client left before there was a response. */
const CLASSES = ['none', '1xx', '2xx', '3xx', '4xx', '5xx'] as const;

const methodIndex: ReadonlyMap<string, number> = new Map(
  METHODS.map((method, index) => [method, index]),
);

/** The counters for the requests of one site. */
export class SiteMeasures {
  inFlight = 0;
  readonly latency = new Histogram(SECONDS);
  readonly requestSize = new Histogram(BYTES);
  readonly responseSize = new Histogram(BYTES);
  readonly #requests = new Float64Array(METHODS.length * CLASSES.length);

  count(method: string, status: number): void {
    const statusClass = Math.min(Math.floor(status / 100), CLASSES.length - 1);
    const index = (methodIndex.get(method) ?? OTHER) * CLASSES.length + statusClass;
    this.#requests[index] = (this.#requests[index] ?? 0) + 1;
  }

  /** The number of requests so far. */
  requests(site: string): Series {
    return [...this.#requests].flatMap((value, index) => {
      if (value === 0) return [];
      const method = METHODS[Math.floor(index / CLASSES.length)] ?? 'other';
      const status = CLASSES[index % CLASSES.length] ?? 'none';
      return [[{ site, method, status }, value] as const];
    });
  }
}

/**
 * Counts the responses of a site when their content is complete or cut off or, for an event stream, when it is open.
 */
export function measureSite(inner: SiteHandler, measures: SiteMeasures, clock: Clock): SiteHandler {
  return (exchange) => {
    const began = clock.monotonic();
    measures.inFlight += 1;
    const count = (): void => {
      measures.inFlight -= 1;
      measures.latency.observe((clock.monotonic() - began) / 1000);
      measures.count(exchange.originalMethod, exchange.status);
      measures.responseSize.observe(exchange.responseBytes);
      if (exchange.hasBody) {
        const length = Number(exchange.headers.get('content-length'));
        if (length > 0) measures.requestSize.observe(length);
      }
    };
    // One function for both ends, which passes an error on.
    const ended = (error?: unknown): void => {
      if (exchange.awaitsSent?.(count) !== true) count();
      if (error !== undefined) throw error;
    };
    return inner(exchange).then(ended, ended);
  };
}

export function siteFamilies(sites: ReadonlyMap<string, SiteMeasures>): readonly Family[] {
  const all = [...sites];
  const histograms = (pick: (one: SiteMeasures) => Histogram) =>
    all.map(([site, one]): [Labels, Histogram] => [{ site }, pick(one)]);
  return [
    counter(
      'hubgate_http_requests_total',
      'Answered requests.',
      all.flatMap(([site, one]) => one.requests(site)),
    ),
    gauge(
      'hubgate_http_requests_in_flight',
      'Requests in progress, without open event streams.',
      all.map(([site, { inFlight }]) => [{ site }, inFlight]),
    ),
    distribution(
      'hubgate_http_request_duration_seconds',
      'Time from the head of a request to the end of its response, or to the beginning of its event stream.',
      histograms(({ latency }) => latency),
    ),
    distribution(
      'hubgate_http_request_size_bytes',
      'Sizes of request bodies with a known length.',
      histograms(({ requestSize }) => requestSize),
    ),
    distribution(
      'hubgate_http_response_size_bytes',
      'Sizes of response bodies as sent; for event streams, only the beginning.',
      histograms(({ responseSize }) => responseSize),
    ),
  ];
}
