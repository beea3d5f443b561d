import type { SecureContextOptions } from 'node:tls';
import type { Config, SiteConfig } from '../config/config.ts';
import { answer, answerError } from '../http/answer.ts';
import type { Exchange } from '../http/exchange.ts';
import { addressSet, clientAddress } from '../http/forwarded.ts';
import { HeaderList } from '../http/header-list.ts';
import { messageOf } from '../kernel/error.ts';
import { Scope } from '../kernel/scope.ts';
import type { Service } from '../server/listener.ts';
import { hostname } from '../site/placeholders.ts';
import { createSiteRouter } from '../site/router.ts';
import type { SiteHandler } from '../site/site.ts';
import { type CertificateSource, openCertificates } from '../tls/certificates.ts';
import { type ReadyHub, setUpHub } from './hub-setup.ts';
import { listenerKey, planListeners, type PlannedListener } from './listen-plan.ts';
import type { Resources } from './resources.ts';
import type { RunningHub } from './running-hub.ts';
import { setUpSite } from './site-setup.ts';

/** A configuration as it runs. Nothing in it changes; a reload makes another. */
export interface Generation {
  serviceFor(planned: PlannedListener): {
    readonly service: Service;
    readonly fallback: SecureContextOptions | null;
  };
  readonly hubs: readonly RunningHub[];
  /** Ends the hub streams that this configuration does not allow, and says how many. */
  reauthorise(): number;
  /** Gives back what is leased. Requests in flight keep what they use. */
  release(): Promise<void>;
}

/**
 * Builds everything that a configuration needs, short of its ports.
 *
 * @throws HubgateError for whatever cannot be opened; nothing is left open then
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
  const hubs = new Map<SiteConfig, ReadyHub>();
  for (const site of config.sites) {
    if (site.hub === null) continue;
    const around = { ...resources, site: siteName(site) };
    hubs.set(site, await setUpHub(site.hub, around, scope));
  }
  const handlers = new Map(
    config.sites.map((site) => [site, setUpSite(site, config, hubs, resources, scope)]),
  );

  const services = new Map<string, ReturnType<Generation['serviceFor']>>();
  for (const planned of planListeners(config)) {
    const certificates = planned.secure ? await openSiteCertificates(planned, resources) : null;
    services.set(listenerKey(planned.host, planned.port), {
      service: createService(planned, handlers, certificates, config),
      fallback: (await certificates?.fallback()) ?? null,
    });
  }
  return {
    serviceFor({ host, port }) {
      const found = services.get(listenerKey(host, port));
      if (found === undefined) throw new TypeError(`port ${port} is not of this configuration`);
      return found;
    },
    hubs: [...hubs.values()].map(runningHub),
    reauthorise: () => [...hubs.values()].reduce((sum, hub) => sum + hub.reauthorise(), 0),
    release: () => scope.close(),
  };
}

async function openSiteCertificates(
  planned: PlannedListener,
  { authority, clock, log }: Resources,
): Promise<CertificateSource> {
  await authority.prepare();
  const sites = planned.sites.map(({ site, addresses }) => ({ addresses, tls: site.tls }));
  return openCertificates(sites, authority, clock, log);
}

function createService(
  planned: PlannedListener,
  handlers: ReadonlyMap<SiteConfig, SiteHandler>,
  certificates: CertificateSource | null,
  config: Config,
): Service {
  const { httpPort, httpsPort, servers } = config.options;
  const route = createSiteRouter(
    planned.sites.flatMap(({ site, addresses }) => {
      const handler = handlers.get(site);
      return handler === undefined ? [] : [{ addresses, site: handler }];
    }),
    {
      scheme: planned.secure ? 'https' : 'http',
      port: planned.port,
      defaultPorts: { http: httpPort, https: httpsPort },
    },
  );
  const trusted = addressSet(servers.trustedProxies);
  return {
    certificates,
    limits: servers,
    clientAddress: (request) =>
      servers.trustedProxies.length === 0
        ? null
        : clientAddress(
            request.socket.remoteAddress ?? '',
            HeaderList.fromRaw(request.rawHeaders),
            trusted,
            servers.clientIpHeaders,
          ),
    handle(exchange) {
      const handler = route(exchange.host) ?? redirect(planned, exchange) ?? misdirected;
      handler(exchange).catch((error: unknown) => {
        exchange.log.error('An answer failed', { error: messageOf(error) });
        exchange.abort();
      });
    },
  };
}

/** The site of a name that has only an HTTPS port. */
function redirect({ redirects }: PlannedListener, { host }: Exchange): SiteHandler | undefined {
  if (redirects.size === 0) return undefined;
  const name = hostname(host);
  const port = redirects.get(name) ?? redirects.get(`*${name.slice(name.indexOf('.'))}`);
  if (port === undefined) return undefined;
  return async (exchange) => {
    const authority = host.replace(/:\d+$/, '') + (port === 443 ? '' : `:${port}`);
    answer(exchange, 308, {
      location: `https://${authority}${exchange.originalTarget}`,
      connection: 'close',
    });
  };
}

/** RFC 9110 §15.5.20: no site of this port has that name. */
const misdirected: SiteHandler = async (exchange) => answerError(exchange, 421);

function runningHub({ config, core: { hub } }: ReadyHub): RunningHub {
  return {
    name: config.name,
    counts: hub.counts,
    check: () => hub.check(),
    revoke: (tokenId) => hub.revoke(tokenId),
  };
}

function siteName({ addresses }: SiteConfig): string {
  const [first] = addresses;
  return first === undefined ? '' : `${first.scheme}://${first.host}:${first.port ?? ''}`;
}
