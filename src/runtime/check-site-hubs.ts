import { registry } from '../directives/registry.ts';
import type { HubConfig, SiteConfig } from '../config/config.ts';
import { defaultHub } from '../config/defaults.ts';
import type { Report } from '../config/problem.ts';
import { everyRoute } from '../config/routes.ts';
import { hubPath } from './hub-place.ts';

/** Whether the further hubs of a site can be told apart: by name, and by who reaches which. */
export function checkHubsOfSite(site: SiteConfig, report: Report): void {
  const { hub, moreHubs, routes } = site;
  for (const further of moreHubs) {
    if (hub === null) {
      const message = 'moreHubs stand beside a hub, and this site has none';
      report(further, { severity: 'error', code: 'hub-without-first', message });
    } else if (further.name === defaultHub.name) {
      const message = 'a further hub of a site needs a name: its history and its metrics go by it';
      const hint = 'write name events, say, in its block';
      report(further, { severity: 'error', code: 'unnamed-hub', message, hint }, { other: hub });
    }
  }
  for (const { handler } of everyRoute(routes, registry)) {
    if (handler.kind !== 'hub' || handler.name === null) continue;
    if (moreHubs.some(({ name }) => name === handler.name)) continue;
    const message = `this site has no further hub of the name ${handler.name}`;
    report(handler, { severity: 'error', code: 'unknown-hub', message });
  }
  checkPaths(site, report);
}

/** Side by side for every request, the first takes what is at or below its path. */
function checkPaths({ hub, moreHubs, routes }: SiteConfig, report: Report): void {
  const before: HubConfig[] = [];
  for (const { matcher, handler } of routes) {
    if (handler.kind !== 'hub' || matcher !== null) continue;
    const { name } = handler;
    const [here, namesake] = name === null ? [hub] : moreHubs.filter((each) => each.name === name);
    // Two of one name are reported already.
    if (here === undefined || here === null || namesake !== undefined) continue;
    const other = before.find((each) => isBelow(hubPath(here), hubPath(each)));
    if (other !== undefined) {
      const message = `nobody reaches this hub: another one takes ${hubPath(other)}`;
      const hint = 'give each a path of its own, or a matcher: hub @matcher { … }';
      report(here, { severity: 'error', code: 'several-hubs', message, hint }, { other });
    }
    before.push(here);
  }
}

function isBelow(path: string, other: string): boolean {
  return path === other || path.startsWith(`${other}/`);
}
