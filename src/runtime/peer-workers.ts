import type { PurgeOrder } from '../cache/response-caches.ts';
import type { Counted, CountPeers } from '../http/rate-limits.ts';
import { parseJson } from '../kernel/parse.ts';

/** Stands in place of the name of a hub for a signal to all caches of a process. */
export const CACHES = 'caches';

/** A signal that ends streams of a hub, in all processes. */
export type StreamSignal =
  | { readonly kind: 'revoked'; readonly tokenId: string }
  | { readonly kind: 'signed-out'; readonly session: string };

/** The names of what a request has changed (RFC 9111 §4.4). */
interface ChangedSignal {
  readonly kind: 'changed';
  readonly names: readonly string[];
}

/** A message between processes about a hub that they share; `core` is the hub's name. */
export type Signal = { readonly core: string } & (
  | { readonly kind: 'appended' }
  | StreamSignal
  /** For all caches; see {@link CACHES}. */
  | ChangedSignal
  /** For a zone of `rate_limit`, whose name takes the place of the hub's. */
  | { readonly kind: 'counted'; readonly counted: Counted }
);

/** A message between machines that share the history of a hub. */
export type NodeSignal =
  | StreamSignal
  | ChangedSignal
  | { readonly kind: 'purge'; readonly order: PurgeOrder };

/** Names in one message from another machine: those of a request, which are its URL and two more. */
const MAX_CHANGED_NAMES = 8;

/** Parses a message from another machine; null if this version does not know it: a later one may send others. */
export function parseNodeSignal(message: string): NodeSignal | null {
  const { kind, tokenId, session, names, order } = Object(parseJson(message));
  if (kind === 'revoked' && typeof tokenId === 'string') return { kind, tokenId };
  if (kind === 'signed-out' && typeof session === 'string') return { kind, session };
  if (kind === 'changed' && Array.isArray(names) && names.length <= MAX_CHANGED_NAMES) {
    return names.every((name) => typeof name === 'string') ? { kind, names } : null;
  }
  const purged = kind === 'purge' ? parsePurgeOrder(order) : null;
  return purged === null ? null : { kind: 'purge', order: purged };
}

function parsePurgeOrder(order: unknown): PurgeOrder | null {
  const { kind, name, pattern } = Object(order);
  if (kind === 'name' && typeof name === 'string') return { kind, name };
  if (kind === 'pattern' && typeof pattern === 'string') return { kind, pattern };
  return kind === 'all' ? { kind } : null;
}

/** The other processes that serve the same configuration: the workers of one gateway. */
export interface PeerWorkers {
  /** Sends a signal to all others. A process that has not started yet misses it. */
  send(signal: Signal): void;
  /** The same. Resolves when each process that serves has handled it. */
  sendHandled(signal: Signal): Promise<void>;
  /** Sets the single listener for signals of the others. */
  receive(listener: (signal: Signal) => void): void;
}

/** Passes the signals of other workers to their hubs. */
export class HubSignals {
  readonly #peerWorkers: PeerWorkers | null;
  readonly #hubs = new Map<string, (signal: Signal) => void>();

  /** @param peerWorkers null for a single process */
  constructor(peerWorkers: PeerWorkers | null) {
    this.#peerWorkers = peerWorkers;
    peerWorkers?.receive((signal) => this.#hubs.get(signal.core)?.(signal));
  }

  send(signal: Signal): void {
    this.#peerWorkers?.send(signal);
  }

  /** Resolves when the other processes have handled the signal; null for a single process. */
  sendHandled(signal: Signal): Promise<void> | null {
    return this.#peerWorkers?.sendHandled(signal) ?? null;
  }

  /** Passes a hub the signals with its name until the returned function is called. */
  join(core: string, listener: (signal: Signal) => void): () => void {
    this.#hubs.set(core, listener);
    return () => {
      if (this.#hubs.get(core) === listener) this.#hubs.delete(core);
    };
  }
}

/** The same for zones of `rate_limit`. */
export function countPeers(signals: HubSignals): CountPeers {
  const core = (zone: string): string => `rate_limit ${zone}`;
  return {
    notify: (zone, counted) => signals.send({ core: core(zone), kind: 'counted', counted }),
    join: (zone, listener) =>
      signals.join(core(zone), (signal) => {
        if (signal.kind === 'counted') listener(signal.counted);
      }),
  };
}
