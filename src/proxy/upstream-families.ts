import { counter, distribution, type Family, gauge } from '../kernel/measures.ts';
import { STATUS_CLASSES, type Upstream } from './upstreams.ts';

export function upstreamFamilies(upstreams: readonly Upstream[]): readonly Family[] {
  const all = upstreams.map((one) => ({ labels: { upstream: one.address.hostport }, one }));
  return [
    gauge(
      'hubgate_upstream_healthy',
      'Whether every proxy that uses the upstream considers it healthy.',
      all.map(({ labels, one }) => [labels, one.isAvailable ? 1 : 0]),
      'min',
    ),
    gauge(
      'hubgate_upstream_requests_in_flight',
      'Requests and upgraded connections in progress.',
      all.map(({ labels, one }) => [labels, one.inFlight]),
    ),
    counter(
      'hubgate_upstream_responses_total',
      'Responses of the upstream.',
      all.flatMap(({ labels, one }) =>
        STATUS_CLASSES.map((status, index) => [
          { ...labels, status },
          one.measures.responses[index] ?? 0,
        ]),
      ),
    ),
    distribution(
      'hubgate_upstream_latency_seconds',
      'Time from sending a request to the head of the response.',
      all.map(({ labels, one }) => [labels, one.measures.latency]),
    ),
    counter(
      'hubgate_upstream_failures_total',
      'Requests without a usable response.',
      all.map(({ labels, one }) => [labels, one.measures.failures]),
    ),
    counter(
      'hubgate_upstream_retries_total',
      'Attempts after a failed one.',
      all.map(({ labels, one }) => [labels, one.measures.retries]),
    ),
  ];
}
