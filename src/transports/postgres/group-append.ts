import type { PostgresTransportConfig } from '../../config/transports.ts';
import type { DatabaseConnection, JoinedStatement } from '../../hub/transport.ts';
import type { Update } from '../../hub/update.ts';
import type { Clock } from '../../kernel/clock.ts';
import type { StoredEntry } from '../stored-entry.ts';
import { EVICTED_EXTRA, type ExpectedEntry, type GroupName, randomName } from '../read-backs.ts';
import type { Session } from './session.ts';
import { encodeBody } from '../stored-entry.ts';
import type { StoredHistory } from './stored-history.ts';
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
  extends Pick<PostgresTransportConfig, 'schema' | 'maxLength' | 'maxAgeMs' | 'durability'> {
  /** Different for each opening of a history. */
  readonly writer: string;
  readonly storedHistory: StoredHistory;
  /** Must be stored before the updates that follow them. */
  readonly signals: { readonly sent: Promise<unknown> };
  readonly clock: Clock;
  /** Delivers a group if it follows what was read, without reading it; otherwise lets it be read. */
  readonly deliver: (entries: readonly StoredEntry[], signals: number) => void;
}

/** Appends to one history. */
export class GroupAppend {
  readonly #options: GroupAppendOptions;

  constructor(options: GroupAppendOptions) {
    this.#options = options;
  }

  /** Appends those of these updates whose ids are not known, together with a statement of the caller. */
  async storeWith(
    on: DatabaseConnection,
    statement: JoinedStatement,
    updates: readonly Update[],
  ): Promise<void> {
    await this.#options.signals.sent;
    const all = updates.map((update) => ({ ...update, once: true as const }));
    await appendGroup(on, this.#request(all, randomName(), null), statement);
  }

  /** The last entry of a group; without a key if this attempt has stored nothing. */
  async attempt(
    session: Session,
    group: readonly Update[],
    { name, batch }: GroupName,
  ): Promise<ExpectedEntry> {
    const { writer, deliver, clock } = this.#options;
    const request = this.#request(group, name, { id: writer, batch });
    const { position, previous, signals, updates } = await appendGroup(session.appends, request);
    const before = position - updates.length;
    const entries = updates.map((update, index) => ({
      ...{ position: before + index + 1, update, at: clock.now() },
      key: `${name}:${index + 1}`,
      previous: index === 0 ? (previous ?? '') : `${name}:${index}`,
    }));
    if (previous !== null) deliver(entries, signals);
    // An earlier attempt has stored them under another name.
    const key = previous === null ? null : `${name}:${updates.length}`;
    return { position, key };
  }

  #request(
    updates: readonly Update[],
    name: string,
    writer: AppendRequest['writer'],
  ): AppendRequest {
    const { schema, storedHistory, maxLength, maxAgeMs, durability } = this.#options;
    return {
      ...{ schema, maxLength, maxAgeMs, durability, stream: storedHistory.stream },
      ...{ name, updates, writer },
      times: updates.map(() => null),
      most: updates.length + EVICTED_EXTRA,
    };
  }
}
