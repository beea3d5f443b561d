import { hash } from 'node:crypto';
import type { Config, HubConfig, OutboxConfig, SiteConfig } from '../config/config.ts';
import type { Scope } from '../kernel/scope.ts';
import type { OutboxReader } from '../outbox/outbox-reader.ts';
import { MAX_ROW_BYTES, rowUpdates } from '../outbox/row-updates.ts';
import { originOf } from './history-names.ts';
import type { ReadyHub } from './hub-setup.ts';
import type { Resources } from './resources.ts';

/** Prepares the reader of a hub's outbox; null if it has none. It reads nothing before it is started. */
export async function openOutbox(
  site: SiteConfig,
  hub: ReadyHub,
  config: Config,
  { outboxes, clock, random, log, dryRun }: Resources,
  scope: Scope,
): Promise<OutboxReader | null> {
  const { outbox, maxRequestBodySize } = hub.config;
  if (outbox === null || dryRun) return null;
  const origins = originsOf(outbox, site, config);
  const maxBytes = Math.min(maxRequestBodySize || MAX_ROW_BYTES, MAX_ROW_BYTES);
  const name = nameOf(hub.config, outbox, [hub.core.name, origins, maxBytes]);
  const lease = await outboxes.acquire(name, async () => {
    // The library of PostgreSQL is loaded when the first outbox needs it.
    const { OutboxReader: Reader } = await import('../outbox/outbox-reader.ts');
    const rules = { ...hub.publicationRules, outbox, origins, maxBytes };
    return new Reader({
      place: outbox,
      table: outbox.table,
      maxBytes,
      hub: hub.core.hub,
      updateOf: rowUpdates(rules),
      ...{ clock, random, log },
    });
  });
  return scope.hold(lease);
}

/** Where the pages are that topics which begin with "/" name. */
function originsOf(
  { origins }: OutboxConfig,
  { addresses }: SiteConfig,
  config: Config,
): readonly string[] {
  if (origins.length > 0) return origins;
  return addresses
    .filter(({ host }) => host !== '' && !host.includes('*'))
    .map((address) => originOf(address, config));
}

/** Everything that makes two readers the same. The password must not be in a name. */
function nameOf(
  { profile }: HubConfig,
  { url, ...outbox }: OutboxConfig,
  rest: readonly unknown[],
): string {
  const digest = hash('sha256', url.reveal(), 'base64url');
  return JSON.stringify([profile, digest, outbox, ...rest]);
}
