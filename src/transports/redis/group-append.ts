import { randomBytes } from 'node:crypto';
import type { Update } from '../../hub/update.ts';
import type { Clock } from '../../kernel/clock.ts';
import { HubgateError } from '../../kernel/error.ts';
import type { Sessions } from '../../kernel/sessions.ts';
import type { HandedOut } from '../handed-out.ts';
import { appendedKeys, type HubKeys } from './keys.ts';
import { type ReadBacks, uncertain } from '../read-backs.ts';
import { refusalOf, type Session } from './session.ts';
import { APPEND } from './scripts.ts';
import { appendArguments, placeOf } from './stored-entry.ts';

/** How long a group waits for its replicas. */
const WAIT_MS = 2000;
/** How long a group is retried if its reply was lost. */
const RETRY_MS = 8000;
/**
 * Entries that are evicted beyond the number of appended ones, so that a lowered limit never blocks the
 * server.
 */
const EVICTED_EXTRA = 64;

interface GroupAppendOptions {
  readonly keys: HubKeys;
  /** Updates to keep; 0 keeps all. */
  readonly maxLength: number;
  /** Milliseconds to keep an update; 0 keeps it forever. */
  readonly maxAgeMs: number;
  readonly replicas: number;
  readonly sessions: Sessions<Session>;
  readonly handedOut: HandedOut;
  readonly readBacks: ReadBacks;
  /** Must be stored before the updates that follow them. */
  readonly signals: { readonly sent: Promise<unknown> };
  readonly clock: Clock;
}

interface LastEntry {
  readonly position: number;
  readonly key: string | null;
}

/**
 * Stores a group of updates exactly once, however often the reply is lost, and waits until it is read back.
 */
export class GroupAppend {
  readonly #options: GroupAppendOptions;

  constructor(options: GroupAppendOptions) {
    this.#options = options;
  }

  /**
   * Resolves when the reader has delivered the whole group.
   *
   * @throws HubgateError `transport-failed` if it is not stored, `transport-uncertain` if that is unknown
   */
  async store(group: readonly Update[]): Promise<void> {
    const { clock, sessions, handedOut, signals } = this.#options;
    await signals.sent;
    const name = randomBytes(12).toString('base64url');
    let since = handedOut.stored;
    const updates = group.flatMap(appendArguments);
    const limits = this.#limitsOf(group);
    const end = clock.monotonic() + RETRY_MS;
    let mayBeStored = false;
    for (;;) {
      const session = mayBeStored ? await sessions.next(end) : sessions.live();
      if (session === null) throw uncertain('Redis disconnected before it answered');
      // A history that has lost its end stores the group at earlier positions.
      since = Math.min(since, handedOut.stored);
      try {
        const last = await this.#append(session, [
          name,
          mayBeStored ? placeOf(since) : '',
          ...limits,
          ...updates,
        ]);
        await this.#readBack(last, end);
        return;
      } catch (error) {
        if (error instanceof HubgateError) throw error;
        const { message, isNotDone, isElsewhere } = refusalOf(error);
        if (isElsewhere) session.close();
        if (isNotDone && !mayBeStored) {
          const why = `The update could not be stored: Redis says ${message}`;
          throw new HubgateError('transport-failed', why, { cause: error });
        }
        // The reply is lost. The next attempt checks whether the group was stored.
        mayBeStored = true;
        if (!isNotDone) session.close();
        else if (!session.isLost) throw uncertain(`Redis says ${message}`);
      }
    }
  }

  #limitsOf(group: readonly Update[]): readonly string[] {
    const { maxLength, maxAgeMs } = this.#options;
    return [String(maxLength), String(maxAgeMs), String(group.length + EVICTED_EXTRA)];
  }

  /** The last entry of the group, when enough replicas have it; without a key if nothing was added. */
  async #append(session: Session, args: readonly string[]): Promise<LastEntry> {
    const { keys, replicas } = this.#options;
    const places = appendedKeys(keys);
    const [place, count] = await session.append(APPEND, places, args, replicas, WAIT_MS);
    if (count < replicas) throw uncertain(`only ${count} of ${replicas} replicas have the update`);
    const [at = '', key = ''] = String(place).split(' ');
    return { position: Number.parseInt(at, 10), key: key === '' ? null : key };
  }

  /** Other groups are waiting, so this one waits for its reader only until `end`. */
  async #readBack({ position, key }: LastEntry, end: number): Promise<void> {
    const { clock, handedOut, readBacks } = this.#options;
    const isThere = key === null ? handedOut.stored >= position : handedOut.has(position, key);
    if (isThere) return;
    const leftMs = Math.max(0, end - clock.monotonic());
    await readBacks.wait({ position, key }, leftMs, uncertain('it was not read back in time'));
  }
}
