import { isIP } from 'node:net';
import type { Config, HubConfig, SiteAddress, SiteConfig } from '../config/config.ts';
import { allHubs, hubsOf } from '../config/sites.ts';
import type { TransportConfig } from '../config/transports.ts';
import { profiles } from '../hub/profile.ts';
import { parseUrl, requireUrl } from '../kernel/parse-url.ts';
import { placeTransport } from '../transports/registry.ts';

/** The location of the hub that a site announces. */
export type HubPlace =
  | { readonly kind: 'own'; readonly hub: HubConfig }
  | {
      readonly kind: 'site';
      readonly site: SiteConfig;
      readonly hub: HubConfig;
      readonly host: string;
      readonly url: string;
    }
  | { readonly kind: 'elsewhere'; readonly host: string; readonly url: string };

/**
 * This site's hub, one of this site by its path, one of another site by its address (`hub.example.com`, with
 * port if there are several, or as URL), or an external one by its URL; null if there is none with that name.
 */
export function placeOfHub(site: SiteConfig, config: Config): HubPlace | null {
  const named = site.discovery?.hub ?? null;
  if (named === null) return site.hub === null ? null : { kind: 'own', hub: site.hub };
  if (named.startsWith('/')) {
    const hub = hubsOf(site).find((each) => hubPath(each) === named);
    return hub === undefined ? null : { kind: 'own', hub };
  }
  for (const { site: other, hub, further } of allHubs(config)) {
    for (const address of other.addresses) {
      const origin = originOf(address, config);
      const url = origin + hubPath(hub);
      // Further hubs are identified only by their URLs.
      const names = further ? [url] : namesOf(address, origin, url);
      if (!names.includes(named.toLowerCase())) continue;
      if (other === site) return { kind: 'own', hub };
      return { kind: 'site', site: other, hub, host: address.host, url };
    }
  }
  if (parseUrl(named) === null || !/^https?:\/\//i.test(named)) return null;
  return { kind: 'elsewhere', host: requireUrl(named).hostname, url: named };
}

export function hubPath({ path, profile }: HubConfig): string {
  return path ?? profiles[profile].path;
}

function namesOf({ host, port }: SiteAddress, origin: string, url: string): readonly string[] {
  return [host, ...(port === null ? [] : [`${host}:${port}`]), origin, url];
}

/** The origin of the pages of a site at one of its addresses. */
export function originOf({ scheme, host, port }: SiteAddress, { options }: Config): string {
  const [configured, standard] =
    scheme === 'https' ? [options.httpsPort, 443] : [options.httpPort, 80];
  const actual = port ?? configured;
  const name = isIP(host) === 6 ? `[${host}]` : host;
  return `${scheme}://${name}${actual === standard ? '' : `:${actual}`}`;
}

/** Identifies a site: its first address. */
export function siteName({ addresses }: Pick<SiteConfig, 'addresses'>): string {
  const [first] = addresses;
  return first === undefined ? '' : `${first.scheme}://${first.host}:${first.port ?? ''}`;
}

/** The settings of a hub's transport with the location of its history; `site` is the name of the history. */
export function placedTransport(site: string, hub: HubConfig, storage: string): TransportConfig {
  return placeTransport(hub.transport, { storage, hub: `${site} ${hub.path ?? ''}`.trim() });
}
