import { randomUUID } from 'node:crypto';
import type { SubscriptionRecord } from './presence.ts';

/**
 * The announced subscriptions of everybody who shares a log: of this process and of others. What a
 * process has entered goes with it, however it ends.
 */
export interface PresenceBoard {
  /**
   * Enters a subscriber of this process. Resolves when every process can see it and has been told,
   * or when a store that is away will be told as soon as it is back.
   *
   * @throws HubgateError `transport-closed` or `transport-failed`
   */
  enter(subscriber: string, records: readonly SubscriptionRecord[]): Promise<void>;
  /**
   * Takes a subscriber of this process off; one that is not there is none. What fails is done later.
   *
   * @throws as {@link enter}
   */
  leave(subscriber: string): Promise<void>;
  /**
   * Some of the subscribers that are on the board, in the order in which they were entered, at the
   * same cost wherever they stand and however many others there are.
   *
   * @param after what the page before said, null for the first page
   * @param limit subscribers, 1 at least; each has one record or several
   * @param matcher only subscribers with this one
   * @throws as {@link enter}
   */
  page(after: string | null, limit: number, matcher?: PresenceMatcher): Promise<PresencePage>;
  /**
   * All records of one subscriber; none of one that is not there.
   *
   * @throws as {@link enter}
   */
  of(subscriber: string): Promise<readonly SubscriptionRecord[]>;
  /**
   * Tells whoever comes and goes, with its process or without it: taken off because that process is
   * dead, or entered again because it was only slow. One process is told of each; where it does not
   * resolve, because it dies as well, another is told of the same change. What is told last of a
   * subscriber is what the board says.
   */
  watch(listener: (change: PresenceChange) => Promise<void>): void;
}

export interface PresenceChange {
  readonly records: readonly SubscriptionRecord[];
  readonly active: boolean;
  /** The same whoever is told of it, and of no other change. */
  readonly name: string;
  /** Nobody can have been told of it before. */
  readonly isNew: boolean;
}

export type PresenceMatcher = Pick<SubscriptionRecord, 'match' | 'match_type'>;

export interface PresencePage {
  readonly records: readonly SubscriptionRecord[];
  /** Where the next page begins; null behind the last. */
  readonly next: string | null;
}

/** The board of a log that lives and dies with this process. */
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

/** By which a board finds who has asked for the same. */
export function matcherName({ match_type, match }: PresenceMatcher): string {
  return `${match_type} ${match}`;
}

/** The different matchers of a subscriber. */
export function matcherNames(records: readonly PresenceMatcher[]): ReadonlySet<string> {
  return new Set(records.map(matcherName));
}

interface Entry {
  readonly order: number;
  readonly records: readonly SubscriptionRecord[];
  isGone: boolean;
}

/** Entries in their order. Those that are gone are left in it until they are the half. */
class PresenceList {
  #entries: Entry[] = [];
  #gone = 0;

  /** Behind all others. */
  add(entry: Entry): void {
    this.#entries.push(entry);
  }

  /** One of them is gone; says how many are left. */
  shrink(): number {
    this.#gone += 1;
    if (this.#gone * 2 >= this.#entries.length) {
      this.#entries = this.#entries.filter(({ isGone }) => !isGone);
      this.#gone = 0;
    }
    return this.#entries.length - this.#gone;
  }

  /** The first that stand at `order` or behind it. */
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
