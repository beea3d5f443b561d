import { readFileSync } from 'node:fs';
import { HubgateError, messageOf } from '../kernel/error.ts';
import type { Connections, TransportSettings } from './forwarding.ts';
import type { Upstream, UpstreamRegistry } from './upstreams.ts';

interface Member {
  readonly upstream: Upstream;
  readonly connections: Connections;
  readonly release: () => void;
}

/** The upstreams of one proxy, which can change while it runs. */
export class Members {
  readonly #registry: UpstreamRegistry;
  readonly #settings: TransportSettings;
  readonly #trustPool: string | null;
  readonly #verdict: (upstream: Upstream) => boolean;
  #known: ReadonlyMap<string, Member> = new Map();
  #connections: ReadonlyMap<Upstream, Connections> = new Map();

  /** `verdict` is the proxy's judgement about an upstream. */
  constructor(
    registry: UpstreamRegistry,
    settings: TransportSettings,
    trustPool: string | null,
    verdict: (upstream: Upstream) => boolean,
  ) {
    this.#registry = registry;
    this.#settings = settings;
    this.#trustPool = trustPool;
    this.#verdict = verdict;
  }

  /** In the order in which they were given. */
  get connections(): ReadonlyMap<Upstream, Connections> {
    return this.#connections;
  }

  /**
   * Replaces the upstreams. Exchanges in progress with removed upstreams finish.
   *
   * @throws HubgateError `invalid-upstream`
   */
  set(origins: readonly string[]): void {
    const next = new Map<string, Member>();
    for (const origin of origins) next.set(origin, this.#known.get(origin) ?? this.#lease(origin));
    for (const [origin, member] of this.#known) {
      if (next.has(origin)) continue;
      member.upstream.verdicts.delete(this.#verdict);
      member.release();
    }
    this.#known = next;
    const connections = new Map<Upstream, Connections>();
    for (const member of next.values()) connections.set(member.upstream, member.connections);
    this.#connections = connections;
  }

  /** Their results are no longer judged. */
  forget(): void {
    for (const { upstream } of this.#known.values()) upstream.verdicts.delete(this.#verdict);
  }

  /** Releases all of them. */
  release(): void {
    for (const { release } of this.#known.values()) release();
  }

  #lease(origin: string): Member {
    const upstream = this.#registry.leaseUpstream(origin);
    const { address } = upstream.value;
    const connections = this.#registry.leasePool(address, this.#settings, this.#trustPool);
    upstream.value.verdicts.add(this.#verdict);
    return {
      upstream: upstream.value,
      connections: connections.value,
      release: () => {
        upstream.release();
        connections.release();
      },
    };
  }
}

/**
 * The PEM certificates with which HTTPS upstreams are verified; null for those of the platform.
 *
 * @throws HubgateError `unreadable-trust-pool`
 */
export function readTrustPool(files: readonly string[]): string | null {
  if (files.length === 0) return null;
  try {
    return files.map((file) => readFileSync(file, 'utf8')).join('\n');
  } catch (error) {
    throw new HubgateError('unreadable-trust-pool', `tls_trust_pool: ${messageOf(error)}`, {
      cause: error,
    });
  }
}
