import {
  type History,
  type DatedUpdate,
  type HistoryStats,
  type HistorySurroundings,
  ServerHistory,
  streamNotFound,
} from '../history.ts';
import { appendedKeys, hubKeys, type HubKeys } from './keys.ts';
import type { RedisPlace } from './primary.ts';
import { READ } from './scripts.ts';
import { Session } from './session.ts';
import type { Range, StoredEntry } from '../stored-entry.ts';
import { appendArguments, decodeEntry, listOf, placeOf } from './stored-history.ts';
import { randomBytes } from 'node:crypto';

/**
 * Opens the history of a hub in Redis for its operator. Gateways may be using it.
 *
 * @throws HubgateError `history-not-found`, `transport-failed`
 */
export async function openRedisHistory(
  place: RedisPlace & { readonly stream: string },
  { clock, create }: HistorySurroundings,
): Promise<History> {
  const keys = hubKeys(place.stream);
  const session = await Session.open(place, keys.log, clock);
  try {
    if (!create && (await session.command('EXISTS', keys.meta)) !== 1) {
      throw streamNotFound(place.stream, 'Redis');
    }
    return new RedisHistory(keys, session);
  } catch (error) {
    session.close();
    throw error;
  }
}

class RedisHistory extends ServerHistory<unknown> {
  protected readonly store = 'Redis';
  readonly #keys: HubKeys;
  readonly #session: Session;

  constructor(keys: HubKeys, session: Session) {
    super();
    this.#keys = keys;
    this.#session = session;
  }

  async stats(): Promise<HistoryStats> {
    const { log, meta, events } = this.#keys;
    const oldest = await this.#session.command('XRANGE', log, '-', '+', 'COUNT', '1');
    const newest = await this.#session.command('XREVRANGE', log, '+', '-', 'COUNT', '1');
    const bytes = await this.#session.command('MEMORY', 'USAGE', log);
    const id = await this.#session.command('HGET', meta, 'id');
    const eventsKept = Number(await this.#session.command('LLEN', events));
    return {
      updates: Number(await this.#session.command('XLEN', log)) - eventsKept,
      events: eventsKept,
      position: await this.end(),
      lastEventId: typeof id === 'string' ? id : null,
      oldestAt: listOf(oldest).map(decodeEntry)[0]?.at ?? null,
      newestAt: listOf(newest).map(decodeEntry)[0]?.at ?? null,
      bytes: Number(bytes ?? 0),
    };
  }

  /** The server assigns the time of acceptance. */
  async add(entries: readonly DatedUpdate[]): Promise<void> {
    const updates = entries.flatMap(({ update }) => appendArguments(update));
    const args = [randomBytes(12).toString('base64url'), '', '0', '0', '0', ...updates];
    await this.#session.append(appendedKeys(this.#keys), args, 0);
  }

  async close(): Promise<void> {
    this.#session.close();
  }

  protected async end(): Promise<number> {
    return Number((await this.#session.command('HGET', this.#keys.meta, 'position')) ?? 0);
  }

  protected async rows(
    [first, last]: Range,
    limit: number,
    bytes: number,
  ): Promise<readonly unknown[]> {
    const range = [placeOf(first), placeOf(last), String(limit), String(bytes)];
    return listOf(await this.#session.run(READ, [this.#keys.log], range));
  }

  protected positionOf(entry: unknown): number {
    return Number.parseInt(String(listOf(entry)[0]), 10);
  }

  protected decode(entry: unknown): StoredEntry {
    return decodeEntry(entry);
  }
}
