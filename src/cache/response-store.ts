import type { HeaderList } from '../http/header-list.ts';
import { type Clock, elapsedSince, type Moment } from '../kernel/clock.ts';
import type { Budget, Scheduler, Task } from '../kernel/scheduler.ts';
import { addTo, deleteFrom } from '../kernel/collections.ts';
import { variantKey } from './cache-key.ts';
import type { ResponseHead } from '../http/exchange.ts';
import type { Freshness } from '../http/cache-control.ts';
import { isOfKnownClient } from './storage-policy.ts';

/** A stored response with everything that decides about its use. It never changes. */
export interface StoredResponse {
  /** The same for all responses to requests for the same resource. */
  readonly key: string;
  readonly vary: readonly string[];
  /** The values of the fields by which it varies, from its request. */
  readonly variant: string;
  readonly status: number;
  readonly headers: HeaderList;
  /** Names of preset fields of a request without which the response is delivered. */
  readonly replacedPreset: readonly string[];
  /** The fields that are only for caches. */
  readonly hidden: HeaderList;
  readonly source: ResponseHead['source'];
  readonly body: Buffer;
  /** All names by which it is purged. */
  readonly names: readonly string[];
  readonly freshness: Freshness;
  readonly revalidatesAlways: boolean;
  readonly isForEveryone: boolean;
  readonly received: Moment;
  /** Its age at its arrival, in milliseconds. */
  readonly initialAgeMs: number;
}

/** RFC 9111 §4.2.3, in milliseconds. */
export function ageOf({ initialAgeMs, received }: StoredResponse, clock: Clock): number {
  return initialAgeMs + elapsedSince(received, clock);
}

/** How long it will be fresh, in milliseconds; negative if it is stale. */
export function timeLeft(stored: StoredResponse, clock: Clock): number {
  return stored.freshness.lifetimeMs - ageOf(stored, clock);
}

/** Whether a stored response can be used without asking the app (RFC 9111 §4). */
export type Reuse = 'fresh' | 'while-revalidating' | 'after-validation';

export function reuseOf(stored: StoredResponse, clock: Clock): Reuse {
  if (stored.revalidatesAlways) return 'after-validation';
  const leftMs = timeLeft(stored, clock);
  if (leftMs > 0) return 'fresh';
  // Ages are in whole seconds, and so are the windows: a window of one second must not last for two.
  return leftMs + stored.freshness.whileRevalidateMs > 0
    ? 'while-revalidating'
    : 'after-validation';
}

/**
 * Whether it can be used because the app has failed (RFC 5861 §4). One that must be revalidated before each use cannot
 * (RFC 9111 §5.2.2.4).
 */
export function helpsAfterError(stored: StoredResponse, clock: Clock): boolean {
  return !stored.revalidatesAlways && timeLeft(stored, clock) + stored.freshness.ifErrorMs > 0;
}

/**
 * Whether a request may receive it. A response that is fresh only because of the operator's setting is not
 * for known clients.
 */
export function isForRequest({ isForEveryone }: StoredResponse, request: HeaderList): boolean {
  return isForEveryone || !isOfKnownClient(request);
}

/** Whether the app can be asked if it is still current. */
export function hasValidator({ headers, status }: StoredResponse): boolean {
  return status === 200 && (headers.has('etag') || headers.has('last-modified'));
}

/** Memory in addition to its body and its strings: objects, and places in the indexes. */
const OVERHEAD = 2_000;
/** Memory of each name: its place in the index, and its set. */
const NAME_OVERHEAD = 200;

/** Approximate bytes of memory. */
export function sizeOf({ key, variant, headers, hidden, body, names }: StoredResponse): number {
  let size = OVERHEAD + body.length + 2 * (key.length + variant.length);
  for (const fields of [headers, hidden]) {
    fields.forEach((name, value) => {
      size += name.length + value.length + 64;
    });
  }
  for (const name of names) size += NAME_OVERHEAD + name.length;
  return size;
}

/** Variants of one URL. Beyond this limit, the one that was stored first is evicted. */
const MAX_VARIANTS = 32;
/**
 * The part of its limit by which a cache may exceed it until the next slices of the eviction. What is beyond is
 * evicted at once.
 */
const MAX_EXCESS = 1 / 8;
/** Responses that are evicted together when the slices of the eviction do not keep up. */
const EVICTED_AT_ONCE = 1_000;
/** Cost of evicting one response, in steps. */
const EVICT_STEPS = 500;
/** Cost of skipping one that cannot be evicted, in steps. */
const SKIP_STEPS = 20;
/** Bodies up to this size are copied or written at once, so they count for the connections that write them. */
export const WRITTEN_AT_ONCE_BYTES = 64 * 1024;

/**
 * Purged by an update, by a request that changes something, by an administrator, or because of missed
 * updates.
 */
export type PurgeReason = 'update' | 'method' | 'admin' | 'missed';

/** Counters of the caches of a process. */
export interface CacheCounts {
  hits: number;
  misses: number;
  /** Answered with a stale response. */
  stale: number;
  /** Answered with the response to another request. */
  collapsed: number;
  /** Passed to the app without a look-up. */
  bypassed: number;
  evicted: number;
  readonly purged: Record<PurgeReason, number>;
}

/**
 * The responses of one cache, in memory. The least recently used are evicted when the cache exceeds its
 * limit. Eviction runs in slices, so the limit may be exceeded by {@link MAX_EXCESS} for a moment. A dropped
 * response counts until its last reader is done, and what is being read leaves no space for new ones.
 */
export class ResponseStore implements Task {
  readonly counts: CacheCounts;
  readonly #maxBytes: number;
  readonly #scheduler: Scheduler;
  #byKey = new Map<string, StoredResponse[]>();
  #byName = new Map<string, Set<StoredResponse>>();
  /** The least recently used first. */
  #used = new Map<StoredResponse, number>();
  /** Bytes of the stored responses. */
  #bytes = 0;
  /** The bodies that are being read, with the number of their readers. */
  readonly #readers = new Map<Buffer, number>();
  #bytesRead = 0;
  /** Those of them that are no longer stored. */
  readonly #dropped = new Set<Buffer>();
  #bytesDropped = 0;
  #isClosed = false;

  constructor(maxBytes: number, scheduler: Scheduler, counts: CacheCounts) {
    this.counts = counts;
    this.#maxBytes = maxBytes;
    this.#scheduler = scheduler;
  }

  /** Bytes of the stored responses, and of those that were dropped and are still being read. */
  get bytes(): number {
    return this.#bytes + this.#bytesDropped;
  }

  get entries(): number {
    return this.#used.size;
  }

  /** The variant that matches a request. Finding it counts as a use. */
  find(key: string, request: HeaderList): StoredResponse | 'no-variant' | null {
    const variants = this.#byKey.get(key);
    if (variants === undefined) return null;
    for (const stored of variants) {
      if (stored.variant !== variantKey(stored.vary, request)) continue;
      const size = this.#used.get(stored) ?? 0;
      this.#used.delete(stored);
      this.#used.set(stored, size);
      return stored;
    }
    return 'no-variant';
  }

  /** Whether there is a response with this key, in any variant. */
  has(key: string): boolean {
    return this.#byKey.has(key);
  }

  /** The fields by which responses with this key have varied. */
  knownVary(key: string): readonly string[] {
    return this.#byKey.get(key)?.[0]?.vary ?? [];
  }

  /** Stores a response in place of the same variant, if it fits beside what is being read. */
  put(stored: StoredResponse): void {
    if (this.#isClosed) return;
    const size = sizeOf(stored);
    const variants = this.#byKey.get(stored.key) ?? [];
    const before = variants.find(
      ({ variant, vary }) => variant === stored.variant && equalLists(vary, stored.vary),
    );
    if (before !== undefined) this.#drop(before);
    const own = this.#readers.has(stored.body) ? stored.body.length : 0;
    if (this.#bytesRead - own + size > this.#maxBytes) return;
    const others = this.#byKey.get(stored.key) ?? [];
    const oldest = others.at(-1);
    if (others.length >= MAX_VARIANTS && oldest !== undefined) this.#evict(oldest);
    // The newest first: if two match, the newer one is used (RFC 9111 §4.1).
    this.#byKey.set(stored.key, [stored, ...(this.#byKey.get(stored.key) ?? [])]);
    for (const name of stored.names) addTo(this.#byName, name, stored);
    this.#used.set(stored, size);
    this.#bytes += size;
    if (this.#dropped.delete(stored.body)) this.#bytesDropped -= stored.body.length;
    if (this.bytes > this.#maxBytes) this.#scheduler.add(this);
    if (this.bytes > this.#maxBytes * (1 + MAX_EXCESS)) this.#evictAtOnce();
  }

  /** Counts a response until the promise settles, even if it is dropped before. */
  async whileRead<T>(stored: StoredResponse, reading: Promise<T>): Promise<T> {
    const { body } = stored;
    if (body.length <= WRITTEN_AT_ONCE_BYTES) return reading;
    const before = this.#readers.get(body);
    if (before === undefined) {
      this.#bytesRead += body.length;
      if (!this.#used.has(stored)) this.#keepForReaders(body);
    }
    this.#readers.set(body, (before ?? 0) + 1);
    try {
      return await reading;
    } finally {
      this.#endRead(body);
    }
  }

  /** Evicts the least recently used, in slices. Evicting one that is being read would release nothing. */
  run(budget: Budget): boolean {
    for (const stored of this.#used.keys()) {
      if (this.bytes <= this.#maxBytes) return false;
      if (budget.isSpent) return true;
      const isRead = this.#readers.has(stored.body);
      budget.spend(isRead ? SKIP_STEPS : EVICT_STEPS);
      if (!isRead) this.#evict(stored);
    }
    return false;
  }

  /** Drops all responses with this name, and returns their number. */
  purge(name: string, reason: PurgeReason): number {
    const named = this.#byName.get(name);
    if (named === undefined) return 0;
    const all = [...named];
    for (const stored of all) this.#drop(stored);
    this.counts.purged[reason] += all.length;
    return all.length;
  }

  /** Drops a response that is no longer current. */
  remove(stored: StoredResponse): void {
    if (this.#used.has(stored)) this.#drop(stored);
  }

  /** Drops everything at once. */
  clear(reason: PurgeReason): number {
    const all = this.#empty();
    this.counts.purged[reason] += all;
    return all;
  }

  /** Drops everything, and stores nothing from now on. */
  close(): void {
    this.#isClosed = true;
    this.#empty();
  }

  /** All names, for a purge by pattern. */
  names(): IterableIterator<string> {
    return this.#byName.keys();
  }

  /**
   * Evicts what exceeds the limit by more than the excess. It evicts some more, because every pass has to skip the
   * places of what was evicted before.
   */
  #evictAtOnce(): void {
    const mostBytes = this.#maxBytes * (1 + MAX_EXCESS);
    let left = EVICTED_AT_ONCE;
    for (const stored of this.#used.keys()) {
      if (this.bytes <= (left > 0 ? this.#maxBytes : mostBytes)) return;
      if (this.#readers.has(stored.body)) continue;
      left -= 1;
      this.#evict(stored);
    }
  }

  #empty(): number {
    const all = this.#used.size;
    this.#byKey = new Map();
    this.#byName = new Map();
    this.#used = new Map();
    this.#bytes = 0;
    for (const body of this.#readers.keys()) this.#keepForReaders(body);
    return all;
  }

  #evict(stored: StoredResponse): void {
    this.#drop(stored);
    this.counts.evicted += 1;
  }

  #drop(stored: StoredResponse): void {
    const size = this.#used.get(stored);
    if (size === undefined) return;
    this.#used.delete(stored);
    this.#bytes -= size;
    if (this.#readers.has(stored.body)) this.#keepForReaders(stored.body);
    for (const name of stored.names) deleteFrom(this.#byName, name, stored);
    const left = (this.#byKey.get(stored.key) ?? []).filter((one) => one !== stored);
    if (left.length === 0) this.#byKey.delete(stored.key);
    else this.#byKey.set(stored.key, left);
  }

  #keepForReaders(body: Buffer): void {
    if (this.#dropped.has(body)) return;
    this.#dropped.add(body);
    this.#bytesDropped += body.length;
  }

  #endRead(body: Buffer): void {
    const left = (this.#readers.get(body) ?? 1) - 1;
    if (left > 0) {
      this.#readers.set(body, left);
      return;
    }
    this.#readers.delete(body);
    this.#bytesRead -= body.length;
    if (this.#dropped.delete(body)) this.#bytesDropped -= body.length;
  }
}

function equalLists(one: readonly string[], other: readonly string[]): boolean {
  return one.length === other.length && one.every((value, index) => value === other[index]);
}
