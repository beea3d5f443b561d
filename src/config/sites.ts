// The first hub of a site is used if none is named, above all by discovery. Further hubs are identified by
// their `name`. A route of kind `hub` marks the position of each hub among the routes.

import type { Config, DiscoveryConfig, HubConfig, SiteAddress, SiteConfig } from './config.ts';
import type { RequestMatcher } from './routes.ts';
import { isIP } from 'node:net';

/** The hubs of a site. The first one is used if none is named. */
export function hubsOf({ hub, moreHubs }: SiteConfig): readonly HubConfig[] {
  return hub === null ? [] : [hub, ...moreHubs];
}

export interface HubOfSite {
  readonly site: SiteConfig;
  readonly hub: HubConfig;
  /** Whether it is not the first hub of its site, so that only its `name` identifies it. */
  readonly further: boolean;
}

export function allHubs({ sites }: Pick<Config, 'sites'>): readonly HubOfSite[] {
  return sites.flatMap((site) =>
    hubsOf(site).map((hub, index) => ({ site, hub, further: index > 0 })),
  );
}

/** The matchers of all requests that a site's discovery refers to. */
export function matchersOf({ matcher, changes, live }: DiscoveryConfig): RequestMatcher[] {
  const ofChanges = changes.flatMap((one) => [
    one.matcher,
    ...one.alsoFor.map((also) => also.matcher),
  ]);
  const all = [matcher, live?.matcher ?? null, ...ofChanges];
  return all.filter((one) => one !== null);
}

/** An address in the notation of a Hubfile. */
export function siteAddressText({ scheme, host, port }: SiteAddress): string {
  const name = isIP(host) === 6 ? `[${host}]` : host;
  return `${scheme}://${name}${port === null ? '' : `:${port}`}`;
}

/** Whether a site verifies the certificates of its clients, so that they prove the client's identity. */
export function verifiesClients({ tls }: Pick<SiteConfig, 'tls'>): boolean {
  const mode = tls.clientAuth?.mode;
  return mode === 'verify_if_given' || mode === 'require_and_verify';
}
