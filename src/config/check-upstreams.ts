import { ANY, LOOPBACK, portOf } from './check-ports.ts';
import type { Config, RouteConfig, SiteAddress, SiteConfig } from './config.ts';
import type { Report } from './problem.ts';
import { proxiesOf } from './proxies.ts';
import { parseUrl } from '../kernel/parse-url.ts';

/** What a placeholder brought into an upstream must still be an origin. */
export function checkUpstreams(routes: readonly RouteConfig[], report: Report): void {
  for (const proxy of proxiesOf(routes)) {
    for (const upstream of proxy.upstreams) {
      if (isUpstream(upstream)) continue;
      const message = `the upstream "${upstream.slice(0, 80)}" is not http://host:port`;
      const hint = 'a placeholder stands for host or host:port; use {$VAR} for a whole URL';
      report(proxy, { severity: 'error', code: 'bad-upstream', message, hint });
    }
  }
}

/** Requests that are sent to the gateway itself come back for ever, or to another site by a detour. */
export function checkOwnUpstreams(site: SiteConfig, config: Config, report: Report): void {
  for (const proxy of proxiesOf([...site.routes, ...site.errorRoutes])) {
    for (const upstream of proxy.upstreams) {
      const other = addressOf(upstream, config);
      if (other === undefined) continue;
      const message = `the upstream ${upstream.slice(0, 80)} is a port of this gateway itself`;
      const hint = 'name the port of the app; requests would go round until somebody gives up';
      const code = 'upstream-is-own-port';
      report(proxy, { severity: 'warning', code, message, hint }, { other });
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

function isUpstream(text: string): boolean {
  if (/^unix:\/./.test(text)) return true;
  const url = parseUrl(text);
  if (url === null) return false;
  const { protocol, username, pathname, search, hash } = url;
  const isHttp = protocol === 'http:' || protocol === 'https:';
  return isHttp && username === '' && pathname === '/' && search === '' && hash === '';
}
