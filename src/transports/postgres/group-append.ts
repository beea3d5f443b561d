import { randomBytes } from 'node:crypto';
import type { PostgresTransportConfig } from '../../config/transports.ts';
import type { DatabaseConnection, JoinedStatement } from '../../hub/transport.ts';
import type { Update } from '../../hub/update.ts';
import { faultOf } from '../../postgres/connection.ts';
import type { StoredEntry } from '../handed-out.ts';
import {
  EVICTED_EXTRA,
  type ExpectedEntry,
  type GroupStoreOptions,
  storeGroup,
} from '../read-backs.ts';
import type { Session } from './session.ts';
import { encodeBody } from '../handed-out.ts';
import type { StoredLog } from './stored-log.ts';
import { quoted } from './tables.ts';

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
  extends GroupStoreOptions<Session>,
    Pick<PostgresTransportConfig, 'schema' | 'maxLength' | 'maxAgeMs' | 'durability'> {
  /** Different for each opening of a history. */
  readonly writer: string;
  readonly storedLog: StoredLog;
  /** Delivers a group if it follows what was read, without reading it; otherwise lets it be read. */
  readonly deliver: (entries: readonly StoredEntry[], signals: number) => void;
}

/** Stores a group of updates exactly once, however often the answer is lost, and waits until it is delivered. */
export class GroupAppend {
  readonly #options: GroupAppendOptions;
  #batch = 0;

  constructor(options: GroupAppendOptions) {
    this.#options = options;
  }

  /** @throws as {@link storeGroup} */
  async store(group: readonly Update[]): Promise<void> {
    this.#batch += 1;
    const name = randomBytes(12).toString('base64url');
    // The server knows whether it has stored the group with this number.
    await storeGroup(this.#options, { store: 'PostgreSQL', faultOf }, (session) =>
      this.#append(session, name, group),
    );
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

  /** The last entry of the group; without a key if it is not known. */
  async #append(session: Session, name: string, group: readonly Update[]): Promise<ExpectedEntry> {
    const { writer, storedLog, deliver, clock } = this.#options;
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
    if (previous !== null) deliver(entries, signals);
    // Which of a group were new is not known any more if an earlier attempt has stored them.
    const isUnknown = previous === null && group.some(({ once }) => once === true);
    return { position, key: isUnknown ? null : `${name}:${updates.length}` };
  }
}
