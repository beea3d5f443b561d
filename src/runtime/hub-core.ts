import { hash } from 'node:crypto';
import { isShared, type TransportConfig } from '../config/transports.ts';
import {
  type AnnouncementCounts,
  noWatchCounts,
  UnstoredChanges,
  type WatchCounts,
} from '../discovery/announced-hub.ts';
import type { ResponseCaches } from '../cache/response-caches.ts';
import { Hub, type HubOptions, type HistoryObserver } from '../hub/hub.ts';
import type { Profile } from '../hub/profile.ts';
import type { Transport } from '../hub/transport.ts';
import { ConnectionCounter } from '../hub-http/endpoint.ts';
import { CircuitBreaker } from '../kernel/circuit-breaker.ts';
import { LeasePool } from '../kernel/lease.ts';
import { HubgateError } from '../kernel/error.ts';
import type { Logger } from '../kernel/log.ts';
import { Secret } from '../kernel/secret.ts';
import { openTransport } from '../transports/registry.ts';
import {
  type HubSignals,
  type NodeSignal,
  parseNodeSignal,
  type StreamSignal,
} from './peer-workers.ts';

/**
 * Time over which a reload spreads the ends of streams, so that their clients do not all reconnect at once.
 */
export const SPREAD_MS = 10_000;

/** A hub's history with its open streams: the part that a reload keeps. */
export interface HubCore {
  /** The name of the core in its pool. */
  readonly name: string;
  readonly hub: Hub;
  readonly transport: Transport;
  readonly connections: ConnectionCounter;
  readonly announcements: AnnouncementCounts;
  /** Changes of the app that wait for the store. */
  readonly unstored: UnstoredChanges;
  /** Pages whose followers this process watches for. */
  readonly watching: WatchCounts;
  /** Ends the streams of a token in all workers and on all machines. */
  revoke(tokenId: string): Revoked;
  /** Ends the streams of a browser session in all workers and on all machines. */
  signOut(session: string): void;
  /**
   * Sends a signal to the other machines that share the history; null if there are none. Resolves to whether they
   * get it now, as {@link TransportSignals.send}.
   */
  notifyNodes(signal: NodeSignal): Promise<boolean> | null;
  /** Disconnects this hub from the other workers. */
  detach(): void;
}

interface Revoked {
  /** Streams that ended in this process. */
  readonly ended: number;
  /** As {@link HubCore.notifyNodes}. */
  readonly notified: Promise<boolean> | null;
}

/** The error of an order that is carried out here, while other machines cannot be notified. */
export function nodesNotNotified(): HubgateError {
  const message =
    'The store of a hub is unreachable. The order is carried out on this machine. Other machines get it when the store is back, unless this process ends before. Repeat it';
  return new HubgateError('nodes-not-told', message);
}

/** Everything that makes two hubs the same hub across a reload. */
export interface HubCoreKey {
  readonly site: string;
  readonly profile: Profile;
  readonly path: string;
  readonly base: string;
  /** Including its location: no defaults are left to be filled in. */
  readonly transport: TransportConfig;
}

export interface HubCoreDependencies
  extends Pick<HubOptions, 'clock' | 'wheel' | 'scheduler' | 'log'> {
  readonly signals: HubSignals;
  readonly caches: ResponseCaches;
}

/** The fraction of the time for a stop during which streams end. The rest is for their last bytes. */
const DRAIN_SHARE = 0.8;
/** Milliseconds for each stream: a few streams end at once, and reconnecting clients find capacity. */
const MS_PER_STREAM = 10;

/** The time over which a stopping gateway ends its streams, in milliseconds. */
export function drainSpread(streams: number, withinMs: number): number {
  return streams === 1 ? 0 : Math.min(withinMs * DRAIN_SHARE, streams * MS_PER_STREAM);
}

/**
 * Creates the pool of hub cores. `stoppingWithinMs` is called when a core closes; null if the gateway
 * continues.
 */
export function createHubCores(
  stoppingWithinMs: () => number | null,
  log: Logger,
): LeasePool<HubCore> {
  return new LeasePool<HubCore>(async ({ hub, transport, unstored, detach }) => {
    detach();
    const lost = unstored.close();
    if (lost > 0) {
      log.error('Changes of the app are not announced: the store is unreachable', {
        changes: lost,
      });
    }
    const streams = hub.counts.connected;
    const withinMs = stoppingWithinMs();
    const spread = withinMs === null ? SPREAD_MS : drainSpread(streams, withinMs);
    const why =
      withinMs === null
        ? 'their hub, or its transport, is no longer configured'
        : 'the gateway stops';
    if (streams > 0) log.info('Hub streams end', { streams, why, overMs: Math.round(spread) });
    await hub.drain(spread, withinMs === null);
    hub.close();
    await transport.close();
  });
}

/**
 * @throws HubgateError `transport-failed`, `history-too-new`. A damaged history is opened as one that refuses
 * every operation
 */
export async function openHubCore(
  key: HubCoreKey,
  { signals, clock, wheel, scheduler, log, caches }: HubCoreDependencies,
): Promise<HubCore> {
  const core = hubCoreName(key);
  const appended = (): void => signals.send({ core, kind: 'appended' });
  const transport = await openTransport(key.transport, { appended, scheduler, clock, log });
  const names = { profile: key.profile, hubPath: key.path, base: key.base };
  const observer = purgingObserver(caches);
  const hub = new Hub({ transport, names, clock, wheel, scheduler, log, observer });
  const breaker = new CircuitBreaker(clock);
  const leaveCaches = caches.join({
    caughtUp() {
      if (breaker.isOpen) throw new HubgateError('transport-failed', 'The store is slow');
      const behind = transport.caughtUp?.() ?? null;
      return behind === null ? null : breaker.limit(behind);
    },
  });
  const apply = (signal: StreamSignal): number =>
    signal.kind === 'revoked'
      ? hub.revocation.revoke(signal.tokenId)
      : hub.revocation.signOut(signal.session);
  const notifyNodes = (signal: NodeSignal): Promise<boolean> | null =>
    transport.signals?.send(JSON.stringify(signal)) ?? null;
  const notifyAll = (signal: StreamSignal): Revoked => {
    signals.send({ core, ...signal });
    const notified = notifyNodes(signal);
    return { ended: apply(signal), notified };
  };
  transport.signals?.receive((message) => {
    const signal = parseNodeSignal(message);
    if (signal?.kind === 'purge') void caches.order(signal.order);
    else if (signal?.kind === 'changed') caches.purge(signal.names, 'method');
    else if (signal !== null) apply(signal);
  });
  const leavePeers = signals.join(core, (signal) => {
    if (signal.kind === 'appended') transport.wake();
    else if (signal.kind === 'revoked' || signal.kind === 'signed-out') apply(signal);
  });
  return {
    name: core,
    hub,
    transport,
    connections: new ConnectionCounter(),
    announcements: noAnnouncements(),
    unstored: new UnstoredChanges(clock),
    watching: noWatchCounts(),
    revoke: (tokenId) => notifyAll({ kind: 'revoked', tokenId }),
    signOut: (session) => void notifyAll({ kind: 'signed-out', session }),
    notifyNodes,
    detach: () => {
      leavePeers();
      leaveCaches();
    },
  };
}

/** Drops what an update names before anybody is given it: whoever fetches because of it gets what is new. */
function purgingObserver(caches: ResponseCaches): HistoryObserver {
  return {
    received: (entries) => {
      for (const { update } of entries) {
        if (update.presence !== true) caches.purge(update.topics, 'update');
      }
    },
    missed: () => void caches.purgeAll('missed'),
  };
}

export function noAnnouncements(): AnnouncementCounts {
  return {
    announced: 0,
    merged: 0,
    refused: 0,
    collapsed: 0,
    withheldForVisitor: 0,
    withheldForScript: 0,
    withheldGone: 0,
  };
}

/**
 * The name of a core in its pool. A history in memory belongs to one site; a store is shared by all hubs that
 * name it.
 */
export function hubCoreName({ site, profile, path, base, transport }: HubCoreKey): string {
  return JSON.stringify([
    isShared(transport) ? '' : site,
    profile.name,
    path,
    base,
    Object.entries(transport),
    // A different password means a different transport, but the password must not be in a name.
    hash('sha256', JSON.stringify(secretsOf(transport)), 'hex'),
  ]);
}

function secretsOf(transport: TransportConfig): readonly string[] {
  const values: readonly unknown[] = Object.values(transport).flat();
  return values.flatMap((value) => (value instanceof Secret ? [value.reveal()] : []));
}
