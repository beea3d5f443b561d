// Counters are fields of the objects that count. Their labels are known in advance, so counting costs one
// addition. prom-client is loaded at the first request, and adds up and prints the counters of all workers.
// Its own histograms and process metrics are not used, because they look up labels at each observation.

import {
  counter,
  type Family,
  gauge,
  type Labels,
  distribution,
  Histogram,
  SECONDS,
} from '../kernel/measures.ts';
import type { CertificateInUse } from '../tls/certificate.ts';
import type { SiteConfig } from '../config/config.ts';
import { siteAddressText } from '../config/sites.ts';
import { ConnectionMeasures } from '../server/connection-policy.ts';
import type { SpanCounts } from './otlp-export.ts';
import { siteFamilies, SiteMeasures } from '../site/site-measures.ts';
import { closeSync, openSync, readdirSync, readFileSync } from 'node:fs';
import { constants, type PerformanceEntry, PerformanceObserver } from 'node:perf_hooks';
import type { Clock } from '../kernel/clock.ts';
import { orNull } from '../kernel/parse.ts';
import type { Logger } from '../kernel/log.ts';

/** The results of the loads of configurations. */
export interface LoadCounts {
  readonly succeeded: number;
  readonly failed: number;
  readonly lastSucceeded: boolean;
  /** Milliseconds since the Unix epoch. */
  readonly lastSuccessAt: number;
}

/** The Prometheus text exposition format 0.0.4. */
export const METRICS_TYPE = 'text/plain; version=0.0.4; charset=utf-8';

/** Most series of certificates. If a catch-all site has more, those that expire first are included. */
const MAX_CERTIFICATES = 200;
/** Characters of the label `names`; a certificate can have a hundred names. */
const MAX_NAMES_LENGTH = 256;

/** The text for Prometheus. Families with the same name, of several processes or hubs, are combined. */
export async function metricsText(families: readonly Family[]): Promise<string> {
  return (await aggregated(families)).metrics();
}

/** Combines families, so that each name occurs only once. */
export async function addedUp(families: readonly Family[]): Promise<readonly Family[]> {
  const added: unknown = await (await aggregated(families)).getMetricsAsJSON();
  // The library's results are families again.
  return added as readonly Family[];
}

async function aggregated(families: readonly Family[]) {
  // Loaded at the first request.
  const { default: prometheus } = await import('prom-client');
  return prometheus.AggregatorRegistry.aggregate([[...families]]);
}

/** Of several certificates with the same labels (for example one per port), the one that expires first. */
export function certificateFamily(certificates: readonly CertificateInUse[]): Family {
  const series = new Map<string, readonly [Labels, number]>();
  const sorted = certificates.toSorted((a, b) => a.notAfter - b.notAfter);
  for (const { names, authority, notAfter } of sorted) {
    const labels = { names: names.join(' ').slice(0, MAX_NAMES_LENGTH), authority };
    const id = JSON.stringify(labels);
    if (!series.has(id)) series.set(id, [labels, notAfter / 1000]);
    if (series.size === MAX_CERTIFICATES) break;
  }
  return gauge(
    'hubgate_certificate_not_after_seconds',
    'When a certificate in use expires, in seconds since 1970.',
    [...series.values()],
    'min',
  );
}

export function loadFamilies({
  succeeded,
  failed,
  lastSucceeded,
  lastSuccessAt,
}: LoadCounts): readonly Family[] {
  return [
    counter('hubgate_config_loads_total', 'Loads of a configuration, by outcome.', [
      [{ outcome: 'success' }, succeeded],
      [{ outcome: 'failure' }, failed],
    ]),
    gauge(
      'hubgate_config_last_load_successful',
      'Whether the last load succeeded.',
      lastSucceeded ? 1 : 0,
    ),
    gauge(
      'hubgate_config_last_load_success_timestamp_seconds',
      'When a configuration was last loaded, in seconds since 1970.',
      lastSuccessAt / 1000,
    ),
  ];
}

export function buildFamily(version: string): Family {
  const labels = { version, node: process.versions.node };
  return gauge('hubgate_build_info', 'Always 1: version and Node are labels.', [[labels, 1]]);
}

/** The label of requests that belong to no site. */
const NO_SITE = 'none';

/** The counters of a process, across its configurations. */
export class GatewayMeasures {
  readonly connections = new ConnectionMeasures();
  readonly spans: SpanCounts = { exported: 0, dropped: 0 };
  /** Number of configurations that have been activated. */
  generation = 0;
  #sites = new Map<string, SiteMeasures>();

  /**
   * The counters of a site, or those without a site. A site with the same name continues the counters of its
   * predecessor.
   */
  site(site: Pick<SiteConfig, 'addresses'> | null): SiteMeasures {
    const label = site === null ? NO_SITE : siteLabel(site);
    const measures = this.#sites.get(label) ?? new SiteMeasures();
    this.#sites.set(label, measures);
    return measures;
  }

  /** Removes sites that are no longer configured, so that their number is bounded by the configuration. */
  keep(sites: readonly Pick<SiteConfig, 'addresses'>[]): void {
    const labels = new Set([NO_SITE, ...sites.map(siteLabel)]);
    this.#sites = new Map([...this.#sites].filter(([label]) => labels.has(label)));
  }

  families(): readonly Family[] {
    return [
      ...siteFamilies(this.#sites),
      ...this.connections.families(),
      counter('hubgate_spans_total', 'Spans for the collector, by outcome.', [
        [{ outcome: 'exported' }, this.spans.exported],
        [{ outcome: 'dropped' }, this.spans.dropped],
      ]),
      gauge(
        'hubgate_config_generation',
        'Configurations that this process has activated, including the first.',
        this.generation,
        'max',
      ),
    ];
  }
}

/** The first address of a site as configured: never a value that a client has sent. */
export function siteLabel({ addresses: [first] }: Pick<SiteConfig, 'addresses'>): string {
  if (first === undefined) return '';
  return siteAddressText({ ...first, host: first.host || '*' });
}

const GC_KINDS: Readonly<Record<number, string>> = {
  [constants.NODE_PERFORMANCE_GC_MAJOR]: 'major',
  [constants.NODE_PERFORMANCE_GC_MINOR]: 'minor',
  [constants.NODE_PERFORMANCE_GC_INCREMENTAL]: 'incremental',
  [constants.NODE_PERFORMANCE_GC_WEAKCB]: 'weakcb',
};

/** The metrics of this process: processor, memory, event loop, garbage collection. */
export class ProcessMeasures {
  readonly loop: LoopWatch;
  readonly #collections = new Map(
    Object.values(GC_KINDS).map((kind) => [kind, new Histogram(SECONDS)]),
  );
  readonly #observer: PerformanceObserver;
  readonly #descriptors: DescriptorWatch;

  constructor(clock: Clock, log: Logger) {
    this.loop = new LoopWatch(clock);
    this.#descriptors = new DescriptorWatch(clock, log);
    this.#observer = new PerformanceObserver((list) => {
      for (const entry of list.getEntries()) this.#collected(entry);
    });
    this.#observer.observe({ entryTypes: ['gc'] });
  }

  families(): readonly Family[] {
    const { user, system } = process.cpuUsage();
    const { rss, heapUsed } = process.memoryUsage();
    const started = Math.round(Date.now() / 1000 - process.uptime());
    return [
      counter(
        'process_cpu_seconds_total',
        'CPU time, user and system.',
        (user + system) / 1_000_000,
      ),
      gauge('process_resident_memory_bytes', 'Resident memory.', rss),
      gauge('nodejs_heap_used_bytes', 'JavaScript heap in use.', heapUsed),
      gauge(
        'process_start_time_seconds',
        'When the process started, in seconds since 1970.',
        started,
        'min',
      ),
      ...descriptorFamilies(),
      distribution('nodejs_eventloop_delay_seconds', 'Delay of the event loop.', this.loop.delay),
      distribution(
        'nodejs_gc_duration_seconds',
        'Time of garbage collections, by kind.',
        [...this.#collections].map(([kind, durations]) => [{ kind }, durations]),
      ),
    ];
  }

  close(): void {
    this.loop.close();
    this.#descriptors.close();
    this.#observer.disconnect();
  }

  #collected(entry: PerformanceEntry): void {
    // Node provides the kind of garbage collection, but its types do not declare it.
    const { detail } = entry as { detail?: { kind?: number } };
    const kind = GC_KINDS[detail?.kind ?? 0] ?? '';
    this.#collections.get(kind)?.observe(entry.duration / 1000);
  }
}

/** Of several processes, those of the one that has most: each has a limit of its own. Only Linux reports them. */
function descriptorFamilies(): readonly Family[] {
  const limit = descriptorLimit();
  // Reading the list needs a descriptor as well.
  const open = orNull(() => readdirSync('/proc/self/fd').length) ?? limit;
  if (limit === null || open === null) return [];
  return [
    gauge('process_open_fds', 'Open file descriptors, of the process with most.', open, 'max'),
    gauge('process_max_fds', 'Limit of open file descriptors of a process.', limit, 'max'),
  ];
}

/** null if there is none, or the system does not report it. */
function descriptorLimit(): number | null {
  try {
    const limits = readFileSync('/proc/self/limits', 'utf8');
    const [, limit] = /^Max open files +(\d+)/m.exec(limits) ?? [];
    return limit === undefined ? null : Number(limit);
  } catch {
    return null;
  }
}

/** How often the descriptors are looked at. */
const DESCRIPTORS_MS = 10_000;
/** Share of the limit from which on few are left, and below which there are enough again. */
const FEW_LEFT = 0.9;
const ENOUGH_LEFT = 0.8;

/**
 * Logs that a process has nearly as many descriptors as it may have. At the limit, Node closes new connections without
 * any sign.
 */
class DescriptorWatch {
  readonly #clock: Clock;
  readonly #log: Logger;
  /** null if it is not known. It may change, and cannot be read at the limit. */
  #limit = descriptorLimit();
  #areFewLeft = false;
  #cancel: () => void;

  constructor(clock: Clock, log: Logger) {
    this.#clock = clock;
    this.#log = log;
    this.#cancel = clock.after(DESCRIPTORS_MS, () => this.#look());
  }

  close(): void {
    this.#cancel();
  }

  #look(): void {
    this.#limit = descriptorLimit() ?? this.#limit;
    const limit = this.#limit;
    if (limit === null) return;
    const open = lowestFreeDescriptor() ?? limit;
    if (!this.#areFewLeft && open >= limit * FEW_LEFT) {
      this.#areFewLeft = true;
      this.#log.warn('Few file descriptors are left. At the limit, new connections are closed', {
        open,
        limit,
        hint: 'raise the limit of open files (LimitNOFILE of the unit, or ulimit -n)',
      });
    } else if (this.#areFewLeft && open < limit * ENOUGH_LEFT) {
      this.#areFewLeft = false;
      this.#log.info('There are enough file descriptors again', { open, limit });
    }
    this.#cancel = this.#clock.after(DESCRIPTORS_MS, () => this.#look());
  }
}

/** As many descriptors as this number are open at least. null if none is free. Listing all would take long. */
function lowestFreeDescriptor(): number | null {
  try {
    const descriptor = openSync('/dev/null', 'r');
    closeSync(descriptor);
    return descriptor;
  } catch {
    return null;
  }
}

/** How often the delay of the event loop is measured. */
const TICK_MS = 100;
/** A turn that begins this much too late makes the process late… */
export const MAX_DELAY_MS = 1000;
/** …for this long afterwards. */
export const LATE_FOR_MS = 5000;

/**
 * Measures how late the turns of the event loop begin. Reading Node's own histogram resets it, so two readers
 * cannot share it.
 */
export class LoopWatch {
  readonly delay = new Histogram(SECONDS);
  readonly #clock: Clock;
  #dueMs: number;
  #lateUntilMs = Number.NEGATIVE_INFINITY;
  #cancel: () => void;

  constructor(clock: Clock) {
    this.#clock = clock;
    this.#dueMs = clock.monotonic() + TICK_MS;
    this.#cancel = clock.after(TICK_MS, () => this.#tick());
  }

  /** Whether the loop is late now, or was a moment ago. */
  get isLate(): boolean {
    const now = this.#clock.monotonic();
    return now < this.#lateUntilMs || now - this.#dueMs > MAX_DELAY_MS;
  }

  close(): void {
    this.#cancel();
  }

  #tick(): void {
    const now = this.#clock.monotonic();
    const delayMs = Math.max(0, now - this.#dueMs);
    this.delay.observe(delayMs / 1000);
    if (delayMs > MAX_DELAY_MS) this.#lateUntilMs = now + LATE_FOR_MS;
    this.#dueMs = now + TICK_MS;
    this.#cancel = this.#clock.after(TICK_MS, () => this.#tick());
  }
}
