import { matchersOf } from './discovery-matchers.ts';
import type { Config, GlobalOptions, HubConfig } from './config.ts';
import { checkAddresses } from './check-addresses.ts';
import { checkHub } from './check-hub.ts';
import { checkLogs } from './check-logs.ts';
import { checkOwnUpstreams } from './check-own-upstreams.ts';
import { checkPorts } from './check-ports.ts';
import { checkTransport } from './check-transport.ts';
import { allHubs, hubsOf } from './hubs.ts';
import type { Report } from './problem.ts';
import { asksFiles, type ConfigRegistry, dataOf, everyRoute } from './routes.ts';
import { isShared, storeOf, type TransportConfig } from './transports.ts';

/** What a machine has of what a configuration asks for. */
export interface Machine {
  /** Whether there is something at an absolute path. */
  exists(path: string): boolean;
  /** Whether its Node has zstd, as from 22.15 on. */
  readonly hasZstd: boolean;
}

/**
 * Checks what no single field can show: fields that need or exclude each other, addresses that
 * clash, settings that cannot do what they say. The configuration has its placeholders resolved.
 * Keys themselves are checked where they are used, by `auth`.
 */
export function checkConfig(config: Config, registry: ConfigRegistry, report: Report): void {
  checkAddresses(config, report);
  checkPorts(config, report);
  for (const site of config.sites) {
    for (const hub of hubsOf(site)) {
      checkHub(hub, site, report);
      checkWorkers(hub, config.options, report);
      checkTransport(hub.transport, report);
    }
    for (const { handler } of everyRoute([...site.routes, ...site.errorRoutes], registry)) {
      dataOf(handler, registry).check?.(handler, report);
    }
    checkOwnUpstreams(site, config, registry, report);
    const { discovery } = site;
    if (discovery !== null && matchersOf(discovery).some((one) => asksFiles(one, registry))) {
      report(discovery, {
        severity: 'error',
        code: 'file-matcher',
        message: 'discovery cannot wait for files to be looked for',
        hint: 'match by path, host, header or query instead of file',
      });
    }
    if (discovery !== null && site.hub === null && discovery.hub === null) {
      report(discovery, {
        severity: 'error',
        code: 'discovery-without-hub',
        message: 'this site has no hub to announce',
        hint: 'add a hub, or name another one: discovery { hub hub.example.com }',
      });
    }
  }
  checkLogs(config, registry, report);
  checkStores(config, report);
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
  if (isShared(transport) || workers === 1) return;
  report(transport, {
    severity: 'error',
    code: 'memory-with-workers',
    message: `with several workers each would have a ${transport.kind} transport of its own`,
    hint: 'use transport lmdb, which they share, or leave workers out',
  });
}

/** Two hubs of one store would read each other's updates, private ones too. */
function checkStores(config: Config, report: Report): void {
  const stores = new Map<string, TransportConfig>();
  for (const { hub } of allHubs(config)) {
    const store = storeOf(hub.transport);
    if (store === null) continue;
    const other = stores.get(store.id);
    if (other === undefined) stores.set(store.id, hub.transport);
    else if (!saysShared(hub.transport) || !saysShared(other)) {
      const message = `two hubs keep their history in ${store.shown}`;
      const hint = 'give each hub its own, or write `shared` in both transports';
      report(hub.transport, { severity: 'error', code: 'shared-store', message, hint }, { other });
    }
  }
}

function saysShared(transport: TransportConfig): boolean {
  return 'shared' in transport && transport.shared;
}

/** Two hubs of one name would share a health path. */
function checkHubNames(config: Config, report: Report): void {
  const names = new Map<string, object>();
  for (const { hub } of allHubs(config)) {
    if (hub.name === 'default') continue;
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
