import type {
  BindAddress,
  Config,
  SiteAddress,
  SiteConfig,
  ServerOptions,
} from '../config/config.ts';
import { addTo } from '../kernel/collections.ts';
import { ANY } from '../config/check-addresses.ts';
import { certificateOrigin } from '../tls/certificate-policy.ts';
import { isIP } from 'node:net';
import { type Report, warning, error } from '../config/problem.ts';
import { defaultTls } from '../config/shape-config.ts';
import type { HandshakePolicies } from '../server/tls-endpoint.ts';
import { type HandshakePolicy, openHandshakePolicy } from '../tls/handshake-policy.ts';

/** A listener that a configuration needs, and the sites that it serves. */
export interface PlannedListener {
  /** An empty host stands for all interfaces. */
  readonly bind: BindAddress;
  /** null if it does not matter: on Unix sockets, and on sockets that the gateway has inherited. */
  readonly port: number | null;
  readonly secure: boolean;
  readonly sites: readonly PlannedSite[];
  /**
   * Hosts that are redirected to their HTTPS port, if no site of this listener has the name. An empty host stands
   * for all others.
   */
  readonly redirects: ReadonlyMap<string, number>;
}

export interface PlannedSite {
  readonly site: SiteConfig;
  /** The addresses of the site on this listener. */
  readonly addresses: readonly SiteAddress[];
}

interface Draft extends Pick<PlannedListener, 'bind' | 'port' | 'secure'> {
  readonly sites: Map<SiteConfig, SiteAddress[]>;
  readonly redirects: Map<string, number>;
}

/**
 * Plans the ports that the sites need. An HTTPS site also gets a redirect on the HTTP port, unless a site has
 * that name there. If redirects are disabled, the port is opened only if ACME provides the site's certificate, for
 * challenges. With `auto_https off` it is not opened at all.
 *
 * If a socket has two schemes or two modes, which `checkConfig` reports, the first one counts.
 */
export function planListeners(config: Config): PlannedListener[] {
  const { httpPort, httpsPort, autoHttps } = config.options;
  const drafts = new Map<string, Draft>();
  const draft = (bind: BindAddress, addressPort: number, secure: boolean): Draft => {
    const port = bind.kind === 'host' ? addressPort : null;
    const key = listenerKey({ bind, port });
    const present = drafts.get(key);
    if (present !== undefined) return present;
    const made: Draft = { bind, port, secure, sites: new Map(), redirects: new Map() };
    drafts.set(key, made);
    return made;
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
        if (scheme !== 'https') continue;
        // If an HTTPS site has the port, there is nothing to redirect from.
        for (const bind of interfacesOf(site)) {
          if (drafts.get(listenerKey({ bind, port: httpPort }))?.secure === true) continue;
          // In front of an https_port of its own there is something that leads 443 to it.
          const shown = port === null || port === httpsPort ? 443 : port;
          const { redirects } = draft(bind, httpPort, false);
          if (shown === 443 || !redirects.has(host)) redirects.set(host, shown);
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
  if (bind.length === 0) return [{ kind: 'host', host: '' }];
  // A socket for `::` takes IPv4 as well.
  const isDual = bind.some((one) => one.kind === 'host' && one.host === '::');
  return isDual ? bind.filter((one) => one.kind !== 'host' || one.host !== '0.0.0.0') : bind;
}

/** The interfaces with ports: only there can HTTP be served in addition to HTTPS. */
function interfacesOf(site: SiteConfig): readonly BindAddress[] {
  return placesOf(site).filter(({ kind }) => kind === 'host');
}

/** The options of a listener: those of its own `servers <address>`, else the general ones. */
export function serversAt(
  { servers, listeners }: Config['options'],
  { bind, port }: Pick<PlannedListener, 'bind' | 'port'>,
): ServerOptions {
  if (bind.kind !== 'host') return servers;
  const own = listeners.find((each) => each.port === port && each.host === bind.host);
  return own?.servers ?? servers;
}

/** The configuration with the options of one listener. */
export function configAt(config: Config, servers: ServerOptions): Config {
  const { options } = config;
  return options.servers === servers ? config : { ...config, options: { ...options, servers } };
}

export function listenersBySite(
  plan: readonly PlannedListener[],
): ReadonlyMap<SiteConfig, ReadonlySet<PlannedListener>> {
  const listeners = new Map<SiteConfig, Set<PlannedListener>>();
  for (const planned of plan) for (const { site } of planned.sites) addTo(listeners, site, planned);
  return listeners;
}

/**
 * The options of a site's listeners. The site itself needs only those that are the same on all of
 * them; otherwise {@link checkListenerServers} has reported it.
 */
export function serversOf(
  [listener]: readonly PlannedListener[],
  { options }: Config,
): ServerOptions {
  return listener === undefined ? options.servers : serversAt(options, listener);
}

/** Checks that no port is needed for all addresses of the machine and for one of them as well. */
export function checkBinds(config: Config, report: Report): void {
  const plan = planListeners(config);
  const siteAt = (host: string): SiteConfig | undefined =>
    config.sites.find((site) =>
      interfacesOf(site).some((bind) => bind.kind === 'host' && bind.host === host),
    );
  for (const { bind, port } of plan) {
    if (bind.kind !== 'host') continue;
    for (const all of plan) {
      if (all.bind.kind !== 'host' || all.port !== port || !includes(all.bind.host, bind.host)) {
        continue;
      }
      const site = siteAt(bind.host);
      const other = siteAt(all.bind.host);
      const message = `port ${port} cannot be opened for ${bind.host} and for all addresses as well`;
      const hint = `give all sites of a port the same bind; a site with HTTPS also has the HTTP port, for redirects`;
      if (site === undefined || other === undefined) continue;
      report(site.bind, error('port-clash', message, hint), { other });
    }
  }
}

/** Whether a socket for `all` keeps another one from the same port of `host`. `::` stands for IPv4 as well. */
function includes(all: string, host: string): boolean {
  if (all === host || !ANY.has(all)) return false;
  return all !== '0.0.0.0' || (isIP(host) === 4 && !ANY.has(host));
}

/** Checks that every `servers <address>` belongs to a listener, and that none of them splits a site. */
export function checkListenerServers(config: Config, report: Report): void {
  const { options } = config;
  if (options.listeners.length === 0) return;
  const plan = planListeners(config);
  for (const listener of options.listeners) {
    const isThere = plan.some(
      ({ bind, port }) =>
        bind.kind === 'host' && bind.host === listener.host && port === listener.port,
    );
    if (isThere) continue;
    const host = isIP(listener.host) === 6 ? `[${listener.host}]` : listener.host;
    const address = `${host}:${listener.port}`;
    const message = `servers ${address} has no effect: no site listens there`;
    const hint = 'write the address of bind with the port, or only :<port>';
    report(listener, warning('servers-of-nothing', message, hint));
  }
  for (const [site, listeners] of listenersBySite(plan)) {
    const trusts = [...listeners].map((listener) => {
      const { trustedProxies, clientIpHeaders, logCredentials } = serversAt(options, listener);
      return JSON.stringify([trustedProxies, clientIpHeaders, logCredentials]);
    });
    if (new Set(trusts).size < 2) continue;
    const message =
      'the listeners of this site differ in trusted_proxies, client_ip_headers or log_credentials';
    const hint = 'give all of them the same settings, or write two sites';
    report(site, error('divided-trust', message, hint));
  }
}

/** The handshake policies of one listener, and which requests a connection may carry after its handshake. */
export interface Handshakes extends HandshakePolicies {
  /**
   * Whether a connection may carry a request for a site. A site with client certificates accepts only
   * connections on which it has requested the certificate itself. The name in a request may differ from the
   * one in the handshake, and the connection may be older than the trust pool (RFC 9110 §15.5.20).
   */
  admits(site: SiteConfig, policyId: string | null): boolean;
}

/**
 * Opens the handshake policies of a listener's sites.
 *
 * @param siteOf the site of a host, the same for server names and for requests
 * @throws the errors of {@link openHandshakePolicy}
 */
export async function openHandshakes(
  sites: readonly PlannedSite[],
  siteOf: (host: string) => SiteConfig | undefined,
): Promise<Handshakes> {
  const bySite = new Map<SiteConfig, HandshakePolicy>();
  const opened = new Map<string, HandshakePolicy>();
  for (const { site, addresses } of sites) {
    bySite.set(site, await openHandshakePolicy(site.tls, addresses, opened));
  }
  const own = [...opened.values()];
  const [only] = own;
  const open = own.find(({ clientAuth }) => clientAuth === null);
  // For names without a site, whose handshakes fail, and for addresses without a site. No client certificate
  // is requested there.
  const other =
    own.length === 1 && only !== undefined
      ? only
      : (open ?? (await openHandshakePolicy(defaultTls, [])));
  return {
    all: own.includes(other) ? own : [...own, other],
    policyFor(name) {
      const site = siteOf(isIP(name) === 6 ? `[${name}]` : name);
      return (site === undefined ? undefined : bySite.get(site)) ?? other;
    },
    admits: (site, policyId) => site.tls.clientAuth === null || bySite.get(site)?.id === policyId,
  };
}
