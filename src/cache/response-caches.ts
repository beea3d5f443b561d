import { ignore } from '../kernel/error.ts';
import type { Exchange } from '../http/exchange.ts';
import type { HeaderList } from '../http/header-list.ts';
import { compileWildcard } from '../http/linear-regexp.ts';
import { type InstantLease, InstantLeases } from '../kernel/lease.ts';
import { counter, type Family, gauge } from '../kernel/measures.ts';
import type { Budget, Scheduler } from '../kernel/scheduler.ts';
import { shortened, purgeName } from './cache-key.ts';
import { type CacheCounts, type PurgeReason, ResponseStore } from './response-store.ts';

/** Names whose last purge is remembered while requests are in progress. */
const MAX_RECENT = 10_000;
/** Cost of checking one name, in steps. */
const LOOK_STEPS = 50;

/** What an administrator wants to purge. */
export type PurgeOrder =
  /** Exactly one URL, topic or tag. */
  | { readonly kind: 'name'; readonly name: string }
  /** A URL in which `*` stands for any characters. */
  | { readonly kind: 'pattern'; readonly pattern: string }
  | { readonly kind: 'all' };

/** A history whose updates purge what is stored here. */
export interface PurgingLog {
  /** Resolves when everything in the history at the time of the call has purged; null if it already has. */
  caughtUp(): Promise<void> | null;
}

/**
 * All caches of the process, and their recent purges. The history of each hub is the bus: every process sees
 * each update in order, and drops by itself what the update names.
 */
export class ResponseCaches {
  readonly #stores = new Set<ResponseStore>();
  readonly #leases: InstantLeases<ResponseStore>;
  readonly #scheduler: Scheduler;
  readonly #counts: CacheCounts = {
    hits: 0,
    misses: 0,
    stale: 0,
    collapsed: 0,
    bypassed: 0,
    evicted: 0,
    purged: { update: 0, method: 0, admin: 0, missed: 0 },
  };
  readonly #logs = new Set<PurgingLog>();
  /** Purges in progress that take several turns. */
  readonly #searches = new Set<Promise<number>>();
  /** Increases with each purge. */
  #moment = 0;
  /** The moment of the last purge of a name, while requests are in progress. */
  readonly #recent = new Map<string, number>();
  /** All purges up to this moment may have been forgotten, or have dropped everything. */
  #forgottenUntil = 0;
  #underWay = 0;

  constructor(scheduler: Scheduler) {
    this.#scheduler = scheduler;
    this.#leases = new InstantLeases((store) => {
      this.#stores.delete(store);
      // Requests of an old configuration may still use it, and no purge reaches it.
      store.close();
    });
  }

  /** The store with this name, which exists as long as it is leased. */
  acquire(name: string, maxBytes: number): InstantLease<ResponseStore> {
    return this.#leases.acquire(name, () => {
      const store = new ResponseStore(maxBytes, this.#scheduler, this.#counts);
      this.#stores.add(store);
      return store;
    });
  }

  /** Lets a history purge from now on; the returned function ends that. */
  join(log: PurgingLog): () => void {
    this.#logs.add(log);
    return () => this.#logs.delete(log);
  }

  /**
   * Resolves when all updates that any client can have received have purged; null if they already have.
   *
   * @throws HubgateError if a history cannot be asked
   */
  caughtUp(): Promise<unknown> | null {
    let waiting: Promise<unknown>[] | null = this.#searches.size > 0 ? [...this.#searches] : null;
    try {
      for (const log of this.#logs) {
        const behind = log.caughtUp();
        if (behind !== null) (waiting ??= []).push(behind);
      }
    } catch (error) {
      for (const one of waiting ?? []) one.catch(ignore);
      return Promise.reject(error);
    }
    return waiting === null ? null : Promise.all(waiting);
  }

  /** The moment at which a request to the app begins. Call {@link ended} when it is over. */
  began(): number {
    this.#underWay += 1;
    return this.#moment;
  }

  ended(): void {
    this.#underWay -= 1;
    if (this.#underWay > 0) return;
    this.#recent.clear();
    this.#forgottenUntil = 0;
  }

  get moment(): number {
    return this.#moment;
  }

  /** Whether one of the names may have been purged since a request began. */
  wasPurgedSince(moment: number, names: readonly string[]): boolean {
    if (this.#moment === moment) return false;
    if (this.#forgottenUntil > moment) return true;
    return names.some((name) => (this.#recent.get(shortened(name)) ?? 0) > moment);
  }

  /** Drops what has one of these names, within this turn of the event loop. */
  purge(names: readonly string[], reason: PurgeReason): number {
    if (this.#stores.size === 0) return 0;
    let dropped = 0;
    for (const text of names) {
      const name = purgeName(text);
      this.#note(name);
      for (const store of this.#stores) dropped += store.purge(name, reason);
    }
    return dropped;
  }

  /** Drops everything. */
  purgeAll(reason: PurgeReason): number {
    this.#moment += 1;
    this.#forgottenUntil = this.#moment;
    let dropped = 0;
    for (const store of this.#stores) dropped += store.clear(reason);
    return dropped;
  }

  /** Purges by order of an administrator. A pattern is searched in slices. */
  async order(order: PurgeOrder): Promise<number> {
    switch (order.kind) {
      case 'name':
        return this.purge([order.name], 'admin');
      case 'all':
        return this.purgeAll('admin');
      case 'pattern':
        return this.#searching(this.#purgePattern(order.pattern));
    }
  }

  /** Metrics of all caches. */
  families(): readonly Family[] {
    const { hits, misses, stale, collapsed, bypassed, evicted, purged } = this.#counts;
    const stores = [...this.#stores];
    const outcomes = { hit: hits, stale, miss: misses, collapsed, bypass: bypassed };
    return [
      counter(
        'hubgate_cache_requests_total',
        'Requests to a cache, by outcome.',
        Object.entries(outcomes).map(([outcome, value]) => [{ outcome }, value]),
      ),
      counter(
        'hubgate_cache_purged_total',
        'Stored responses that were purged, by reason.',
        Object.entries(purged).map(([reason, value]) => [{ reason }, value]),
      ),
      counter(
        'hubgate_cache_evicted_total',
        'Stored responses that were evicted for others.',
        evicted,
      ),
      gauge(
        'hubgate_cache_entries',
        'Stored responses.',
        stores.reduce((sum, { entries }) => sum + entries, 0),
      ),
      gauge(
        'hubgate_cache_bytes',
        'Memory of the stored responses.',
        stores.reduce((sum, { bytes }) => sum + bytes, 0),
      ),
    ];
  }

  #searching(search: Promise<number>): Promise<number> {
    this.#searches.add(search);
    return search.finally(() => this.#searches.delete(search));
  }

  async #purgePattern(pattern: string): Promise<number> {
    const isLike = compileWildcard(purgeName(pattern), 'any');
    // Responses in progress may get names that are not known yet.
    this.#moment += 1;
    this.#forgottenUntil = this.#moment;
    return this.#scheduler.compute((budget) => this.#purgeLike(isLike, budget));
  }

  *#purgeLike(isLike: (name: string) => boolean, budget: Budget): Generator<void, number, void> {
    let dropped = 0;
    for (const store of this.#stores) {
      for (const name of store.names()) {
        if (budget.isSpent) yield;
        budget.spend(LOOK_STEPS);
        if (isLike(name)) dropped += store.purge(name, 'admin');
      }
    }
    return dropped;
  }

  #note(purged: string): void {
    this.#moment += 1;
    if (this.#underWay === 0) return;
    const name = shortened(purged);
    this.#recent.delete(name);
    if (this.#recent.size >= MAX_RECENT) {
      for (const [oldest, moment] of this.#recent) {
        this.#recent.delete(oldest);
        this.#forgottenUntil = Math.max(this.#forgottenUntil, moment);
        break;
      }
    }
    this.#recent.set(name, this.#moment);
  }
}

/** What the caches of a site need from the gateway. */
export interface CacheContext {
  readonly caches: ResponseCaches;
  /**
   * The store of a cache of the site, by its configuration. It survives a reload that changes nothing which
   * its requests pass.
   */
  readonly openStore: (cache: object, maxBytes: number) => ResponseStore;
  /** Response fields, in lower case, that make a response personal, or one that must be handled once. */
  readonly personalFields: readonly string[];
  /** All names by which the response to a request is purged, except for its tags. */
  readonly namesOf: (exchange: Exchange, headers: HeaderList) => readonly string[];
  /** The names from its tags. */
  readonly namesOfTags: (exchange: Exchange, tags: readonly string[]) => readonly string[];
  /**
   * Drops what a request has changed, in this process, in the other workers and on the other nodes of the hub. The
   * response waits for what this returns.
   */
  readonly changed: (names: readonly string[]) => Promise<void> | undefined;
  /** Whether a request is for the hub. */
  readonly isHubRequest: (exchange: Exchange) => boolean;
}
