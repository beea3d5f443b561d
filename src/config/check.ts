import type { Config, GlobalOptions, HubConfig } from './config.ts';
import { checkAddresses } from './check-addresses.ts';
import { checkHub } from './check-hub.ts';
import { checkPorts } from './check-ports.ts';
import { checkUpstreams } from './check-upstreams.ts';
import type { Report } from './problem.ts';

/**
 * Checks what no single field can show: fields that need or exclude each other, addresses that
 * clash, settings that cannot do what they say. The configuration has its placeholders resolved.
 * Keys themselves are checked where they are used, by `auth`.
 */
export function checkConfig(config: Config, report: Report): void {
  checkAddresses(config, report);
  checkPorts(config, report);
  for (const site of config.sites) {
    if (site.hub !== null) {
      checkHub(site.hub, site, report);
      checkWorkers(site.hub, config.options, report);
    }
    checkUpstreams([...site.routes, ...site.errorRoutes], report);
    const { discovery } = site;
    if (discovery !== null && site.hub === null && discovery.hub === null) {
      report(discovery, {
        severity: 'error',
        code: 'discovery-without-hub',
        message: 'this site has no hub to announce',
        hint: 'add a hub, or name another one: discovery { hub hub.example.com }',
      });
    }
  }
  checkHubNames(config, report);
}

/** A gateway without any site is one that forgot them; its admin API still runs. */
export function checkServed({ sites }: Config, report: Report): void {
  if (sites.length > 0) return;
  report(null, {
    severity: 'warning',
    code: 'no-sites',
    message: 'this configuration has no site, so nothing is served',
    hint: 'write the address of a site, for instance :8080, and its directives in { … }',
  });
}

function checkWorkers({ transport }: HubConfig, { workers }: GlobalOptions, report: Report): void {
  if (transport.kind !== 'memory' || workers === 1) return;
  report(transport, {
    severity: 'error',
    code: 'memory-with-workers',
    message: 'with several workers each would have a memory transport of its own',
    hint: 'use transport lmdb, which they share, or leave workers out',
  });
}

/** Two hubs of one name would share a health path and a default store. */
function checkHubNames(config: Config, report: Report): void {
  const stores = new Map<string, object>();
  for (const { hub } of config.sites) {
    if (hub?.transport.kind !== 'lmdb' || hub.transport.path === null) continue;
    const { path } = hub.transport;
    const other = stores.get(path);
    if (other === undefined) stores.set(path, hub.transport);
    else {
      const message = `two hubs keep their history in ${path}`;
      const hint = 'give each hub a path of its own';
      report(hub.transport, { severity: 'error', code: 'shared-store', message, hint }, { other });
    }
  }
  const names = new Map<string, object>();
  for (const { hub } of config.sites) {
    if (hub === null || hub.name === 'default') continue;
    const other = names.get(hub.name);
    if (other === undefined) names.set(hub.name, hub);
    else {
      const message = `two hubs have the name ${hub.name}`;
      report(
        hub,
        { severity: 'error', code: 'duplicate-hub-name', message },
        { field: 'name', other },
      );
    }
  }
}
