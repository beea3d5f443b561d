import { readdirSync } from 'node:fs';
import type { CertificateInUse } from '../tls/certificate-in-use.ts';
import type { GatewayStatus } from './gateway.ts';
import type { RunningHub } from './running-hub.ts';

/** How the loads of configurations have gone. */
export interface LoadCounts {
  readonly succeeded: number;
  readonly failed: number;
  /** Whether the last one succeeded. */
  readonly lastSucceeded: boolean;
  /** Milliseconds since the Unix epoch. */
  readonly lastSuccessAt: number;
}

interface Metric {
  readonly name: string;
  readonly kind: 'counter' | 'gauge';
  readonly help: string;
  readonly samples: readonly {
    readonly labels?: Readonly<Record<string, string>>;
    readonly value: number;
  }[];
}

/** The Prometheus text exposition format 0.0.4. */
export const METRICS_TYPE = 'text/plain; version=0.0.4; charset=utf-8';

/** Series of certificates; a catch-all site may have more, of which those that end first are told. */
const MAX_CERTIFICATES = 200;
/** Characters of the label `names`; a certificate may have a hundred names. */
const MAX_NAMES_LENGTH = 256;

/** What Prometheus reads of the hubs, of the certificates, of the loads, and of the process. */
export function metricsText({ hubs, certificates }: GatewayStatus, loads: LoadCounts): string {
  return [
    ...hubMetrics(hubs),
    certificateMetric(certificates),
    ...loadMetrics(loads),
    ...processMetrics(),
  ]
    .map(write)
    .join('');
}

function hubMetrics(hubs: readonly RunningHub[]): Metric[] {
  const names = [...new Set(hubs.map(({ name }) => name))];
  const sum = (name: string, count: keyof RunningHub['counts']): number =>
    hubs.filter((hub) => hub.name === name).reduce((total, { counts }) => total + counts[count], 0);
  const samples = (count: keyof RunningHub['counts']): Metric['samples'] =>
    names.map((name) => ({ labels: { hub: name }, value: sum(name, count) }));
  return [
    {
      name: 'hub_subscribers_connected',
      kind: 'gauge',
      help: 'Event streams that are open.',
      samples: samples('connected'),
    },
    {
      name: 'hub_subscribers_total',
      kind: 'counter',
      help: 'Event streams that have been opened.',
      samples: samples('subscribers'),
    },
    {
      name: 'hub_updates_total',
      kind: 'counter',
      help: 'Updates that have been published.',
      samples: samples('updates'),
    },
    {
      name: 'hub_legacy_tokens_total',
      kind: 'counter',
      help: 'Requests with a token that only 0.x compatibility accepts.',
      samples: samples('legacyTokens'),
    },
    {
      name: 'hub_announced_updates_total',
      kind: 'counter',
      help: 'Updates that the gateway made of answers of the app.',
      samples: samples('announced'),
    },
    {
      name: 'hub_merged_changes_total',
      kind: 'counter',
      help: 'Changes that became part of another update.',
      samples: samples('merged'),
    },
    {
      name: 'hub_refused_announcements_total',
      kind: 'counter',
      help: 'Updates of answers of the app that were refused.',
      samples: samples('refused'),
    },
    {
      name: 'hub_collapsed_refetches_total',
      kind: 'counter',
      help: 'Refetches of live pages that another answer served.',
      samples: samples('collapsed'),
    },
  ];
}

/** Of several with the same labels (one on each port, say) the one that ends first. */
function certificateMetric(certificates: readonly CertificateInUse[]): Metric {
  const samples = new Map<string, Metric['samples'][number]>();
  for (const { names, authority, notAfter } of certificates.toSorted(byEnd)) {
    const labels = { names: names.join(' ').slice(0, MAX_NAMES_LENGTH), authority };
    const id = JSON.stringify(labels);
    if (!samples.has(id)) samples.set(id, { labels, value: notAfter / 1000 });
    if (samples.size === MAX_CERTIFICATES) break;
  }
  return {
    name: 'hubgate_certificate_not_after_seconds',
    kind: 'gauge',
    help: 'When a certificate in use ends, in seconds since the epoch.',
    samples: [...samples.values()],
  };
}

function byEnd(a: CertificateInUse, b: CertificateInUse): number {
  return a.notAfter - b.notAfter;
}

function loadMetrics({ succeeded, failed, lastSucceeded, lastSuccessAt }: LoadCounts): Metric[] {
  return [
    {
      name: 'hubgate_config_loads_total',
      kind: 'counter',
      help: 'Configurations that were loaded, and those that were refused.',
      samples: [
        { labels: { outcome: 'success' }, value: succeeded },
        { labels: { outcome: 'failure' }, value: failed },
      ],
    },
    {
      name: 'hubgate_config_last_load_successful',
      kind: 'gauge',
      help: 'Whether the last load succeeded.',
      samples: [{ value: lastSucceeded ? 1 : 0 }],
    },
    {
      name: 'hubgate_config_last_load_success_timestamp_seconds',
      kind: 'gauge',
      help: 'When a load last succeeded.',
      samples: [{ value: lastSuccessAt / 1000 }],
    },
  ];
}

function processMetrics(): Metric[] {
  const { user, system } = process.cpuUsage();
  const { rss, heapUsed } = process.memoryUsage();
  const gauge = (name: string, help: string, value: number): Metric => ({
    name,
    kind: 'gauge',
    help,
    samples: [{ value }],
  });
  const descriptors = openDescriptors();
  return [
    {
      name: 'process_cpu_seconds_total',
      kind: 'counter',
      help: 'Processor time, of user and system.',
      samples: [{ value: (user + system) / 1_000_000 }],
    },
    gauge('process_resident_memory_bytes', 'Memory in use.', rss),
    gauge('nodejs_heap_used_bytes', 'Memory of JavaScript in use.', heapUsed),
    gauge(
      'process_start_time_seconds',
      'When the process was started.',
      Math.round(Date.now() / 1000 - process.uptime()),
    ),
    ...(descriptors === null
      ? []
      : [gauge('process_open_fds', 'File descriptors that are open.', descriptors)]),
  ];
}

function openDescriptors(): number | null {
  try {
    return readdirSync('/proc/self/fd').length;
  } catch {
    // Only Linux tells.
    return null;
  }
}

function write({ name, kind, help, samples }: Metric): string {
  const lines = samples.map(({ labels = {}, value }) => {
    const pairs = Object.entries(labels).map(([label, text]) => `${label}="${escaped(text)}"`);
    return `${name}${pairs.length === 0 ? '' : `{${pairs.join(',')}}`} ${value}`;
  });
  return [`# HELP ${name} ${help}`, `# TYPE ${name} ${kind}`, ...lines, ''].join('\n');
}

function escaped(text: string): string {
  return text.replaceAll('\\', '\\\\').replaceAll('"', '\\"').replaceAll('\n', '\\n');
}
