import { parseUrl } from '../kernel/parse-url.ts';
import { ANY, LOOPBACK, portOf } from './check-ports.ts';
import type { Config, SiteAddress, SiteConfig } from './config.ts';
import type { Report } from './problem.ts';
import { type ConfigRegistry, dataOf, everyRoute } from './routes.ts';

/** Requests that are sent to the gateway itself come back for ever, or to another site by a detour. */
export function checkOwnUpstreams(
  site: SiteConfig,
  config: Config,
  registry: ConfigRegistry,
  report: Report,
): void {
  for (const { handler } of everyRoute([...site.routes, ...site.errorRoutes], registry)) {
    for (const { about, upstream } of dataOf(handler, registry).upstreams?.(handler) ?? []) {
      const other = addressOf(upstream, config);
      if (other === undefined) continue;
      const message = `the upstream ${upstream.slice(0, 80)} is a port of this gateway itself`;
      const hint = 'name the port of the app; requests would go round until somebody gives up';
      const code = 'upstream-is-own-port';
      report(about, { severity: 'warning', code, message, hint }, { other });
    }
  }
}

/** The address of a site that an upstream leads to, as far as it can be told without asking anybody. */
function addressOf(upstream: string, { sites, options }: Config): SiteAddress | undefined {
  const url = parseUrl(upstream);
  if (url === null || !/^https?:$/.test(url.protocol)) return undefined;
  const port = Number(url.port || (url.protocol === 'https:' ? 443 : 80));
  const host = url.hostname.replace(/^\[(.*)\]$/, '$1');
  for (const { addresses, bind } of sites) {
    const binds = bind.flatMap((one) => (one.kind === 'host' ? [one.host] : []));
    // Where all interfaces are bound the loopback is one of them; another machine may have the port.
    const own = bind.length === 0 || binds.some((one) => ANY.has(one)) ? LOOPBACK : new Set(binds);
    const found = addresses.find(
      (address) => portOf(address, options) === port && (own.has(host) || address.host === host),
    );
    if (found !== undefined) return found;
  }
  return undefined;
}
