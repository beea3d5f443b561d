import { counter, distribution, type Family, gauge } from '../kernel/measures.ts';
import { STATUS_CLASSES, type Upstream } from './upstreams.ts';

export function upstreamFamilies(upstreams: readonly Upstream[]): readonly Family[] {
  const all = upstreams.map((one) => ({ labels: { upstream: one.address.hostport }, one }));
  return [
    gauge(
      'hubgate_upstream_healthy',
      'Whether every proxy that uses the upstream would give it a request.',
      all.map(({ labels, one }) => [labels, one.isAvailable ? 1 : 0]),
      'min',
    ),
    gauge(
      'hubgate_upstream_requests_in_flight',
      'Requests and upgraded connections under way.',
      all.map(({ labels, one }) => [labels, one.inFlight]),
    ),
    counter(
      'hubgate_upstream_responses_total',
      'Answers of the upstream.',
      all.flatMap(({ labels, one }) =>
        STATUS_CLASSES.map((status, index) => [
          { ...labels, status },
          one.measures.responses[index] ?? 0,
        ]),
      ),
    ),
    distribution(
      'hubgate_upstream_latency_seconds',
      'Time from sending a request to the head of the answer.',
      all.map(({ labels, one }) => [labels, one.measures.latency]),
    ),
    counter(
      'hubgate_upstream_failures_total',
      'Requests to which the upstream gave no usable answer.',
      all.map(({ labels, one }) => [labels, one.measures.failures]),
    ),
    counter(
      'hubgate_upstream_retries_total',
      'Attempts that followed a failed one.',
      all.map(({ labels, one }) => [labels, one.measures.retries]),
    ),
  ];
}
