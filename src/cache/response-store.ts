import type { HeaderList } from '../http/header-list.ts';
import type { Budget, Scheduler, Task } from '../kernel/scheduler.ts';
import { addTo, deleteFrom } from '../kernel/set-map.ts';
import { sizeOf, type StoredResponse } from './stored-response.ts';
import { variantKey } from './variant.ts';

/** Variants of one URL; the one that was stored first gives way. */
const MAX_VARIANTS = 32;
/** What letting one response go costs, in steps. */
const EVICT_STEPS = 500;
/** Keys of which it is remembered that their responses are not shared. */
const MAX_UNSHARED = 10_000;
/** For how long that is, in milliseconds. */
const UNSHARED_MS = 10_000;

/** An update, a request that changes something, an administrator, or updates that nobody has seen. */
export type PurgeReason = 'update' | 'method' | 'admin' | 'missed';

/** What the caches of a process have done. */
export interface CacheCounts {
  hits: number;
  misses: number;
  /** Answered with what was stale. */
  stale: number;
  /** Answered with the answer of another request. */
  collapsed: number;
  /** Sent to the app without being looked up. */
  bypassed: number;
  evicted: number;
  readonly purged: Record<PurgeReason, number>;
}

/**
 * The responses of one cache, in memory. What was used least recently gives way when there is more
 * than the cache may have; that is done in slices, so a little more may be there for a moment.
 */
export class ResponseStore implements Task {
  readonly counts: CacheCounts;
  readonly #maxBytes: number;
  readonly #scheduler: Scheduler;
  #byKey = new Map<string, StoredResponse[]>();
  #byName = new Map<string, Set<StoredResponse>>();
  /** The least recently used first. */
  #used = new Map<StoredResponse, number>();
  #bytes = 0;
  /** Until when a key is known for responses that are not shared; the oldest first. */
  readonly #unshared = new Map<string, number>();

  constructor(maxBytes: number, scheduler: Scheduler, counts: CacheCounts) {
    this.counts = counts;
    this.#maxBytes = maxBytes;
    this.#scheduler = scheduler;
  }

  get bytes(): number {
    return this.#bytes;
  }

  get entries(): number {
    return this.#used.size;
  }

  /** The variant that fits a request; what was used is used again. */
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

  /** Whether there is a response to a key, of whatever variant. */
  has(key: string): boolean {
    return this.#byKey.has(key);
  }

  /** The fields by which responses to a key have varied. */
  knownVary(key: string): readonly string[] {
    return this.#byKey.get(key)?.[0]?.vary ?? [];
  }

  /** Keeps a response in the place of the variant that it is. */
  put(stored: StoredResponse): void {
    const size = sizeOf(stored);
    if (size > this.#maxBytes) return;
    const variants = this.#byKey.get(stored.key) ?? [];
    const before = variants.find(
      ({ variant, vary }) => variant === stored.variant && equalLists(vary, stored.vary),
    );
    if (before !== undefined) this.#drop(before);
    const others = this.#byKey.get(stored.key) ?? [];
    const oldest = others.at(-1);
    if (others.length >= MAX_VARIANTS && oldest !== undefined) {
      this.#drop(oldest);
      this.counts.evicted += 1;
    }
    // The newest first: where two fit, the newer one is used (RFC 9111 §4.1).
    this.#byKey.set(stored.key, [stored, ...(this.#byKey.get(stored.key) ?? [])]);
    for (const name of stored.names) addTo(this.#byName, name, stored);
    this.#used.set(stored, size);
    this.#bytes += size;
    if (this.#bytes > this.#maxBytes) this.#scheduler.add(this);
  }

  /** Lets the least recently used go, some in a slice. */
  run(budget: Budget): boolean {
    for (const stored of this.#used.keys()) {
      if (this.#bytes <= this.#maxBytes) return false;
      if (budget.isSpent) return true;
      budget.spend(EVICT_STEPS);
      this.#drop(stored);
      this.counts.evicted += 1;
    }
    return false;
  }

  /** Drops all that has this name, and says how much that was. */
  purge(name: string, reason: PurgeReason): number {
    const named = this.#byName.get(name);
    if (named === undefined) return 0;
    const all = [...named];
    for (const stored of all) this.#drop(stored);
    this.counts.purged[reason] += all.length;
    return all.length;
  }

  /** Drops one that has turned out to be old. */
  remove(stored: StoredResponse): void {
    if (this.#used.has(stored)) this.#drop(stored);
  }

  /** Drops everything at once. */
  clear(reason: PurgeReason): number {
    const all = this.#used.size;
    this.#byKey = new Map();
    this.#byName = new Map();
    this.#used = new Map();
    this.#bytes = 0;
    this.counts.purged[reason] += all;
    return all;
  }

  /** All names, for a purge by pattern. */
  names(): IterableIterator<string> {
    return this.#byName.keys();
  }

  /** Whether requests of a key need not wait for each other, as their responses are not shared. */
  isUnshared(key: string, nowMs: number): boolean {
    const untilMs = this.#unshared.get(key);
    if (untilMs === undefined) return false;
    if (untilMs > nowMs) return true;
    this.#unshared.delete(key);
    return false;
  }

  markUnshared(key: string, nowMs: number): void {
    this.#unshared.delete(key);
    const [oldest] = this.#unshared.size < MAX_UNSHARED ? [] : this.#unshared.keys();
    if (oldest !== undefined) this.#unshared.delete(oldest);
    this.#unshared.set(key, nowMs + UNSHARED_MS);
  }

  /** A response of the key has turned out to be shared. */
  markShared(key: string): void {
    this.#unshared.delete(key);
  }

  #drop(stored: StoredResponse): void {
    const size = this.#used.get(stored);
    if (size === undefined) return;
    this.#used.delete(stored);
    this.#bytes -= size;
    for (const name of stored.names) deleteFrom(this.#byName, name, stored);
    const left = (this.#byKey.get(stored.key) ?? []).filter((one) => one !== stored);
    if (left.length === 0) this.#byKey.delete(stored.key);
    else this.#byKey.set(stored.key, left);
  }
}

function equalLists(one: readonly string[], other: readonly string[]): boolean {
  return one.length === other.length && one.every((value, index) => value === other[index]);
}
