import { allHubs, type HubOfSite, hubsOf, matchersOf } from './sites.ts';
import type { Config, GlobalOptions, HubConfig, SiteAddress, SiteConfig } from './config.ts';
import { ANY, checkAddresses, checkPorts, LOOPBACK, portOf } from './check-addresses.ts';
import { checkHub } from './check-hub.ts';
import { type Report, error, warning } from './problem.ts';
import { asksFiles, type ConfigRegistry, dataOf, everyRoute } from './routes.ts';
import { parsePostgresUrl } from './postgres-url.ts';
import {
  isShared,
  type PostgresTransportConfig,
  storeOf,
  type TransportConfig,
} from './transports.ts';
import { firstOf } from '../kernel/collections.ts';
import { messageOf } from '../kernel/error.ts';
import { parseUrl } from '../kernel/parse.ts';

/** The properties of the machine that a configuration depends on. */
export interface Machine {
  /** Whether an absolute path exists. */
  exists(path: string): boolean;
  /** Whether its Node has zstd, which is available from 22.15 on. */
  readonly hasZstd: boolean;
}

/**
 * Checks everything that no single field can show: fields that require or exclude each other, addresses that
 * clash, settings that have no effect. The placeholders of the configuration are resolved. The keys are
 * checked where they are used, by `auth`.
 */
export function checkConfig(config: Config, registry: ConfigRegistry, report: Report): void {
  checkAddresses(config, report);
  checkPorts(config, report);
  const own = ownAddresses(config);
  for (const site of config.sites) {
    for (const hub of hubsOf(site)) {
      checkHub(hub, site, report);
      checkWorkers(hub, config.options, report);
      checkTransport(hub.transport, report);
    }
    for (const { handler } of everyRoute([...site.routes, ...site.errorRoutes], registry)) {
      dataOf(handler, registry).check?.(handler, report);
    }
    checkOwnUpstreams(site, config.options, own, registry, report);
    const { discovery } = site;
    if (discovery !== null && matchersOf(discovery).some((one) => asksFiles(one, registry))) {
      const message = 'discovery cannot use the matcher file';
      const hint = 'match by path, host, header or query instead of file';
      report(discovery, error('file-matcher', message, hint));
    }
    if (discovery !== null && site.hub === null && discovery.hub === null) {
      const message = 'this site has no hub that discovery could announce';
      const hint = 'add a hub, or name one of another site: discovery { hub hub.example.com }';
      report(discovery, error('discovery-without-hub', message, hint));
    }
  }
  checkLogs(config, registry, report);
  checkStores(config, report);
  checkHubNames(config, report);
}

/**
 * Checks that there is a site; a configuration without any is probably a mistake. The admin API runs
 * nevertheless.
 */
export function checkServed({ sites }: Config, report: Report): void {
  if (sites.length > 0) return;
  const message = 'this configuration has no site, so nothing is served';
  const hint = 'write the address of a site, for instance :8080, and its directives in { … }';
  report(null, warning('no-sites', message, hint));
}

function checkWorkers({ transport }: HubConfig, { workers }: GlobalOptions, report: Report): void {
  if (isShared(transport) || workers === null || workers === 1) return;
  const message = `with several workers each would have a ${transport.kind} transport of its own`;
  const hint = 'use transport lmdb, which workers share, or remove workers';
  report(transport, error('memory-with-workers', message, hint));
}

/** Two hubs with the same store would read each other's updates, including private ones. */
function checkStores(config: Config, report: Report): void {
  const stores = new Map<string, HubOfSite>();
  for (const one of allHubs(config)) {
    const { transport } = one.hub;
    const store = storeOf(transport);
    if (store === null) continue;
    const first = firstOf(stores, store.id, one);
    if (first === one || (saysShared(transport) && saysShared(first.hub.transport))) continue;
    const message = `two hubs keep their history in ${store.shown}`;
    const hint = 'give each hub its own store, or write `shared` in both transports';
    report(transport, error('shared-store', message, hint), { other: first.hub.transport });
  }
}

function saysShared(transport: TransportConfig): boolean {
  return 'shared' in transport && transport.shared;
}

/** Two hubs with the same name would share a health path. */
function checkHubNames(config: Config, report: Report): void {
  const names = new Map<string, HubOfSite>();
  for (const one of allHubs(config)) {
    const { hub } = one;
    if (hub.name === 'default') continue;
    const first = firstOf(names, hub.name, one);
    if (first === one) continue;
    const message = `two hubs have the same name, ${hub.name}`;
    report(hub, error('duplicate-hub-name', message), { field: 'name', other: first.hub });
  }
}

/** Checks that named logs exist, and warns about who can read what they contain. */
function checkLogs({ options, sites }: Config, registry: ConfigRegistry, report: Report): void {
  for (const servers of [options.servers, ...options.listeners.map((each) => each.servers)]) {
    if (!servers.logCredentials) continue;
    const message = 'log_credentials: anyone who can read an access log can act as its users';
    const hint = 'remove it when you have found what you were looking for';
    report(servers, warning('log-credentials', message, hint), { field: 'logCredentials' });
  }
  for (const site of sites) checkNames(site, registry, report);
}

function checkNames(
  { accessLogs, routes, errorRoutes }: SiteConfig,
  registry: ConfigRegistry,
  report: Report,
): void {
  const known = accessLogs.map(({ name }) => name);
  for (const { handler } of everyRoute([...routes, ...errorRoutes], registry)) {
    if (handler.kind !== 'log_name') continue;
    const unknown = handler.names.find((name) => !known.includes(name));
    if (unknown === undefined) continue;
    const message = `this site has no log ${unknown}`;
    const hint = `write log ${unknown} { … } in the site`;
    report(handler, error('unknown-log', message, hint));
  }
}

/** Checks the options of a transport that depend on each other, and the addresses of its servers. */
export function checkTransport(transport: TransportConfig, report: Report): void {
  const refuse = (code: string, message: string, hint: string, field?: string): void => {
    const where = field === undefined ? {} : { field };
    report(transport, error(code, message, hint), where);
  };
  if (transport.kind === 'postgres') checkPostgres(transport, refuse);
  if (transport.kind !== 'redis') return;
  const { urls, sentinel, cluster } = transport;
  if (urls.length === 0) {
    refuse('redis-without-url', 'transport redis has no url', 'add url redis://HOST:6379');
  }
  if (urls.some((url) => !isRedisUrl(url.reveal()))) {
    const hint = 'write redis://HOST:6379, or rediss://HOST:6379 for TLS';
    refuse('bad-redis-url', 'this is not the URL of a Redis server', hint, 'urls');
  }
  if (sentinel !== null && cluster) {
    const message = 'sentinel and cluster are mutually exclusive';
    refuse('mutually-exclusive', message, 'remove one of them', 'cluster');
  }
  if (urls.length > 1 && sentinel === null && !cluster) {
    const hint = 'add sentinel NAME or cluster, or name one server';
    refuse('several-redis-urls', 'several URLs, but neither sentinels nor a cluster', hint, 'urls');
  }
}

function checkPostgres(
  { url, listenUrl }: PostgresTransportConfig,
  refuse: (code: string, message: string, hint: string, field?: string) => void,
): void {
  const example = 'postgres://USER@HOST:5432/DATABASE';
  if (url === null) {
    refuse('postgres-without-url', 'transport postgres has no url', `add url ${example}`);
  }
  for (const [field, secret] of Object.entries({ url, listenUrl })) {
    if (secret === null) continue;
    try {
      parsePostgresUrl(secret.reveal());
    } catch (error) {
      refuse('bad-postgres-url', messageOf(error), `write ${example}`, field);
    }
  }
}

function isRedisUrl(text: string): boolean {
  const url = parseUrl(text);
  if (url === null) return false;
  const { protocol, hostname } = url;
  return (protocol === 'redis:' || protocol === 'rediss:') && hostname !== '';
}

/** Requests that the gateway sends to itself would return forever, or reach another site by a detour. */
function checkOwnUpstreams(
  site: SiteConfig,
  options: GlobalOptions,
  own: ReadonlyMap<string, SiteAddress>,
  registry: ConfigRegistry,
  report: Report,
): void {
  for (const { handler } of everyRoute([...site.routes, ...site.errorRoutes], registry)) {
    for (const { about, upstream } of dataOf(handler, registry).upstreams?.(handler) ?? []) {
      const url = parseUrl(upstream);
      if (url === null || !/^https?:$/.test(url.protocol)) continue;
      const host = url.hostname.replace(/^\[(.*)\]$/, '$1');
      const port = Number(url.port || (url.protocol === 'https:' ? 443 : 80));
      const other = own.get(`${host} ${port}`);
      if (other === undefined) continue;
      const message = `the upstream ${upstream.slice(0, 80)} is a port of the gateway itself`;
      const loops = site.addresses.some((address) => portOf(address, options) === port);
      const effect = loops ? 'requests would loop' : 'requests reach that site by a detour';
      const hint = `name the port of the app; ${effect}`;
      report(about, warning('upstream-is-own-port', message, hint), { other });
    }
  }
}

/**
 * The site addresses by the hosts and ports that lead to them, as far as this can be determined without a look-up.
 */
function ownAddresses({ sites, options }: Config): ReadonlyMap<string, SiteAddress> {
  const own = new Map<string, SiteAddress>();
  for (const { addresses, bind } of sites) {
    const binds = bind.flatMap((one) => (one.kind === 'host' ? [one.host] : []));
    // A site on all interfaces also listens on the loopback. Other addresses with the same port may belong to
    // another machine.
    const hosts = bind.length === 0 || binds.some((one) => ANY.has(one)) ? [...LOOPBACK] : binds;
    for (const address of addresses) {
      for (const host of [...hosts, address.host]) {
        const key = `${host} ${portOf(address, options)}`;
        if (!own.has(key)) own.set(key, address);
      }
    }
  }
  return own;
}
