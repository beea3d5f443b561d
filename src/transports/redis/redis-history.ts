import { HubgateError } from '../../kernel/error.ts';
import { PAGE_BYTES } from '../../hub/transport.ts';
import {
  type History,
  type HistoryEntry,
  type HistoryStats,
  type HistorySurroundings,
  ServerHistory,
  streamNotFound,
} from '../history.ts';
import { appendedKeys, hubKeys, type HubKeys } from './keys.ts';
import type { RedisPlace } from './primary.ts';
import { APPEND, READ } from './scripts.ts';
import { Session } from './session.ts';
import type { StoredEntry } from '../handed-out.ts';
import { appendArguments, decodeEntry, placeOf } from './stored-log.ts';
import { randomBytes } from 'node:crypto';

const AT_ONCE = 256;

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

class RedisHistory extends ServerHistory<unknown> implements History {
  readonly #keys: HubKeys;
  readonly #session: Session;

  constructor(keys: HubKeys, session: Session) {
    super();
    this.#keys = keys;
    this.#session = session;
  }

  async stats(): Promise<HistoryStats> {
    const { log, meta } = this.#keys;
    const oldest = await this.#session.command('XRANGE', log, '-', '+', 'COUNT', '1');
    const newest = await this.#session.command('XREVRANGE', log, '+', '-', 'COUNT', '1');
    const bytes = await this.#session.command('MEMORY', 'USAGE', log);
    const id = await this.#session.command('HGET', meta, 'id');
    return {
      updates: Number(await this.#session.command('XLEN', log)),
      position: await this.#end(),
      lastEventId: typeof id === 'string' ? id : null,
      oldestAt: entriesOf(oldest)[0]?.at ?? null,
      newestAt: entriesOf(newest)[0]?.at ?? null,
      bytes: Number(bytes ?? 0),
    };
  }

  /** The server assigns the time of acceptance. */
  async add(entries: readonly HistoryEntry[]): Promise<void> {
    const updates = entries.flatMap(({ update }) => appendArguments(update));
    const args = [randomBytes(12).toString('base64url'), '', '0', '0', '0', ...updates];
    await this.#session.append(APPEND, appendedKeys(this.#keys), args, 0, 0);
  }

  async compact(): Promise<never> {
    const message = 'Redis frees space by itself; there is nothing to compact';
    throw new HubgateError('not-supported', message);
  }

  protected positionOf(entry: unknown): number {
    return Array.isArray(entry) ? Number.parseInt(String(entry[0]), 10) : 0;
  }

  protected decode(entry: unknown): StoredEntry {
    return decodeEntry(entry);
  }

  async close(): Promise<void> {
    this.#session.close();
  }

  async #end(): Promise<number> {
    return Number((await this.#session.command('HGET', this.#keys.meta, 'position')) ?? 0);
  }

  protected async *pages(): AsyncIterable<readonly unknown[]> {
    const end = await this.#end();
    for (let from = 0; from < end; ) {
      const range = [placeOf(from + 1), placeOf(end), String(AT_ONCE), String(PAGE_BYTES)];
      const reply = await this.#session.run(READ, [this.#keys.log], range);
      const page: readonly unknown[] = Array.isArray(reply) ? reply : [];
      const last: unknown = page.at(-1);
      if (!Array.isArray(last)) return;
      yield page;
      from = Number.parseInt(String(last[0]), 10);
    }
  }
}

function entriesOf(reply: unknown): StoredEntry[] {
  return Array.isArray(reply) ? reply.map(decodeEntry) : [];
}
