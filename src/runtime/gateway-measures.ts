import type { SiteConfig } from '../config/config.ts';
import { counter, type Family, gauge } from '../kernel/measures.ts';
import { ConnectionMeasures } from '../server/connection-measures.ts';
import type { SpanCounts } from './otlp-export.ts';
import { siteFamilies, SiteMeasures } from '../site/site-measures.ts';

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
  const { scheme, host, port } = first;
  const name = host.includes(':') ? `[${host}]` : host || '*';
  return `${scheme}://${name}${port === null ? '' : `:${port}`}`;
}
