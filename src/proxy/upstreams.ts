import { type InstantLease, InstantLeases } from '../kernel/lease.ts';
import type { Clock } from '../kernel/clock.ts';
import { parseUpstream, type UpstreamAddress } from './address.ts';
import { DynamicUpstreams } from './dynamic-upstreams.ts';
import { openConnections } from './connections.ts';
import type { Connections, TransportSettings } from './forwarding.ts';
import type { DynamicConfig } from './proxy-config.ts';
import { Histogram, SECONDS } from '../kernel/measures.ts';

/** Failures remembered of one upstream; more say nothing new. */
const MAX_FAILURES = 1_000;

/** One upstream as all who use it know it, over reloads. */
export class Upstream {
  readonly address: UpstreamAddress;
  /** Requests and upgraded connections in progress. */
  inFlight = 0;
  readonly measures = new UpstreamMeasures();
  /** What each proxy that uses it thinks of it. */
  readonly verdicts = new Set<(upstream: Upstream) => boolean>();
  /** Active checks, by what they check, whose last answer was bad. */
  readonly failingChecks = new Set<string>();
  /** By what they check: good answers in a row, or, below 0, bad ones. */
  readonly checkRuns = new Map<string, number>();
  /** Monotonic milliseconds, oldest first. */
  readonly #failures: number[] = [];

  constructor(address: UpstreamAddress) {
    this.address = address;
  }

  /** Whether all of them would give it a request. */
  get isAvailable(): boolean {
    for (const verdict of this.verdicts) if (!verdict(this)) return false;
    return true;
  }

  recordFailure(nowMs: number): void {
    if (this.#failures.length === MAX_FAILURES) this.#failures.shift();
    this.#failures.push(nowMs);
  }

  /** Failures at or after that monotonic moment. */
  failuresSince(momentMs: number): number {
    let count = 0;
    for (let i = this.#failures.length - 1; i >= 0; i -= 1) {
      if ((this.#failures[i] ?? 0) < momentMs) break;
      count += 1;
    }
    return count;
  }
}

/**
 * What outlives a reload: the state of upstreams by address, and their connections by address and
 * transport settings. A new generation takes its leases before the old one releases, so that neither health
 * nor open connections are lost in between.
 */
export class UpstreamRegistry {
  readonly #upstreams = new InstantLeases<Upstream>(() => {});
  readonly #dynamic = new InstantLeases<DynamicUpstreams>((list) => list.close());
  readonly #pools = new InstantLeases<Connections>((pool) => pool.close());

  /** @throws HubgateError `invalid-upstream` */
  leaseUpstream(text: string): InstantLease<Upstream> {
    const address = parseUpstream(text);
    return this.#upstreams.acquire(originOf(address), () => new Upstream(address));
  }

  /** `trustPool` is part of the key, so that a renewed file gets connections of its own. */
  leasePool(
    address: UpstreamAddress,
    settings: TransportSettings,
    trustPool: string | null,
  ): InstantLease<Connections> {
    const key = JSON.stringify([originOf(address), settings, trustPool]);
    return this.#pools.acquire(key, () => openConnections(address, settings, trustPool));
  }

  /** The old list is there for a new generation, while its own first lookup runs. */
  leaseDynamic(config: DynamicConfig, clock: Clock): InstantLease<DynamicUpstreams> {
    return this.#dynamic.acquire(JSON.stringify(config), () => new DynamicUpstreams(config, clock));
  }

  /** Upstreams in use, for metrics and the admin API. */
  upstreams(): Upstream[] {
    return this.#upstreams.values();
  }

  /** Breaks off every connection to every upstream. */
  destroy(): void {
    for (const pool of this.#pools.values()) pool.destroy();
  }
}

/** Also by the protocol: one that has changed to `h2c` is another upstream. */
function originOf({ protocol, hostport, http2 }: UpstreamAddress): string {
  return `${protocol}//${hostport}${http2 ? ' by HTTP/2' : ''}`;
}

export const STATUS_CLASSES = ['1xx', '2xx', '3xx', '4xx', '5xx'] as const;

/** What is counted of one upstream. */
class UpstreamMeasures {
  /** Attempts that were repeated with it, after it or another had failed. */
  retries = 0;
  failures = 0;
  /** Until the head of its answer. */
  readonly latency = new Histogram(SECONDS);
  readonly responses = new Float64Array(STATUS_CLASSES.length);

  answered(status: number, latencyMs: number): void {
    const index = Math.min(Math.floor(status / 100), STATUS_CLASSES.length) - 1;
    this.responses[index] = (this.responses[index] ?? 0) + 1;
    this.latency.observe(latencyMs / 1000);
  }
}
