// Processes that share a history agree on which of them does some work, without a lock of their own: each
// candidate enters the presence board, and the one that has been there longest is elected. The board already
// removes the entries of a process that dies, 15 s after its last sign of life, with every transport. For a
// moment there can be two that count as elected (a process that was only slow), so the work must bear that.

import { randomUUID } from 'node:crypto';
import type { SubscriptionRecord } from './presence.ts';
import type { PresenceBoard, PresenceMatcher } from './presence-board.ts';

/** A process that stands for one piece of work. */
export interface Candidate {
  /**
   * Whether this process is to do the work now.
   *
   * @throws HubgateError `transport-closed` or `transport-failed` if the board cannot be asked
   */
  isElected(): Promise<boolean>;
  /** Leaves the work to others. Never rejects: a board that cannot be reached forgets the entry itself. */
  leave(): Promise<void>;
}

/** No subscription can have a matcher with this character. */
const PREFIX = '\u0001work ';

/** Stands for a piece of work; its name is the same in all processes. */
export function standFor(work: string, presence: PresenceBoard): Candidate {
  const id = `urn:uuid:${randomUUID()}`;
  const matcher: PresenceMatcher = { match: PREFIX + work, match_type: 'exact' };
  const record: SubscriptionRecord = {
    ...matcher,
    id,
    type: 'subscription',
    subscriber: id,
    active: true,
    internal: true,
  };
  let entering: Promise<void> | null = null;
  return {
    async isElected() {
      try {
        entering ??= presence.enter(id, [record]);
        await entering;
      } catch (error) {
        entering = null;
        throw error;
      }
      const { records } = await presence.page(null, 1, matcher);
      return records[0]?.subscriber === id;
    },
    async leave() {
      if (entering === null) return;
      try {
        await entering;
        await presence.leave(id);
      } catch {
        // The board repeats a removal that fails.
      }
    },
  };
}
