import type { SiteAddress } from '../config/config.ts';
import { hostname } from './placeholders.ts';

/** Where requests arrive: one scheme per port. */
export interface Entrance {
  readonly scheme: 'http' | 'https';
  /** null if addresses are served whatever their port. */
  readonly port: number | null;
  /** The ports of addresses without one. */
  readonly defaultPorts: { readonly http: number; readonly https: number };
}

export interface RoutedSite<T> {
  readonly addresses: readonly SiteAddress[];
  readonly site: T;
}

/**
 * Finds the site of a host on one listener: the exact name, else the wildcard of its domain, else the site
 * for any host. Sites that do not listen there are left out. `host` is the value that the client sent,
 * including a port.
 */
export function createSiteRouter<T>(
  sites: readonly RoutedSite<T>[],
  entrance: Entrance,
): (host: string) => T | undefined {
  const exact = new Map<string, T>();
  const wildcards = new Map<string, T>();
  let any: T | undefined;
  for (const { addresses, site } of sites) {
    for (const address of addresses) {
      const port = address.port ?? entrance.defaultPorts[address.scheme];
      const isHere = entrance.port === null || port === entrance.port;
      if (address.scheme !== entrance.scheme || !isHere) continue;
      if (address.host === '') any ??= site;
      else if (address.host.startsWith('*.')) addNew(wildcards, address.host.slice(2), site);
      else addNew(exact, address.host, site);
    }
  }
  return (host) => {
    const name = hostname(host);
    const domain = name.slice(name.indexOf('.') + 1);
    return exact.get(name) ?? (domain === name ? undefined : wildcards.get(domain)) ?? any;
  };
}

function addNew<T>(map: Map<string, T>, key: string, value: T): void {
  if (!map.has(key)) map.set(key, value);
}
