import type { RouteConfig } from './config.ts';
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

function isUpstream(text: string): boolean {
  if (/^unix:\/./.test(text)) return true;
  const url = parseUrl(text);
  if (url === null) return false;
  const { protocol, username, pathname, search, hash } = url;
  const isHttp = protocol === 'http:' || protocol === 'https:';
  return isHttp && username === '' && pathname === '/' && search === '' && hash === '';
}
