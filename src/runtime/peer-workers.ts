import type { PurgeOrder } from '../cache/response-caches.ts';
import type { Counted, CountPeers } from '../http/rate-limits.ts';

/** Stands for the name of a hub where all caches of a process are meant. */
export const CACHES = 'caches';

/** What ends streams of a hub, wherever they are. */
export type StreamSignal =
  | { readonly kind: 'revoked'; readonly tokenId: string }
  | { readonly kind: 'signed-out'; readonly session: string };

/** What one process tells the others about a hub that they share; `core` is the hub's name. */
export type Signal = { readonly core: string } & (
  | { readonly kind: 'appended' }
  | StreamSignal
  /** Of all caches; see {@link CACHES}. */
  | { readonly kind: 'changed'; readonly names: readonly string[] }
  /** Of a zone of `rate_limit`, whose name stands for the hub's. */
  | { readonly kind: 'counted'; readonly counted: Counted }
);

/** What another machine has sent; null for what this version does not know. */
export function parseStreamSignal(message: string): StreamSignal | null {
  try {
    const { kind, tokenId, session } = Object(JSON.parse(message));
    if (kind === 'revoked' && typeof tokenId === 'string') return { kind, tokenId };
    if (kind === 'signed-out' && typeof session === 'string') return { kind, session };
    return null;
  } catch {
    // A later version may write something else.
    return null;
  }
}

/** What another machine orders its siblings to drop; null for another message. */
export function parsePurgeSignal(message: string): PurgeOrder | null {
  try {
    const { kind, order } = Object(JSON.parse(message));
    if (kind !== 'purge') return null;
    const { kind: what, name, pattern } = Object(order);
    if (what === 'name' && typeof name === 'string') return { kind: what, name };
    if (what === 'pattern' && typeof pattern === 'string') return { kind: what, pattern };
    return what === 'all' ? { kind: what } : null;
  } catch {
    return null;
  }
}

/** The other processes that serve the same configuration: the workers of one gateway. */
export interface PeerWorkers {
  /** Tells all others; one that is not there yet misses it. */
  send(signal: Signal): void;
  /** Is told what the others send, from now on. One listener. */
  receive(listener: (signal: Signal) => void): void;
}

/** Passes the signals of siblings to the hubs that they are about. */
export class HubSignals {
  readonly #peerWorkers: PeerWorkers | null;
  readonly #hubs = new Map<string, (signal: Signal) => void>();

  /** @param siblings null for a process that serves alone */
  constructor(peerWorkers: PeerWorkers | null) {
    this.#peerWorkers = peerWorkers;
    peerWorkers?.receive((signal) => this.#hubs.get(signal.core)?.(signal));
  }

  send(signal: Signal): void {
    this.#peerWorkers?.send(signal);
  }

  /** Gives a hub the signals of its name until the returned function is called. */
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
    tell: (zone, counted) => signals.send({ core: core(zone), kind: 'counted', counted }),
    join: (zone, listener) =>
      signals.join(core(zone), (signal) => {
        if (signal.kind === 'counted') listener(signal.counted);
      }),
  };
}
