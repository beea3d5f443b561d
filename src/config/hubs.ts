import type { Config, HubConfig, SiteConfig } from './config.ts';

/** The hubs of a site; the first is the one that is meant where none is named. */
export function hubsOf({ hub, moreHubs }: SiteConfig): readonly HubConfig[] {
  return hub === null ? [] : [hub, ...moreHubs];
}

/** A hub and the site that it is part of. */
export interface HubOfSite {
  readonly site: SiteConfig;
  readonly hub: HubConfig;
  /** Not the one that is meant where none is named: its `name` tells it apart. */
  readonly further: boolean;
}

/** The hubs of all sites. */
export function allHubs({ sites }: Pick<Config, 'sites'>): readonly HubOfSite[] {
  return sites.flatMap((site) =>
    hubsOf(site).map((hub, index) => ({ site, hub, further: index > 0 })),
  );
}
