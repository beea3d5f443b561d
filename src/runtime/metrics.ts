// Counters are fields of the objects that count. Their labels are known in advance, so counting costs one
// addition. prom-client is loaded at the first request, and adds up and prints the counters of all workers.
// Its own histograms and process metrics are not used, because they look up labels at each observation.

import { counter, type Family, gauge, type Labels } from '../kernel/measures.ts';
import type { CertificateInUse } from '../tls/certificate.ts';

/** The results of the loads of configurations. */
export interface LoadCounts {
  readonly succeeded: number;
  readonly failed: number;
  /** Whether the last one succeeded. */
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
  for (const { names, authority, notAfter } of certificates.toSorted(byEnd)) {
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

function byEnd(a: CertificateInUse, b: CertificateInUse): number {
  return a.notAfter - b.notAfter;
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
