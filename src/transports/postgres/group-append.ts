import { randomBytes } from 'node:crypto';
import type { PostgresTransportConfig } from '../../config/transports.ts';
import type { DatabaseConnection, JoinedStatement } from '../../hub/transport.ts';
import type { Update } from '../../hub/update.ts';
import type { Clock } from '../../kernel/clock.ts';
import { HubgateError } from '../../kernel/error.ts';
import type { Sessions } from '../../kernel/sessions.ts';
import { faultOf } from '../../postgres/connection.ts';
import type { HandedOut, StoredEntry } from '../handed-out.ts';
import { type ReadBacks, uncertain } from '../read-backs.ts';
import type { Session } from './session.ts';
import { encodeBody, type StoredLog } from './stored-log.ts';
import { quoted } from './tables.ts';

/** How long a group is retried if its answer was lost. */
const RETRY_MS = 8000;
/** Entries that are evicted beyond the number of appended ones, so that a lowered limit never blocks the server. */
const EVICTED_EXTRA = 64;

/** What is appended, and how. */
export interface AppendRequest {
  readonly schema: string;
  readonly stream: number;
  /** A group with a number that its writer has used is stored already; null: it is stored whenever it is asked. */
  readonly writer: { readonly id: string; readonly batch: number } | null;
  /** Random; the keys of the entries begin with it. */
  readonly name: string;
  readonly updates: readonly Update[];
  /** Times of publication; null for now. */
  readonly times: readonly (number | null)[];
  readonly maxLength: number;
  readonly maxAgeMs: number;
  /** Most entries to evict. */
  readonly most: number;
  readonly durability: PostgresTransportConfig['durability'];
}

interface Appended {
  /** Of the last entry. */
  readonly position: number;
  /** Key of the entry before the group; null if an earlier attempt has stored the group. */
  readonly previous: string | null;
  /** Position of the last signal. */
  readonly signals: number;
  /** The updates that were appended: all, but for those that are only stored once and whose ids are known. */
  readonly updates: readonly Update[];
}

/**
 * Appends in one statement, which is a transaction of its own unless `on` is in one.
 *
 * @param joined a statement that is a part of this one
 */
export async function appendGroup(
  on: DatabaseConnection,
  request: AppendRequest,
  joined: JoinedStatement | null = null,
): Promise<Appended> {
  const { schema, stream, writer, name, updates, times } = request;
  const { maxLength, maxAgeMs, most, durability } = request;
  const s = quoted(schema);
  const once = updates.some((update) => update.once === true);
  const places = Array.from({ length: once ? 13 : 12 }, (_, index) => `$${index + 1}`).join(', ');
  const step = once ? 'append_once' : 'append';
  const after = once ? '$14' : '$13';
  const joining = joined === null ? '' : `WITH joined AS (${joined.text(after)}) `;
  const [row] = await on.query(
    `${joining}SELECT * FROM ${s}.${step}(${places})`,
    [
      ...(once ? [updates.map((update) => update.once === true)] : []),
      ...[stream, writer?.id ?? null, writer?.batch ?? null, name],
      updates.map(({ id }) => id),
      updates.map(({ presence }) => presence === true),
      updates.map(encodeBody),
      times,
      ...[maxLength, maxAgeMs, most, durability],
      ...(joined === null ? [] : [joined.value]),
    ],
    { name: `${s} ${step}${joined === null ? '' : ' joined'}` },
  );
  const { last_position: position, previous, signals, kept } = row ?? {};
  const isKept = Array.isArray(kept) ? new Set(kept.map(Number)) : null;
  return {
    updates: isKept === null ? updates : updates.filter((_, index) => isKept.has(index + 1)),
    position: Number(position),
    previous: typeof previous === 'string' ? previous : null,
    signals: Number(signals),
  };
}

interface GroupAppendOptions
  extends Pick<PostgresTransportConfig, 'schema' | 'maxLength' | 'maxAgeMs' | 'durability'> {
  /** Different for each opening of a history. */
  readonly writer: string;
  readonly sessions: Sessions<Session>;
  readonly storedLog: StoredLog;
  readonly handedOut: HandedOut;
  readonly readBacks: ReadBacks;
  /** Must be stored before the updates that follow them. */
  readonly signals: { readonly sent: Promise<unknown> };
  /** Delivers a group that follows what was read, without reading it; returns whether it did. */
  readonly deliver: (entries: readonly StoredEntry[], signals: number) => boolean;
  readonly clock: Clock;
}

/** Stores a group of updates exactly once, however often the answer is lost, and waits until it is delivered. */
export class GroupAppend {
  readonly #options: GroupAppendOptions;
  #batch = 0;

  constructor(options: GroupAppendOptions) {
    this.#options = options;
  }

  /**
   * Resolves when the whole group has been delivered.
   *
   * @throws HubgateError `transport-failed` if it is not stored, `transport-uncertain` if that is unknown
   */
  async store(group: readonly Update[]): Promise<void> {
    const { clock, sessions, signals } = this.#options;
    await signals.sent;
    this.#batch += 1;
    const name = randomBytes(12).toString('base64url');
    const end = clock.monotonic() + RETRY_MS;
    let mayBeStored = false;
    for (;;) {
      const session = mayBeStored ? await sessions.next(end) : sessions.live();
      if (session === null) throw uncertain('PostgreSQL disconnected before it answered');
      try {
        await this.#append(session, name, group, end);
        return;
      } catch (error) {
        if (error instanceof HubgateError) throw error;
        const { message, isNotDone, isElsewhere } = faultOf(error);
        if (isElsewhere) session.close();
        if (isNotDone && !mayBeStored) {
          const why = `The update could not be stored: PostgreSQL says ${message}`;
          throw new HubgateError('transport-failed', why, { cause: error });
        }
        // The answer is lost. The server knows whether it has stored the group with this number.
        mayBeStored = true;
        if (!isNotDone) session.close();
        else if (!session.isLost) throw uncertain(`PostgreSQL says ${message}`);
      }
    }
  }

  /** Appends those of these updates whose ids are not known, together with a statement of the caller. */
  async storeWith(
    on: DatabaseConnection,
    statement: JoinedStatement,
    updates: readonly Update[],
  ): Promise<void> {
    const { storedLog, schema, maxLength, maxAgeMs, durability, signals } = this.#options;
    await signals.sent;
    const request = {
      ...{ schema, maxLength, maxAgeMs, durability, stream: storedLog.stream, writer: null },
      name: randomBytes(12).toString('base64url'),
      updates: updates.map((update) => ({ ...update, once: true as const })),
      times: updates.map(() => null),
      most: updates.length + EVICTED_EXTRA,
    };
    await appendGroup(on, request, statement);
  }

  async #append(
    session: Session,
    name: string,
    group: readonly Update[],
    end: number,
  ): Promise<void> {
    const { writer, storedLog, handedOut, readBacks, deliver, clock } = this.#options;
    const { schema, maxLength, maxAgeMs, durability } = this.#options;
    const { position, previous, signals, updates } = await appendGroup(session.appends, {
      ...{ schema, maxLength, maxAgeMs, durability },
      ...{ name, updates: group, stream: storedLog.stream },
      writer: { id: writer, batch: this.#batch },
      times: group.map(() => null),
      most: group.length + EVICTED_EXTRA,
    });
    const before = position - updates.length;
    const entries = updates.map((update, index) => ({
      ...{ position: before + index + 1, update, at: clock.now() },
      key: `${name}:${index + 1}`,
      previous: index === 0 ? (previous ?? '') : `${name}:${index}`,
    }));
    if (previous !== null && deliver(entries, signals)) return;
    // Which of a group were new is not known any more if an earlier attempt has stored them.
    const isKnown = previous === null && group.some(({ once }) => once === true);
    const key = isKnown ? null : `${name}:${updates.length}`;
    const isThere = key === null ? handedOut.stored >= position : handedOut.has(position, key);
    if (isThere) return;
    const leftMs = Math.max(0, end - clock.monotonic());
    await readBacks.wait({ position, key }, leftMs, uncertain('it was not read back in time'));
  }
}
