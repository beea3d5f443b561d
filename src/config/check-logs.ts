import type { Config, SiteConfig } from './config.ts';
import type { Report } from './problem.ts';
import { type ConfigRegistry, everyRoute } from './routes.ts';

/** Whether logs that are named exist, and who is to know what is in them. */
export function checkLogs(
  { options, sites }: Config,
  registry: ConfigRegistry,
  report: Report,
): void {
  for (const servers of [options.servers, ...options.listeners.map((each) => each.servers)]) {
    if (!servers.logCredentials) continue;
    const message = 'log_credentials: whoever reads an access log can act as the users in it';
    const hint = 'leave it out once you have seen what you were looking for';
    const finding = { severity: 'warning', code: 'log-credentials', message, hint } as const;
    report(servers, finding, { field: 'logCredentials' });
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
    report(handler, { severity: 'error', code: 'unknown-log', message, hint });
  }
}
