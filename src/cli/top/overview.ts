import { addToList } from '../../kernel/collections.ts';
import type { Sample } from '../../kernel/measures.ts';
import type { StatusReport } from '../../runtime/health.ts';

/** The data that `hubgate top` shows and `--json` prints. Rates are per second, durations are in seconds. */
export type Overview = ReturnType<typeof overviewOf>;

/** null where nothing has come to a cache. */
function cacheOf(reading: Reading) {
  const name = 'hubgate_cache_requests_total';
  if (reading.sum(name) === 0) return null;
  const requests = reading.rate(name);
  const answered = ['hit', 'stale', 'collapsed'].reduce(
    (sum, outcome) => sum + reading.rate(name, { outcome }),
    0,
  );
  return {
    requests,
    /** The share of requests that were answered without the app. */
    hits: requests === 0 ? null : answered / requests,
    purged: reading.rate('hubgate_cache_purged_total'),
    entries: reading.sum('hubgate_cache_entries'),
    bytes: reading.sum('hubgate_cache_bytes'),
  };
}

export function overviewOf(reading: Reading) {
  const { report } = reading;
  const handshakes = reading.rate('hubgate_tls_handshakes_total');
  const resumed = reading.rate('hubgate_tls_handshakes_total', { resumed: 'yes' });
  const duration = 'hubgate_http_request_duration_seconds';
  return {
    version: report.version,
    ready: report.ready,
    fault: report.fault,
    upSeconds: Math.round(report.time / 1000 - reading.sum('process_start_time_seconds')),
    processes: Math.max(1, reading.sum('hubgate_workers')),
    configuration: {
      generation: reading.sum('hubgate_config_generation'),
      lastLoadSucceeded: report.loads.lastSucceeded,
      lastSuccess: new Date(report.loads.lastSuccessAt).toISOString(),
      loads: report.loads.succeeded,
      failures: report.loads.failed,
    },
    process: {
      /** Number of processors in use. */
      processors: reading.rate('process_cpu_seconds_total'),
      memoryBytes: reading.sum('process_resident_memory_bytes'),
      loopDelayP99: reading.percentile('nodejs_eventloop_delay_seconds', 0.99),
    },
    connections: {
      open: reading.sum('hubgate_connections_open'),
      accepted: reading.rate('hubgate_connections_total'),
      handshakes,
      /** The fraction of handshakes that resumed a session. */
      resumed: handshakes === 0 ? null : resumed / handshakes,
    },
    sites: reading.values('hubgate_http_requests_in_flight', 'site').map((site) => ({
      site,
      requests: reading.rate('hubgate_http_requests_total', { site }),
      errors: reading.rate('hubgate_http_requests_total', { site, status: '5xx' }),
      inFlight: reading.sum('hubgate_http_requests_in_flight', { site }),
      mean: reading.mean(duration, { site }),
      p99: reading.percentile(duration, 0.99, { site }),
    })),
    upstreams: reading.values('hubgate_upstream_healthy', 'upstream').map((upstream) => ({
      upstream,
      healthy: reading.sum('hubgate_upstream_healthy', { upstream }) > 0,
      answers: reading.rate('hubgate_upstream_responses_total', { upstream }),
      inFlight: reading.sum('hubgate_upstream_requests_in_flight', { upstream }),
      mean: reading.mean('hubgate_upstream_latency_seconds', { upstream }),
      failures: reading.rate('hubgate_upstream_failures_total', { upstream }),
      retries: reading.rate('hubgate_upstream_retries_total', { upstream }),
    })),
    hubs: reading.values('hub_subscribers_connected', 'hub').map((hub) => ({
      hub,
      streams: reading.sum('hub_subscribers_connected', { hub }),
      updates: reading.rate('hub_updates_total', { hub }),
      deliveries: reading.rate('hub_deliveries_total', { hub }),
      bytes: reading.rate('hub_delivered_bytes_total', { hub }),
      longestQueueBytes: reading.sum('hub_stream_queue_bytes', { hub, percentile: 'max' }),
      longestLag: reading.sum('hub_stream_lag_seconds', { hub, percentile: 'max' }),
      refusals: reading.rate('hub_refusals_total', { hub }),
    })),
    outboxes: reading.values('hub_outbox_rows', 'hub').map((hub) => ({
      hub,
      /** Whether a process of this gateway reads it. */
      reading: reading.sum('hub_outbox_reading', { hub }) > 0,
      published: reading.rate('hub_outbox_published_total', { hub }),
      rows: reading.sum('hub_outbox_rows', { hub }),
      lag: reading.sum('hub_outbox_lag_seconds', { hub }),
      deadLetters: reading.sum('hub_outbox_dead_letters_total', { hub }),
      failures: reading.rate('hub_outbox_failures_total', { hub }),
    })),
    cache: cacheOf(reading),
    slowest: report.slowest,
  };
}

/** Two consecutive reports of a gateway: current values, and how fast they grow. */
export class Reading {
  readonly report: StatusReport;
  readonly #now: ReadonlyMap<string, readonly Sample[]>;
  readonly #before: ReadonlyMap<string, readonly Sample[]>;
  readonly #seconds: number;

  constructor(before: StatusReport, report: StatusReport) {
    this.report = report;
    this.#now = byName(report);
    this.#before = byName(before);
    this.#seconds = Math.max(0.001, (report.time - before.time) / 1000);
  }

  /** The values of a label of a metric, in their order. */
  values(name: string, label: string): readonly string[] {
    const found = (this.#now.get(name) ?? []).flatMap(({ labels }) => labels[label] ?? []);
    return [...new Set(found)];
  }

  /** The sum of the series with these labels. */
  sum(name: string, labels: Sample['labels'] = {}): number {
    return total(this.#now, name, labels);
  }

  /** Their growth per second. A counter that has been reset has grown from 0. */
  rate(name: string, labels: Sample['labels'] = {}): number {
    const [now, before] = [this.sum(name, labels), total(this.#before, name, labels)];
    return (now < before ? now : now - before) / this.#seconds;
  }

  /** The mean of a distribution between the two reports; null if it has no new values. */
  mean(name: string, labels: Sample['labels'] = {}): number | null {
    const count = this.rate(`${name}_count`, labels);
    return count === 0 ? null : this.rate(`${name}_sum`, labels) / count;
  }

  /** The bound that the given fraction of a distribution's new values does not exceed. */
  percentile(name: string, share: number, labels: Sample['labels'] = {}): number | null {
    const count = this.rate(`${name}_count`, labels);
    if (count === 0) return null;
    for (const le of this.values(`${name}_bucket`, 'le')) {
      const within = this.rate(`${name}_bucket`, { ...labels, le });
      if (within >= share * count) return le === '+Inf' ? Number.POSITIVE_INFINITY : Number(le);
    }
    return null;
  }
}

function byName({ metrics }: StatusReport): ReadonlyMap<string, readonly Sample[]> {
  const found = new Map<string, Sample[]>();
  for (const { name, values } of metrics) {
    for (const sample of values) addToList(found, sample.metricName ?? name, sample);
  }
  return found;
}

function total(
  samples: ReadonlyMap<string, readonly Sample[]>,
  name: string,
  labels: Sample['labels'],
): number {
  const wanted = Object.entries(labels);
  let sum = 0;
  for (const sample of samples.get(name) ?? []) {
    if (wanted.every(([label, value]) => sample.labels[label] === value)) sum += sample.value;
  }
  return sum;
}
