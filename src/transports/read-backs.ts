import { randomBytes } from 'node:crypto';
import type { Update } from '../hub/update.ts';
import { afterSilence, type Clock } from '../kernel/clock.ts';
import { HubgateError } from '../kernel/error.ts';
import type { Sessions, StoreSession } from '../kernel/sessions.ts';
import type { DeliveredPosition } from './delivered-position.ts';

/** How long a group is retried if its answer was lost. */
const RETRY_MS = 8000;
/** Entries that are evicted beyond the number of appended ones, so that a lowered limit never blocks the server. */
export const EVICTED_EXTRA = 64;

export interface ExpectedEntry {
  readonly position: number;
  /** Key of the entry; null for any. */
  readonly key: string | null;
}

interface ReadBack extends ExpectedEntry {
  readonly resolve: () => void;
  readonly reject: (error: unknown) => void;
}

/** The callers that wait until the reader has reached a position of the history. */
export class ReadBacks {
  readonly #clock: Clock;
  readonly #waiting = new Set<ReadBack>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /**
   * Resolves when the reader has delivered the entry with this key, or any entry, at this position.
   *
   * @throws `tooLate` after `limitMs`; HubgateError `transport-uncertain` if the entry is lost
   */
  wait({ position, key }: ExpectedEntry, limitMs: number, tooLate: HubgateError): Promise<void> {
    return new Promise((resolve, reject) => {
      const stop = afterSilence(limitMs, this.#clock, () => {
        this.#waiting.delete(waiting);
        reject(tooLate);
      });
      const waiting: ReadBack = {
        position,
        key,
        resolve() {
          stop();
          resolve();
        },
        reject(error) {
          stop();
          reject(error);
        },
      };
      this.#waiting.add(waiting);
    });
  }

  /** Resolves the waits for entries that have been delivered by now. */
  settle(delivered: DeliveredPosition): void {
    for (const waiting of this.#waiting) {
      const { position, key } = waiting;
      if (position > delivered.stored) continue;
      this.#waiting.delete(waiting);
      if (key === null || delivered.has(position, key)) waiting.resolve();
      else waiting.reject(uncertain(LOST));
    }
  }

  /** Rejects the waits for everything after this stored position, which is lost. */
  loseBehind(position: number): void {
    for (const waiting of this.#waiting) {
      if (waiting.position <= position) continue;
      this.#waiting.delete(waiting);
      waiting.reject(uncertain(LOST));
    }
  }

  /** Rejects all waits, because nothing is read any more. */
  end(): void {
    const why = uncertain('it was not read back before the end');
    for (const { reject } of this.#waiting) reject(why);
    this.#waiting.clear();
  }
}

const LOST = 'the history has lost it';

/** What one attempt to store a group is given besides the updates. */
export interface GroupName {
  /**
   * Random; the keys of the entries begin with it. Different for each attempt: after a failover, an entry with a new
   * predecessor must not look like the lost one.
   */
  readonly name: string;
  /** The server knows whether it has stored the group with this number, in whatever order its attempts arrive. */
  readonly batch: number;
}

export interface GroupStoreOptions<Session extends StoreSession> {
  /** Name of the store in messages. */
  readonly store: string;
  readonly sessions: Sessions<Session>;
  readonly delivered: DeliveredPosition;
  readonly readBacks: ReadBacks;
  /** Must be stored before the updates that follow them. */
  readonly signals: { readonly sent: Promise<unknown> };
  readonly clock: Clock;
  /** Stores the group unless an earlier attempt has; resolves to its last entry. */
  readonly attempt: (
    session: Session,
    group: readonly Update[],
    of: GroupName,
  ) => Promise<ExpectedEntry>;
  readonly faultOf: (error: unknown) => StoreFault;
}

/** The known facts about a failed command. */
export interface StoreFault {
  /** The message of the server, or of the lost connection. */
  readonly message: string;
  /** The server reports that it has not executed the command; otherwise that is unknown. */
  readonly isNotDone: boolean;
  /** Another server would execute it, so this session is of no further use. */
  readonly isElsewhere: boolean;
}

/** Stores each group of updates, one after the other, as {@link storeGroup} does. */
export function groupStore<Session extends StoreSession>(
  options: GroupStoreOptions<Session>,
): (group: readonly Update[]) => Promise<void> {
  let batch = 0;
  return (group) => {
    batch += 1;
    return storeGroup(options, group, batch);
  };
}

/** A name of which the keys of entries are made. */
export function randomName(): string {
  return randomBytes(12).toString('base64url');
}

/**
 * Stores a group of updates exactly once, however often the answer is lost, and waits until its last entry is delivered.
 *
 * @throws HubgateError `transport-failed` if it is not stored, `transport-uncertain` if that is unknown
 */
async function storeGroup<Session extends StoreSession>(
  options: GroupStoreOptions<Session>,
  group: readonly Update[],
  batch: number,
): Promise<void> {
  const { store, sessions, delivered, readBacks, signals, clock, attempt, faultOf } = options;
  await signals.sent;
  const end = clock.monotonic() + RETRY_MS;
  let mayBeStored = false;
  for (;;) {
    const session = mayBeStored ? await sessions.next(end) : sessions.live();
    if (session === null) throw uncertain(`${store} disconnected before it answered`);
    try {
      const { position, key } = await attempt(session, group, {
        name: randomName(),
        batch,
      });
      const isThere = key === null ? delivered.stored >= position : delivered.has(position, key);
      if (isThere) return;
      // Other groups are waiting, so this one waits for its reader only until `end`.
      const leftMs = Math.max(0, end - clock.monotonic());
      await readBacks.wait({ position, key }, leftMs, uncertain('it was not read back in time'));
      return;
    } catch (error) {
      if (error instanceof HubgateError) throw error;
      const { message, isNotDone, isElsewhere } = faultOf(error);
      if (isElsewhere) session.close(message);
      if (isNotDone && !mayBeStored) {
        const why = `The update could not be stored: ${store} says ${message}`;
        throw new HubgateError('transport-failed', why, { cause: error });
      }
      // The answer is lost. The next attempt finds out whether the group was stored.
      mayBeStored = true;
      if (!isNotDone) session.close(message);
      else if (!session.isLost) throw uncertain(`${store} says ${message}`);
    }
  }
}

/** The error for an append with an unknown result. */
export function uncertain(why: string): HubgateError {
  return new HubgateError(
    'transport-uncertain',
    `It is not known whether the update was stored: ${why}`,
  );
}
