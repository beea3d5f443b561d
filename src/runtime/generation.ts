import type { Config, SiteConfig } from '../config/config.ts';
import { allHubs, siteAddressText } from '../config/sites.ts';
import type { Revocation } from '../hub/revocation.ts';
import type { MayStayOpen } from '../hub/subscriber.ts';
import { answer, answerError } from '../http/answer.ts';
import type { Exchange } from '../http/exchange.ts';
import { addressSet, clientAddress } from '../http/forwarded.ts';
import { addToList } from '../kernel/collections.ts';
import type { Family } from '../kernel/measures.ts';
import { messageOf } from '../kernel/error.ts';
import { Scope } from '../kernel/scope.ts';
import type { OutboxReader } from '../outbox/outbox-reader.ts';
import type { Handshake } from '../server/connection-policy.ts';
import type { Service } from '../server/listener.ts';
import { hostname } from '../site/placeholders.ts';
import { hidingFiles } from '../site/site-files.ts';
import { measureSite } from '../site/site-measures.ts';
import { createSiteRouter, type SiteHandler } from '../site/site.ts';
import type { Challenges } from '../tls/acme/challenges.ts';
import type { Certificate, CertificateInUse } from '../tls/certificate.ts';
import {
  type CertificateOrder,
  type CertificateSource,
  openCertificates,
} from '../tls/certificates.ts';
import {
  type Handshakes,
  openHandshakes,
  configAt,
  serversAt,
  listenersBySite,
  serversOf,
  listenerKey,
  planListeners,
  type PlannedListener,
} from './listen-plan.ts';
import { historyNames, keepHistoryNames, projectOf } from './history-names.ts';
import { type HubCore, SPREAD_MS } from './hub-core.ts';
import { hubFamilies, type RunningHub, slowestOf, type SlowSubscriber } from './hub-families.ts';
import { type ReadyHub, setUpHub } from './hub-setup.ts';
import { OtlpExport } from './otlp-export.ts';
import { openOutbox } from './outbox-setup.ts';
import { saltName } from './playground-keys.ts';
import type { Resources } from './resources.ts';
import { setUpSite } from './site-setup.ts';

/** Streams that would end. */
export interface EndingStreams {
  /** Addresses of the hub's site, or of all sites whose hubs share the history. */
  readonly hub: string;
  readonly count: number;
  readonly why: string;
}

/** A running configuration. It never changes; a reload creates another one. */
export interface Generation {
  serviceFor(planned: PlannedListener): {
    readonly service: Service;
    readonly fallback: Certificate | null;
  };
  readonly hubs: readonly RunningHub[];
  /** The streams of its hubs with the most waiting data. */
  slowest(): Promise<readonly SlowSubscriber[]>;
  /** The metrics of its hubs. */
  families(): Promise<readonly Family[]>;
  /**
   * The histories with the streams of these hubs, and the sites of each. Another generation may share some of them.
   */
  readonly cores: ReadonlyMap<HubCore, string>;
  /** Names of histories that the active configuration has and this one does not have. */
  readonly historiesLeftBehind: readonly string[];
  certificates(): readonly CertificateInUse[];
  /** Ends the hub streams that this configuration does not allow, and returns their number. */
  reauthorise(): number;
  /** The streams that `reauthorise` would end. */
  refusedStreams(): readonly EndingStreams[];
  /** The certificates that `begin` would order at once. */
  orders(): readonly CertificateOrder[];
  /**
   * Makes this the active generation: the names of its histories are stored, and certificates are ordered.
   * The ports must be open, because authorities connect to them.
   */
  begin(): void;
  /** Releases all leases. Requests in progress keep what they use. */
  release(): Promise<void>;
}

/**
 * Builds everything that a configuration needs, except its ports.
 *
 * @throws HubgateError for anything that cannot be opened; nothing is left open then
 */
export async function buildGeneration(config: Config, resources: Resources): Promise<Generation> {
  const scope = new Scope();
  try {
    return await build(config, resources, scope);
  } catch (error) {
    await scope.close();
    throw error;
  }
}

async function build(config: Config, resources: Resources, scope: Scope): Promise<Generation> {
  const hubs = new Map<SiteConfig, ReadyHub[]>();
  const outboxes = new Map<ReadyHub, OutboxReader>();
  const names = historyNames(config, resources.storage);
  const salts = resources.saltsFor(config);
  for (const one of allHubs(config)) {
    const { site, hub } = one;
    const playgroundSalt = salts[saltName(one)] ?? null;
    const around = { ...resources, site: names.of(site, hub), playgroundSalt };
    const ready = await setUpHub(hub, around, scope);
    addToList(hubs, site, ready);
    const outbox = await openOutbox(site, ready, config, resources, scope);
    if (outbox !== null) outboxes.set(ready, outbox);
  }
  const running = [...hubs.values()].flat();
  const shared = hubsByCore(hubs);
  const spans = openSpans(config, resources, scope);
  const plan = planListeners(config);
  const listeners = listenersBySite(plan);
  const routers = new Map(plan.map((planned) => [planned, siteRouter(planned, config)]));
  const handlers = new Map<SiteConfig, SiteHandler>();
  const begins: (() => void)[] = [];
  // Looks at the disk for each file, once for all sites.
  const hidesFile = hidingFiles(config.options.hiddenFiles, resources.storage);
  const around = { hubs, spans, hidesFile };
  for (const site of config.sites) {
    const entrances = [...(listeners.get(site) ?? [])];
    const own = configAt(config, serversOf(entrances, config));
    const origins = originsOf(site, entrances, routers);
    const { handle, begin } = await setUpSite(site, own, origins, around, resources, scope);
    handlers.set(site, handle);
    begins.push(begin);
  }

  const services = new Map<string, ReturnType<Generation['serviceFor']>>();
  const sources: CertificateSource[] = [];
  const allSites = config.sites.map(({ addresses, tls }) => ({ addresses, tls }));
  for (const [planned, siteOf] of routers) {
    const sites = planned.sites.map(({ site, addresses }) => ({ addresses, tls: site.tls }));
    const tools = { ...resources, options: config.options, allSites };
    const certificates = planned.secure ? await openCertificates(sites, tools, scope) : null;
    if (certificates !== null) sources.push(certificates);
    const policies = planned.secure ? await openHandshakes(planned.sites, siteOf) : null;
    services.set(listenerKey(planned), {
      service: createService(
        planned,
        siteOf,
        handlers,
        { certificates, policies, challenges: resources.managed.challenges },
        measureSite(nowhere(planned), resources.measures.site(null), resources.clock),
        configAt(config, serversAt(config.options, planned)),
      ),
      fallback: resources.dryRun ? null : ((await certificates?.fallback()) ?? null),
    });
  }
  return {
    serviceFor(planned) {
      const key = listenerKey(planned);
      const found = services.get(key);
      if (found === undefined) throw new TypeError(`${key} is not part of this configuration`);
      return found;
    },
    hubs: running.map((hub) => runningHub(hub, outboxes.get(hub) ?? null)),
    async slowest() {
      const answers = await Promise.all(
        running.map(async ({ config: { name }, core }) =>
          (await core.hub.backlog()).slowest.map((stream) => ({ ...stream, hub: name })),
        ),
      );
      return slowestOf(answers.flat());
    },
    async families() {
      const answers = await Promise.all(
        running.map((hub) => hubFamilies(hub, outboxes.get(hub)?.counts ?? null)),
      );
      return answers.flat();
    },
    cores: new Map([...shared].map(([core, { sites }]) => [core, sites] as const)),
    certificates: () => [
      ...sources.flatMap((source) => source.certificates()),
      ...(sources.length > 0 ? resources.authority.certificates() : []),
    ],
    historiesLeftBehind: names.leftBehind,
    refusedStreams: () =>
      [...shared].flatMap(([core, { sites, keep }]) =>
        refusedOf(sites, core.hub.revocation.countRefused(keep)),
      ),
    orders: () => sources.flatMap((source) => source.orders()),
    begin() {
      resources.playgrounds.keep(salts);
      resources.measures.keep(config.sites);
      try {
        keepHistoryNames(names, resources.storage, projectOf(config));
      } catch (error) {
        resources.log.error('The names of the histories cannot be stored', {
          error: messageOf(error),
        });
      }
      for (const source of sources) source.begin();
      for (const beginSite of begins) beginSite();
      for (const outbox of outboxes.values()) outbox.start();
    },
    reauthorise() {
      let ending = 0;
      for (const [core, { sites, keep }] of shared) {
        const streams = core.hub.revocation.reauthorise(keep, SPREAD_MS);
        ending += streams;
        if (streams === 0) continue;
        const why = 'their issuer or key, or anonymous access, is no longer configured';
        resources.log.info('Hub streams end', { site: sites, streams, why });
      }
      return ending;
    },
    release: () => scope.close(),
  };
}

function openSpans(
  { options: { trace } }: Config,
  { measures, clock, log }: Resources,
  scope: Scope,
): OtlpExport | null {
  if (!trace.enabled || trace.otlp === null) return null;
  return scope.use(new OtlpExport({ url: trace.otlp, counts: measures.spans, clock, log, fetch }));
}

/** A name that is redirected counts as a site of its own, so that a site for any host does not take it. */
function siteRouter(
  { sites, redirects, secure, port }: PlannedListener,
  { options: { httpPort, httpsPort } }: Config,
): (host: string) => SiteConfig | undefined {
  const entrance = {
    scheme: secure ? 'https' : 'http',
    port,
    defaultPorts: { http: httpPort, https: httpsPort },
  } as const;
  const names = [...redirects.keys()].filter((host) => host !== '');
  const redirected = names.map((host) => ({ scheme: entrance.scheme, host, port: null }));
  const find = createSiteRouter<{ readonly site?: SiteConfig }>(
    [
      ...sites.map((one) => ({ addresses: one.addresses, site: one })),
      { addresses: redirected, site: {} },
    ],
    entrance,
  );
  return (host) => find(host)?.site;
}

/** Whether a URL is one of this site, whatever port of the outside its host names. */
function originsOf(
  site: SiteConfig,
  entrances: readonly PlannedListener[],
  routers: ReadonlyMap<PlannedListener, (host: string) => SiteConfig | undefined>,
): (url: URL) => boolean {
  return ({ protocol, host }) =>
    entrances.some((planned) => {
      const scheme = planned.secure ? 'https:' : 'http:';
      return protocol === scheme && routers.get(planned)?.(host) === site;
    });
}

function createService(
  planned: PlannedListener,
  siteOf: (host: string) => SiteConfig | undefined,
  handlers: ReadonlyMap<SiteConfig, SiteHandler>,
  {
    certificates,
    policies,
    challenges,
  }: {
    readonly certificates: CertificateSource | null;
    readonly policies: Handshakes | null;
    readonly challenges: Challenges;
  },
  siteless: SiteHandler,
  { options: { servers } }: Config,
): Service {
  const handlerOf = (exchange: Exchange, handshake: Handshake | null): SiteHandler => {
    const site = siteOf(exchange.host);
    if (site === undefined) return siteless;
    const admitted =
      policies?.admits(site, handshake?.policyId ?? null) ?? site.tls.clientAuth === null;
    // A site without client certificates also accepts connections of other sites, but ignores the certificate
    // that was verified for them.
    if (admitted && site.tls.clientAuth !== null) {
      exchange.identity.certificate = handshake?.certificate ?? null;
    }
    return (admitted ? handlers.get(site) : undefined) ?? siteless;
  };
  const trusted = addressSet(servers.trustedProxies);
  return {
    certificates,
    policies,
    limits: servers,
    sendsProxyHeader: addressSet(servers.proxyProtocol),
    clientAddress:
      servers.trustedProxies.length === 0
        ? null
        : (headers, peer) => clientAddress(peer, headers, trusted, servers.clientIpHeaders),
    handle(exchange, handshake) {
      const site = handlerOf(exchange, handshake);
      const token = planned.secure ? null : challengeToken(exchange);
      const responding =
        token === null ? site(exchange) : answerChallenge(exchange, token, challenges, site);
      responding.catch((error: unknown) => {
        exchange.log.error('A response failed', { error: messageOf(error) });
        exchange.abort();
      });
    },
  };
}

/** Responds if no site of the port has the name. */
function nowhere(planned: PlannedListener): SiteHandler {
  return (exchange) => (redirect(planned, exchange) ?? misdirected)(exchange);
}

/** Redirects for a name that has only an HTTPS port. */
function redirect({ redirects }: PlannedListener, { host }: Exchange): SiteHandler | undefined {
  if (redirects.size === 0) return undefined;
  const name = hostname(host);
  const wildcard = `*${name.slice(name.indexOf('.'))}`;
  const port = redirects.get(name) ?? redirects.get(wildcard) ?? redirects.get('');
  // A request of HTTP/1.0 may name no host.
  if (port === undefined || name === '') return undefined;
  return async (exchange) => {
    const authority = host.replace(/:\d+$/, '') + (port === 443 ? '' : `:${port}`);
    answer(exchange, 308, {
      location: `https://${authority}${exchange.originalTarget}`,
      connection: 'close',
    });
  };
}

/** RFC 9110 §15.5.20: no site of this port has that name, or not for this connection. */
const misdirected: SiteHandler = async (exchange) => answerError(exchange, 421);

function siteText({ addresses }: SiteConfig): string {
  return addresses.map(siteAddressText).join(', ');
}

/** All hubs of a history have the same streams: one stays open if one of these hubs allows it. */
interface SharedStreams {
  /** Addresses of the sites of these hubs. */
  readonly sites: string;
  readonly keep: MayStayOpen;
}

function hubsByCore(
  hubs: ReadonlyMap<SiteConfig, readonly ReadyHub[]>,
): ReadonlyMap<HubCore, SharedStreams> {
  const sharing = new Map<HubCore, { readonly site: string; readonly keeps: MayStayOpen }[]>();
  for (const [site, own] of hubs) {
    for (const { core, keeps } of own) addToList(sharing, core, { site: siteText(site), keeps });
  }
  return new Map(
    [...sharing].map(([core, those]) => {
      const sites = [...new Set(those.map(({ site }) => site))].join(', ');
      return [core, { sites, keep: oneKeeps(those.map(({ keeps }) => keeps)) }];
    }),
  );
}

/** The rule outlives its generation, so it refers to nothing else of it. */
function oneKeeps(rules: readonly MayStayOpen[]): MayStayOpen {
  return (stream) => rules.some((keeps) => keeps(stream));
}

function refusedOf(
  hub: string,
  { anonymous, authorised }: ReturnType<Revocation['countRefused']>,
): EndingStreams[] {
  return [
    { hub, count: anonymous, why: 'anonymous access is no longer configured' },
    { hub, count: authorised, why: 'their issuer or its key is no longer configured' },
  ].filter(({ count }) => count > 0);
}

function runningHub({ config, core }: ReadyHub, outbox: OutboxReader | null): RunningHub {
  const { hub, announcements } = core;
  return {
    name: config.name,
    profile: config.profile,
    get counts() {
      return { ...hub.counts, ...announcements };
    },
    async check() {
      await core.transport.check();
      outbox?.check();
    },
  };
}

const CHALLENGES = '/.well-known/acme-challenge/';
const TOKEN = /^[A-Za-z0-9_-]+$/;

/** The token of a request for an HTTP-01 challenge (RFC 8555 §8.3); null for any other request. */
function challengeToken({ method, originalTarget }: Exchange): string | null {
  if (!originalTarget.startsWith(CHALLENGES) || (method !== 'GET' && method !== 'HEAD'))
    return null;
  const token = originalTarget.slice(CHALLENGES.length);
  return TOKEN.test(token) ? token : null;
}

/**
 * Responds to a challenge before any other handler of a listener. Unknown challenges are passed on, because an
 * app behind the gateway may get certificates of its own.
 */
async function answerChallenge(
  exchange: Exchange,
  token: string,
  challenges: Challenges,
  site: SiteHandler,
): Promise<void> {
  const found = await challenges.keyAuthorization(token).catch((error: unknown) => {
    // Anyone can cause it while the storage fails.
    exchange.log.debug('A challenge cannot be read', { token, error: messageOf(error) });
    return null;
  });
  if (found === null) await site(exchange);
  else answer(exchange, 200, { 'content-type': 'application/octet-stream' }, found);
}
