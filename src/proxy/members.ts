import type { Clock } from '../kernel/clock.ts';
import { HubgateError, ignore, messageOf } from '../kernel/error.ts';
import { readRegularFile } from '../kernel/files.ts';
import type { InstantLease } from '../kernel/lease.ts';
import type { Logger } from '../kernel/log.ts';
import type { UpstreamAddress } from './address.ts';
import type { DynamicUpstreams } from './dynamic-upstreams.ts';
import type { Connections } from './forwarding.ts';
import { type ActiveCheckTarget, type ActiveHealth, startActiveChecks } from './health.ts';
import type { DynamicConfig, ReverseProxyConfig } from './proxy-config.ts';
import type { Upstream, UpstreamRegistry } from './upstreams.ts';

interface Member {
  readonly upstream: Upstream;
  readonly connections: Connections;
  readonly release: () => void;
}

interface MembersOptions {
  readonly registry: UpstreamRegistry;
  readonly clock: Clock;
  readonly log: Logger;
}

/** The upstreams of one proxy, which can change while it runs, and what is done to know them and their health. */
export class Members {
  readonly #config: Pick<
    ReverseProxyConfig,
    'upstreams' | 'dynamic' | 'activeHealth' | 'transport'
  >;
  readonly #options: MembersOptions;
  readonly #trustPool: string | null;
  readonly #verdict: (upstream: Upstream) => boolean;
  readonly #leases: InstantLease<unknown>[] = [];
  #dynamic: DynamicUpstreams | null = null;
  #stopListening = ignore;
  #stopChecks = ignore;
  #known: ReadonlyMap<string, Member> = new Map();
  #connections: ReadonlyMap<Upstream, Connections> = new Map();
  #order: readonly Upstream[] = [];

  /**
   * `verdict` is the proxy's judgement about an upstream.
   *
   * @throws HubgateError `invalid-upstream`
   */
  constructor(
    config: ReverseProxyConfig,
    options: MembersOptions,
    trustPool: string | null,
    verdict: (upstream: Upstream) => boolean,
  ) {
    this.#config = config;
    this.#options = options;
    this.#trustPool = trustPool;
    this.#verdict = verdict;
    this.#set(config.upstreams);
  }

  /** Begins the look-ups in the DNS and the health checks of the configuration. */
  begin(): void {
    const { dynamic, activeHealth } = this.#config;
    if (dynamic !== null) this.#follow(dynamic);
    if (activeHealth !== null) this.#startChecks(activeHealth);
  }

  /** Resolved when the first look-up in the DNS has ended; undefined if there is none. */
  get ready(): Promise<void> | undefined {
    return this.#dynamic?.ready;
  }

  /** In the order in which they were given. One that was given twice is in it twice. */
  get order(): readonly Upstream[] {
    return this.#order;
  }

  /** How each of them is reached. */
  get connections(): ReadonlyMap<Upstream, Connections> {
    return this.#connections;
  }

  /**
   * Replaces the upstreams. Exchanges in progress with removed upstreams finish.
   *
   * @throws HubgateError `invalid-upstream`
   */
  #set(origins: readonly string[]): void {
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
    this.#order = origins.flatMap((origin) => next.get(origin)?.upstream ?? []);
  }

  /** Ends look-ups and checks. The results of the upstreams are no longer judged. */
  close(): void {
    this.#stopChecks();
    this.#stopListening();
    for (const { upstream } of this.#known.values()) upstream.verdicts.delete(this.#verdict);
  }

  /** Releases all of them. */
  release(): void {
    for (const { release } of this.#known.values()) release();
    for (const lease of this.#leases) lease.release();
  }

  /** The configured upstreams are used while the DNS returns none. */
  #follow(config: DynamicConfig): void {
    const { registry, clock, log } = this.#options;
    const { name } = config;
    const dynamic = this.#keep(registry.leaseDynamic(config, clock));
    const use = (origins: readonly string[] | null): void =>
      this.#set(origins ?? this.#config.upstreams);
    this.#dynamic = dynamic;
    use(dynamic.origins);
    this.#stopListening = dynamic.listen({
      changed: (origins) => {
        log.info('The upstreams have changed', { name, upstreams: origins?.length ?? 0 });
        use(origins);
      },
      failed: (error) => log.warn('No upstreams were found', { name, error: messageOf(error) }),
    });
  }

  #startChecks(check: ActiveHealth): void {
    const { registry, clock, log } = this.#options;
    // A check must not wait behind event streams for one of the connections that requests may have.
    const transport = { ...this.#config.transport, maxConnectionsPerHost: 0 };
    const poolOf = (address: UpstreamAddress): Connections =>
      this.#keep(registry.leasePool(address, transport, this.#trustPool));
    const targets = [...this.#connections.keys()].map((upstream): ActiveCheckTarget => {
      const { address } = upstream;
      if (check.port === null || address.socketPath !== null) {
        return { upstream, pool: poolOf(address), host: address.authority };
      }
      const host = address.hostport.replace(/\d+$/, String(check.port));
      const other = { ...address, port: check.port, hostport: host, authority: host };
      return { upstream, pool: poolOf(other), host };
    });
    this.#stopChecks = startActiveChecks(check, targets, clock, log);
  }

  #keep<T>(lease: InstantLease<T>): T {
    this.#leases.push(lease);
    return lease.value;
  }

  #lease(origin: string): Member {
    const { registry } = this.#options;
    const upstream = registry.leaseUpstream(origin);
    const { address } = upstream.value;
    const connections = registry.leasePool(address, this.#config.transport, this.#trustPool);
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
    return files.map((file) => readRegularFile(file).toString('utf8')).join('\n');
  } catch (error) {
    throw new HubgateError('unreadable-trust-pool', `tls_trust_pool: ${messageOf(error)}`, {
      cause: error,
    });
  }
}
