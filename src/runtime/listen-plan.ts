import type { Config, SiteAddress, SiteConfig } from '../config/config.ts';
import { HubgateError } from '../kernel/error.ts';

/** One port that a configuration needs, and who is served there. */
export interface PlannedListener {
  /** Interface; empty for all. */
  readonly host: string;
  readonly port: number;
  readonly secure: boolean;
  readonly sites: readonly PlannedSite[];
  /** Hosts that are sent to their HTTPS port, where no site of this listener has the name. */
  readonly redirects: ReadonlyMap<string, number>;
}

export interface PlannedSite {
  readonly site: SiteConfig;
  /** The addresses of the site on this listener. */
  readonly addresses: readonly SiteAddress[];
}

interface Draft {
  readonly host: string;
  readonly port: number;
  readonly secure: boolean;
  readonly sites: Map<SiteConfig, SiteAddress[]>;
  readonly redirects: Map<string, number>;
}

/**
 * Which ports the sites need. An HTTPS site also gets a redirect on the HTTP port, unless a site
 * is there by that name or redirects are off.
 *
 * @throws HubgateError `listener-conflict` for HTTP and HTTPS on one port
 */
export function planListeners(config: Config): PlannedListener[] {
  const { httpPort, httpsPort, autoHttps } = config.options;
  const drafts = new Map<string, Draft>();
  const draft = (host: string, port: number, secure: boolean): Draft => {
    const key = listenerKey(host, port);
    const present = drafts.get(key);
    if (present === undefined) {
      const made = { host, port, secure, sites: new Map(), redirects: new Map() };
      drafts.set(key, made);
      return made;
    }
    if (present.secure !== secure) {
      throw new HubgateError(
        'listener-conflict',
        `Port ${port} is asked to speak both HTTP and HTTPS; give the sites different ports`,
      );
    }
    return present;
  };

  for (const site of config.sites) {
    for (const address of site.addresses) {
      const secure = address.scheme === 'https';
      const port = address.port ?? (secure ? httpsPort : httpPort);
      for (const host of interfaces(site)) {
        const { sites } = draft(host, port, secure);
        sites.set(site, [...(sites.get(site) ?? []), address]);
      }
    }
  }
  if (autoHttps === 'on') {
    for (const site of config.sites) {
      for (const { scheme, host, port } of site.addresses) {
        if (scheme !== 'https' || host === '') continue;
        // The port may be taken by an HTTPS site: then there is nothing to redirect from.
        for (const bind of interfaces(site)) {
          if (drafts.get(listenerKey(bind, httpPort))?.secure === true) continue;
          draft(bind, httpPort, false).redirects.set(host, port ?? httpsPort);
        }
      }
    }
  }
  return [...drafts.values()].map((one) => ({
    ...one,
    sites: [...one.sites].map(([site, addresses]) => ({ site, addresses })),
  }));
}

export function listenerKey(host: string, port: number): string {
  return `${host === '' ? '*' : host}|${port}`;
}

function interfaces({ bind }: SiteConfig): readonly string[] {
  return bind.length === 0 ? [''] : bind;
}
