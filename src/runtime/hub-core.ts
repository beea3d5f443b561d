import type { TransportConfig } from '../config/config.ts';
import { Hub } from '../hub/hub.ts';
import type { Profile } from '../hub/profile.ts';
import type { Transport } from '../hub/transport.ts';
import { ConnectionCounter } from '../hub-http/connection-counter.ts';
import type { Clock } from '../kernel/clock.ts';
import { LeasePool } from '../kernel/lease.ts';
import type { Logger } from '../kernel/log.ts';
import { openLmdbTransport } from '../transports/lmdb/lmdb-transport.ts';
import { createMemoryTransport } from '../transports/memory.ts';

/** Streams that a reload ends are spread over this time, so that their clients do not return at once. */
export const SPREAD_MS = 10_000;

/** A hub's log with its open streams: what a reload keeps. */
export interface HubCore {
  readonly hub: Hub;
  readonly transport: Transport;
  readonly connections: ConnectionCounter;
}

/** Everything that makes two hubs the same hub over a reload. */
export interface HubCoreKey {
  readonly site: string;
  readonly profile: Profile;
  readonly path: string;
  readonly base: string;
  readonly transport: ResolvedTransport;
}

/** A transport whose place is known. */
export type ResolvedTransport =
  | Extract<TransportConfig, { kind: 'memory' }>
  | (Extract<TransportConfig, { kind: 'lmdb' }> & { readonly path: string });

export interface HubCoreDependencies {
  readonly clock: Clock;
  readonly log: Logger;
}

/** The pool in which hub cores live; `spreadMs` is asked when one closes. */
export function createHubCores(spreadMs: () => number, log: Logger): LeasePool<HubCore> {
  return new LeasePool<HubCore>(async ({ hub, transport }) => {
    const streams = hub.counts.connected;
    const why = 'their hub, or its transport, is no longer configured';
    if (streams > 0) log.info('Hub streams end', { streams, why });
    await hub.drain(spreadMs());
    hub.close();
    await transport.close();
  });
}

/** @throws HubgateError `transport-failed` */
export async function openHubCore(
  key: HubCoreKey,
  { clock, log }: HubCoreDependencies,
): Promise<HubCore> {
  const transport =
    key.transport.kind === 'memory'
      ? createMemoryTransport(key.transport)
      : await openLmdbTransport({ ...key.transport, clock, log });
  const names = { profile: key.profile, hubPath: key.path, base: key.base };
  return {
    hub: new Hub({ transport, names, clock, log }),
    transport,
    connections: new ConnectionCounter(),
  };
}

/** The name of a core in its pool. A memory log is one site's; a file is whoever's names it. */
export function hubCoreName({ site, profile, path, base, transport }: HubCoreKey): string {
  return JSON.stringify([
    transport.kind === 'memory' ? site : '',
    profile.name,
    path,
    base,
    Object.entries(transport),
  ]);
}
