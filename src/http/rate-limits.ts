// A rate limit keeps two numbers for each key: the count of the current window, and the count of the previous
// one, which is weighted by the part of it that still applies. Windows begin at the same moments in every
// process of a machine, so counts can be exchanged and added. No key is evicted before its window has ended.

import { createHmac, randomBytes } from 'node:crypto';
import { ipv6Groups } from './forwarded.ts';
import { type InstantLease, InstantLeases } from '../kernel/lease.ts';
import type { Clock } from '../kernel/clock.ts';

/** Keys that are counted individually in a window. Further keys share {@link SHARED_COUNTS}. */
const MAX_KEYS = 100_000;
const SHARED_COUNTS = 1_024;
/** Most keys that are sent to other workers at once. Further ones are not sent. */
const MAX_UNSENT = 10_000;
/** How long other workers may not know what was counted here. */
const SEND_MS = 100;

/** The counts of a zone in one window since the last message. */
export interface Counted {
  readonly window: number;
  readonly counts: readonly (readonly [key: string, events: number])[];
}

/** Exchanges counts between the processes that serve the same configuration. */
export interface CountPeers {
  notify(zone: string, counted: Counted): void;
  join(zone: string, listener: (counted: Counted) => void): () => void;
}

/**
 * Counts of one zone by key, in windows that begin at the same moments everywhere. No count is discarded
 * before its window has ended. Clients that use ever new keys share their counts with other such clients.
 */
export class RateZone {
  readonly #name: string;
  readonly #windowMs: number;
  readonly #clock: Clock;
  readonly #peerWorkers: CountPeers | null;
  readonly #leave: () => void;
  readonly #secret = randomBytes(16);
  #window = 0;
  #current = new Map<string, number>();
  #previous = new Map<string, number>();
  #unsent = new Map<string, number>();
  #stopSending: (() => void) | null = null;

  constructor(name: string, windowMs: number, clock: Clock, peerWorkers: CountPeers | null) {
    this.#name = name;
    this.#windowMs = windowMs;
    this.#clock = clock;
    this.#peerWorkers = peerWorkers;
    this.#leave =
      peerWorkers?.join(name, (counted) => {
        this.#turn();
        for (const [key, events] of counted.counts) this.#heard(counted.window, key, events);
      }) ?? (() => {});
  }

  counts(key: string): WindowCounts {
    const elapsedMs = this.#turn();
    return {
      current: this.#current.get(this.#placeIn(this.#current, key)) ?? 0,
      previous: this.#previous.get(this.#placeIn(this.#previous, key)) ?? 0,
      elapsedMs,
    };
  }

  count(key: string): void {
    this.#turn();
    this.#add(this.#current, key, 1);
    if (this.#peerWorkers === null) return;
    if (this.#unsent.size < MAX_UNSENT || this.#unsent.has(key)) {
      this.#unsent.set(key, (this.#unsent.get(key) ?? 0) + 1);
    }
    this.#stopSending ??= this.#clock.after(SEND_MS, () => this.#send());
  }

  close(): void {
    this.#stopSending?.();
    this.#leave();
  }

  /**
   * Moves to the window of this moment, and returns how many milliseconds of it have passed. It does not matter
   * whether the system clock is set.
   */
  #turn(): number {
    const now = this.#clock.monotonic();
    const window = Math.floor(now / this.#windowMs);
    if (window > this.#window) {
      this.#send();
      this.#previous = window === this.#window + 1 ? this.#current : new Map();
      this.#current = new Map();
      this.#window = window;
    }
    return now - window * this.#windowMs;
  }

  #placeIn(counts: ReadonlyMap<string, number>, key: string): string {
    if (counts.size < MAX_KEYS || counts.has(key)) return key;
    const digest = createHmac('sha256', this.#secret).update(key).digest();
    return `\0${digest.readUInt32BE() % SHARED_COUNTS}`;
  }

  #heard(window: number, key: string, events: number): void {
    if (window === this.#window) this.#add(this.#current, key, events);
    else if (window === this.#window - 1) this.#add(this.#previous, key, events);
  }

  #add(counts: Map<string, number>, key: string, events: number): void {
    const place = this.#placeIn(counts, key);
    counts.set(place, (counts.get(place) ?? 0) + events);
  }

  #send(): void {
    this.#stopSending?.();
    this.#stopSending = null;
    if (this.#unsent.size === 0) return;
    const counts = [...this.#unsent];
    this.#unsent = new Map();
    this.#peerWorkers?.notify(this.#name, { window: this.#window, counts });
  }
}

/** The zones of a gateway. They outlive the configurations that name them. */
export class RateLimits {
  readonly #zones = new InstantLeases<RateZone>((zone) => zone.close());
  readonly #clock: Clock;
  readonly #peerWorkers: CountPeers | null;

  /** @param peerWorkers null for a single process */
  constructor(clock: Clock, peerWorkers: CountPeers | null) {
    this.#clock = clock;
    this.#peerWorkers = peerWorkers;
  }

  /** Zones with the same name and the same length of window are the same zone, on all sites. */
  acquire(zone: string, windowMs: number): InstantLease<RateZone> {
    const name = `${zone} ${windowMs}`;
    const open = (): RateZone => new RateZone(name, windowMs, this.#clock, this.#peerWorkers);
    return this.#zones.acquire(name, open);
  }
}

/** Counts that all nodes share. */
export interface SharedCounts {
  /**
   * Counts one event of a key, unless there are already `events` in a window's length. Returns the counts
   * before it.
   *
   * @throws if the store cannot be reached
   */
  count(key: string, events: number, windowMs: number): Promise<WindowCounts>;
}

/** Counts of a key in the current and the previous window. The current window began `elapsedMs` ago. */
export interface WindowCounts {
  readonly current: number;
  readonly previous: number;
  readonly elapsedMs: number;
}

export interface Quota {
  readonly events: number;
  readonly windowMs: number;
}

export interface Verdict {
  readonly allowed: boolean;
  /** Events that are left, after this one. */
  readonly remaining: number;
  /** Time until another event is allowed, or until the window ends if one is allowed now. */
  readonly waitMs: number;
}

/**
 * Decides about one more event. The previous window counts with the fraction of it that still lies within a
 * window's length. So the window slides, although each key has only two numbers.
 */
export function verdictOf(counts: WindowCounts, { events, windowMs }: Quota): Verdict {
  const { current, previous, elapsedMs } = counts;
  const used = previous * (1 - elapsedMs / windowMs) + current;
  if (used + 1 <= events) {
    return {
      allowed: true,
      remaining: Math.floor(events - used - 1),
      waitMs: windowMs - elapsedMs,
    };
  }
  const spare = events - 1 - current;
  // The fraction of the window that must pass until enough of the previous one no longer counts.
  const waitMs =
    spare >= 0
      ? windowMs * (1 - spare / previous) - elapsedMs
      : windowMs - elapsedMs + windowMs * Math.max(0, 1 - (events - 1) / current);
  return { allowed: false, remaining: 0, waitMs: Math.max(1, waitMs) };
}

/** 16-bit parts of an IPv6 address that identify the network of one client: a /64. */
const PARTS_OF_CLIENT = 4;

/**
 * The network that counts as one client: the IPv4 address, or the /64 of an IPv6 address, because a client
 * can use all addresses in it.
 */
export function clientNetwork(address: string): string {
  if (isIpv4(address)) return address;
  return ipv6Groups(address).slice(0, PARTS_OF_CLIENT).join(':');
}

/**
 * The network that shares its turns among its clients: the /24 of an IPv4 address, or the /56 of an IPv6
 * address. An attacker has many addresses in few networks.
 */
export function fairShareNetwork(address: string): string {
  if (isIpv4(address))
    return address
      .replace(/^::ffff:/, '')
      .split('.')
      .slice(0, 3)
      .join('.');
  const [first = '0', second = '0', third = '0', fourth = '0'] = ipv6Groups(address);
  const upper = Number.parseInt(fourth, 16) >> 8;
  return [first, second, third, upper.toString(16)].join(':');
}

function isIpv4(address: string): boolean {
  return !address.includes(':') || address.startsWith('::ffff:');
}
