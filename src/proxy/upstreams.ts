import { type UpstreamAddress, parseUpstream } from './address.ts';
import { UpstreamMeasures } from './upstream-measures.ts';
import { ConnectionPool, type TransportSettings } from './forward.ts';

/** Failures remembered of one upstream; more say nothing new. */
const MAX_FAILURES = 1_000;

/** One upstream as all who use it know it, over reloads. */
export class Upstream {
  readonly address: UpstreamAddress;
  /** Requests and upgraded connections under way. */
  inFlight = 0;
  readonly measures = new UpstreamMeasures();
  /** What each proxy that uses it thinks of it. */
  readonly verdicts = new Set<(upstream: Upstream) => boolean>();
  /** Active checks, by what they check, whose last answer was bad. */
  readonly failingChecks = new Set<string>();
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

/** A counted claim; the last release lets the resource go. */
export interface Claim<T> {
  readonly value: T;
  release(): void;
}

/**
 * What outlives a reload: the state of upstreams by address, and their connections by address and
 * transport settings. A new generation claims before the old one releases, so that neither health
 * nor open connections are lost in between.
 */
export class UpstreamRegistry {
  readonly #upstreams = new Claims<Upstream>(() => {});
  readonly #pools = new Claims<ConnectionPool>((pool) => pool.close());

  /** @throws HubgateError `invalid-upstream` */
  claimUpstream(text: string): Claim<Upstream> {
    const address = parseUpstream(text);
    return this.#upstreams.claim(originOf(address), () => new Upstream(address));
  }

  /** `trustPool` is part of the key, so that a renewed file gets connections of its own. */
  claimPool(
    address: UpstreamAddress,
    settings: TransportSettings,
    trustPool: string | null,
  ): Claim<ConnectionPool> {
    const key = JSON.stringify([originOf(address), settings, trustPool]);
    return this.#pools.claim(key, () => new ConnectionPool(address, settings, trustPool));
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

function originOf(address: UpstreamAddress): string {
  return `${address.protocol}//${address.hostport}`;
}

class Claims<T> {
  readonly #held = new Map<string, { readonly value: T; count: number }>();
  readonly #close: (value: T) => void;

  constructor(close: (value: T) => void) {
    this.#close = close;
  }

  claim(key: string, open: () => T): Claim<T> {
    const held = this.#held.get(key) ?? { value: open(), count: 0 };
    this.#held.set(key, held);
    held.count += 1;
    let released = false;
    return {
      value: held.value,
      release: () => {
        if (released) return;
        released = true;
        held.count -= 1;
        if (held.count > 0) return;
        this.#held.delete(key);
        this.#close(held.value);
      },
    };
  }

  values(): T[] {
    return [...this.#held.values()].map((held) => held.value);
  }
}
