import { bindAddressText } from '../config/bind-address.ts';
import type { BindAddress, Config, SiteAddress, SiteConfig } from '../config/config.ts';
import { HubgateError } from '../kernel/error.ts';
import { certificateOrigin } from '../tls/certificate-policy.ts';

/** A listener that a configuration needs, and the sites that it serves. */
export interface PlannedListener {
  /** An empty host stands for all interfaces. */
  readonly bind: BindAddress;
  /** null if it does not matter: on Unix sockets, and on sockets that the gateway has inherited. */
  readonly port: number | null;
  readonly secure: boolean;
  readonly sites: readonly PlannedSite[];
  /** Hosts that are redirected to their HTTPS port, if no site of this listener has the name. */
  readonly redirects: ReadonlyMap<string, number>;
}

export interface PlannedSite {
  readonly site: SiteConfig;
  /** The addresses of the site on this listener. */
  readonly addresses: readonly SiteAddress[];
}

interface Draft {
  readonly bind: BindAddress;
  readonly port: number | null;
  readonly secure: boolean;
  readonly sites: Map<SiteConfig, SiteAddress[]>;
  readonly redirects: Map<string, number>;
}

/**
 * Plans the ports that the sites need. An HTTPS site also gets a redirect on the HTTP port, unless a site has
 * that name there or redirects are off. In that case the port is opened only for challenges, if ACME provides
 * the site's certificate. With `auto_https off` it is not opened at all.
 *
 * @throws HubgateError `listener-conflict` for HTTP and HTTPS on one port
 */
export function planListeners(config: Config): PlannedListener[] {
  const { httpPort, httpsPort, autoHttps } = config.options;
  const drafts = new Map<string, Draft>();
  const draft = (bind: BindAddress, addressPort: number, secure: boolean): Draft => {
    const port = bind.kind === 'host' ? addressPort : null;
    const key = listenerKey({ bind, port });
    const present = drafts.get(key);
    if (present === undefined) {
      const made = { bind, port, secure, sites: new Map(), redirects: new Map() };
      drafts.set(key, made);
      return made;
    }
    if (present.secure !== secure) {
      const what = port === null ? bindAddressText(bind) : `Port ${port}`;
      throw new HubgateError(
        'listener-conflict',
        `${what} cannot speak both HTTP and HTTPS; give the sites different addresses`,
      );
    }
    if (bindAddressText(present.bind) !== bindAddressText(bind)) {
      throw new HubgateError(
        'listener-conflict',
        `${bindAddressText(bind)} and ${bindAddressText(present.bind)} are the same socket with different modes`,
      );
    }
    return present;
  };

  for (const site of config.sites) {
    for (const address of site.addresses) {
      const secure = address.scheme === 'https';
      const port = address.port ?? (secure ? httpsPort : httpPort);
      for (const bind of placesOf(site)) {
        const { sites } = draft(bind, port, secure);
        sites.set(site, [...(sites.get(site) ?? []), address]);
      }
    }
  }
  if (autoHttps === 'on') {
    for (const site of config.sites) {
      for (const { scheme, host, port } of site.addresses) {
        if (scheme !== 'https' || host === '') continue;
        // If an HTTPS site has the port, there is nothing to redirect from.
        for (const bind of interfacesOf(site)) {
          if (drafts.get(listenerKey({ bind, port: httpPort }))?.secure === true) continue;
          // In front of an https_port of its own there is something that leads 443 to it.
          const shown = port === null || port === httpsPort ? 443 : port;
          draft(bind, httpPort, false).redirects.set(host, shown);
        }
      }
    }
  }
  if (autoHttps === 'disable_redirects') {
    for (const site of config.sites) {
      if (!site.addresses.some((address) => isOrdered(address, site, config))) continue;
      for (const bind of interfacesOf(site)) {
        // Opened for HTTP-01 challenges. If an HTTPS site has the port, only TLS-ALPN-01 is possible.
        const taken = drafts.get(listenerKey({ bind, port: httpPort }))?.secure === true;
        if (!taken) draft(bind, httpPort, false);
      }
    }
  }
  return [...drafts.values()].map((one) => ({
    ...one,
    sites: [...one.sites].map(([site, addresses]) => ({ site, addresses })),
  }));
}

/** Whether ACME provides the certificate of an address. */
function isOrdered({ scheme, host }: SiteAddress, { tls }: SiteConfig, config: Config): boolean {
  if (scheme !== 'https') return false;
  return ['acme', 'on-demand'].includes(certificateOrigin(host, tls, config.options).kind);
}

/** A key that is equal for two plans of the same listener. */
export function listenerKey({ bind, port }: Pick<PlannedListener, 'bind' | 'port'>): string {
  switch (bind.kind) {
    case 'host':
      return `${bind.host === '' ? '*' : bind.host}|${port}`;
    case 'unix':
      return `unix/${bind.path}`;
    case 'fd':
      return `fd/${bind.fd}`;
  }
}

function placesOf({ bind }: SiteConfig): readonly BindAddress[] {
  return bind.length === 0 ? [{ kind: 'host', host: '' }] : bind;
}

/** The interfaces with ports: only there can HTTP be served in addition to HTTPS. */
function interfacesOf(site: SiteConfig): readonly BindAddress[] {
  return placesOf(site).filter(({ kind }) => kind === 'host');
}
