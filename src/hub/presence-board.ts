import { randomUUID } from 'node:crypto';
import type { SubscriptionRecord } from './presence.ts';

/**
 * The announced subscriptions of all processes that share a history. When a process ends, in whatever way,
 * its entries are removed.
 */
export interface PresenceBoard {
  /**
   * Adds a subscriber of this process. Resolves when every process can see it and has been notified, or when
   * a store that is unreachable will be notified as soon as it is back.
   *
   * @throws HubgateError `transport-closed` or `transport-failed`
   */
  enter(subscriber: string, records: readonly SubscriptionRecord[]): Promise<void>;
  /**
   * Removes a subscriber of this process; does nothing if it is not on the board. A removal that fails is
   * repeated later.
   *
   * @throws as {@link enter}
   */
  leave(subscriber: string): Promise<void>;
  /**
   * A page of the subscribers on the board, in the order in which they were added. The cost does not depend
   * on the position or on the number of subscribers.
   *
   * @param after the `next` of the page before; null for the first page
   * @param limit subscribers, at least 1; each has one or more records
   * @param matcher only subscribers with this matcher
   * @throws as {@link enter}
   */
  page(after: string | null, limit: number, matcher?: PresenceMatcher): Promise<PresencePage>;
  /**
   * All records of one subscriber; empty if it is not on the board.
   *
   * @throws as {@link enter}
   */
  of(subscriber: string): Promise<readonly SubscriptionRecord[]>;
  /**
   * Notifies of subscribers that are added or removed, also without an action of their process: removed
   * because the process is dead, or added again because it was only slow. One process is notified of each
   * change. If its handler does not resolve because it dies as well, another process is notified of the same
   * change. The last notification about a subscriber agrees with the board.
   */
  watch(listener: (change: PresenceChange) => Promise<void>): void;
}

export interface PresenceChange {
  readonly records: readonly SubscriptionRecord[];
  readonly active: boolean;
  /** The same in every process that is notified of this change, and different for every other change. */
  readonly name: string;
  /** Nobody can have been notified of it before. */
  readonly isNew: boolean;
}

export type PresenceMatcher = Pick<SubscriptionRecord, 'match' | 'match_type'>;

export interface PresencePage {
  readonly records: readonly SubscriptionRecord[];
  /** Where the next page begins; null after the last page. */
  readonly next: string | null;
}

/** The board of a history that exists only in this process. */
export function createProcessBoard(): PresenceBoard {
  const entries = new Map<string, Entry>();
  const everybody = new PresenceList();
  const byMatcher = new Map<string, PresenceList>();
  let order = 0;
  let changed: (change: PresenceChange) => Promise<void> = async () => {};

  const takeOff = (subscriber: string): Entry | undefined => {
    const entry = entries.get(subscriber);
    if (entry === undefined) return undefined;
    entries.delete(subscriber);
    entry.isGone = true;
    everybody.shrink();
    for (const name of matcherNames(entry.records)) {
      const presenceList = byMatcher.get(name);
      if (presenceList?.shrink() === 0) byMatcher.delete(name);
    }
    return entry;
  };

  return {
    async enter(subscriber, records) {
      takeOff(subscriber);
      order += 1;
      const entry = { order, records, isGone: false };
      entries.set(subscriber, entry);
      everybody.add(entry);
      for (const name of matcherNames(records)) {
        const presenceList = byMatcher.get(name) ?? new PresenceList();
        byMatcher.set(name, presenceList);
        presenceList.add(entry);
      }
      await changed({ records, active: true, name: randomUUID(), isNew: true });
    },
    async leave(subscriber) {
      const gone = takeOff(subscriber);
      if (gone === undefined) return;
      await changed({ records: gone.records, active: false, name: randomUUID(), isNew: true });
    },
    async page(after, limit, matcher) {
      const presenceList = matcher === undefined ? everybody : byMatcher.get(matcherName(matcher));
      const found = presenceList?.from(Number(after ?? 0), limit + 1) ?? [];
      const next = found[limit];
      return {
        records: found.slice(0, limit).flatMap(({ records }) => records),
        next: next === undefined ? null : String(next.order),
      };
    },
    async of(subscriber) {
      return entries.get(subscriber)?.records ?? [];
    },
    watch(listener) {
      changed = listener;
    },
  };
}

/** The key by which a board finds subscribers with the same matcher. */
export function matcherName({ match_type, match }: PresenceMatcher): string {
  return `${match_type} ${match}`;
}

/** The distinct matchers of a subscriber. */
export function matcherNames(records: readonly PresenceMatcher[]): ReadonlySet<string> {
  return new Set(records.map(matcherName));
}

interface Entry {
  readonly order: number;
  readonly records: readonly SubscriptionRecord[];
  isGone: boolean;
}

/** Entries in order. Removed entries stay until they are half of it. */
class PresenceList {
  #entries: Entry[] = [];
  #gone = 0;

  /** Adds it after all others. */
  add(entry: Entry): void {
    this.#entries.push(entry);
  }

  /** Counts a removed entry; returns how many are left. */
  shrink(): number {
    this.#gone += 1;
    if (this.#gone * 2 >= this.#entries.length) {
      this.#entries = this.#entries.filter(({ isGone }) => !isGone);
      this.#gone = 0;
    }
    return this.#entries.length - this.#gone;
  }

  /** The first entries at `order` or later. */
  from(order: number, limit: number): readonly Entry[] {
    let [low, high] = [0, this.#entries.length];
    while (low < high) {
      const middle = (low + high) >>> 1;
      if ((this.#entries[middle]?.order ?? 0) < order) low = middle + 1;
      else high = middle;
    }
    const found: Entry[] = [];
    for (let at = low; at < this.#entries.length && found.length < limit; at += 1) {
      const entry = this.#entries[at];
      if (entry?.isGone === false) found.push(entry);
    }
    return found;
  }
}
