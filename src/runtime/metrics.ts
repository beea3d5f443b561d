// Counters lie where things happen, in fields whose labels are known beforehand, so counting costs
// one addition. prom-client is loaded at the first question, and adds up and prints what all
// workers have counted. Its own histograms and process metrics are not used: they look up labels at
// each observation.

import { counter, type Family, gauge, type Labels } from '../kernel/measures.ts';
import type { CertificateInUse } from '../tls/certificate.ts';

/** How the loads of configurations have gone. */
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

/** Series of certificates; a catch-all site may have more, of which those that end first are told. */
const MAX_CERTIFICATES = 200;
/** Characters of the label `names`; a certificate may have a hundred names. */
const MAX_NAMES_LENGTH = 256;

/** What Prometheus reads. Families of one name, of several processes or hubs, become one. */
export async function metricsText(families: readonly Family[]): Promise<string> {
  return (await aggregated(families)).metrics();
}

/** Families of which each name is there once. */
export async function addedUp(families: readonly Family[]): Promise<readonly Family[]> {
  const added: unknown = await (await aggregated(families)).getMetricsAsJSON();
  // What the library has made of families are families.
  return added as readonly Family[];
}

async function aggregated(families: readonly Family[]) {
  // Loaded when somebody asks for the first time.
  const { default: prometheus } = await import('prom-client');
  return prometheus.AggregatorRegistry.aggregate([[...families]]);
}

/** Of several with the same labels (one on each port, say) the one that ends first. */
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
