import { isIP } from 'node:net';
import type { Config, ServerOptions, SiteConfig } from '../config/config.ts';
import type { Report } from '../config/problem.ts';
import { HubgateError } from '../kernel/error.ts';
import { planListeners, type PlannedListener } from './listen-plan.ts';

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

/**
 * The options of a site's listeners. The site itself needs only the trusted proxies, which are the same on
 * all of them; otherwise {@link checkListenerServers} has reported it.
 */
export function serversOf(
  site: SiteConfig,
  { options }: Config,
  plan: readonly PlannedListener[],
): ServerOptions {
  const listener = plan.find(({ sites }) => sites.some((each) => each.site === site));
  return listener === undefined ? options.servers : serversAt(options, listener);
}

/** Checks that every `servers <address>` belongs to a listener, and that none of them splits a site. */
export function checkListenerServers(config: Config, report: Report): void {
  const { options } = config;
  if (options.listeners.length === 0) return;
  const plan = listenersOf(config);
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
    report(listener, { severity: 'warning', code: 'servers-of-nothing', message, hint });
  }
  for (const site of config.sites) {
    const trusts = plan
      .filter(({ sites }) => sites.some((each) => each.site === site))
      .map((listener) => {
        const { trustedProxies, logCredentials } = serversAt(options, listener);
        return JSON.stringify([trustedProxies, logCredentials]);
      });
    if (new Set(trusts).size < 2) continue;
    report(site, {
      severity: 'error',
      code: 'divided-trust',
      message: 'the listeners of this site differ in trusted_proxies or log_credentials',
      hint: 'give all of them the same settings, or write two sites',
    });
  }
}

/** Empty if listeners conflict, which is reported elsewhere. */
function listenersOf(config: Config): readonly PlannedListener[] {
  try {
    return planListeners(config);
  } catch (error) {
    if (error instanceof HubgateError) return [];
    throw error;
  }
}
