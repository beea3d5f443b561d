import type { SubscriptionRecord } from './presence.ts';

/**
 * The announced subscriptions of everybody who shares a log: of this process and of others. What a
 * process has entered goes with it, however it ends.
 */
export interface PresenceBoard {
  /**
   * Enters a subscriber of this process. Resolves when every process can see it.
   *
   * @throws HubgateError `transport-closed` or `transport-failed`
   */
  enter(subscriber: string, records: readonly SubscriptionRecord[]): Promise<void>;
  /**
   * Takes a subscriber of this process off; one that is not there is none.
   *
   * @throws as {@link enter}
   */
  leave(subscriber: string): Promise<void>;
  /** All that are on the board, in the order in which they were entered. */
  list(): Promise<readonly SubscriptionRecord[]>;
  /**
   * Some of those on the board, at the same cost wherever they stand.
   *
   * @param after what the page before said, null for the first page
   * @param limit subscribers, 1 at least; each has one record or several
   */
  page(after: string | null, limit: number): Promise<PresencePage>;
  /**
   * Tells what has come or gone without the doing of its process: taken off because that process
   * is dead, or entered again because it was only slow. Exactly one process is told of each.
   */
  watch(listener: (records: readonly SubscriptionRecord[], active: boolean) => void): void;
}

export interface PresencePage {
  readonly records: readonly SubscriptionRecord[];
  /** Where the next page begins; null behind the last. */
  readonly next: string | null;
}

/** The board of a log that lives and dies with this process. */
export function createProcessBoard(): PresenceBoard {
  /** By subscriber; a map keeps the order in which they were entered. */
  const entries = new Map<string, readonly SubscriptionRecord[]>();
  return {
    async enter(subscriber, records) {
      entries.set(subscriber, records);
    },
    async leave(subscriber) {
      entries.delete(subscriber);
    },
    async list() {
      return [...entries.values()].flat();
    },
    async page(after, limit) {
      const skipped = Number(after ?? 0);
      const some = [...entries.values()].slice(skipped, skipped + limit);
      const next = skipped + some.length;
      return { records: some.flat(), next: next < entries.size ? String(next) : null };
    },
    watch() {},
  };
}
