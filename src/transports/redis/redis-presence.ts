import { createHash, randomUUID } from 'node:crypto';
import type { SubscriptionRecord } from '../../hub/presence.ts';
import {
  matcherName,
  matcherNames,
  type PresenceBoard,
  type PresenceChange,
  type PresenceMatcher,
  type PresencePage,
} from '../../hub/presence-board.ts';
import type { Clock } from '../../kernel/clock.ts';
import { codeOf, HubgateError, messageOf } from '../../kernel/error.ts';
import type { Logger } from '../../kernel/log.ts';
import type { HubKeys } from './keys.ts';
import { ANNOUNCED, BEAT, ENTER, LEAVE, QUIT } from './scripts.ts';
import type { Session } from './session.ts';

/** How long a process is believed to live after it was last heard of. */
const LEASE_MS = 15_000;
/** How often it says that it lives, and looks for those that no longer do. */
const HEARTBEAT_MS = 5_000;
/** Entered, read or taken off in one step. */
const AT_ONCE = 500;

interface RedisPresenceOptions {
  readonly keys: HubKeys;
  readonly process: string;
  /** @throws while Redis is away */
  readonly session: () => Session;
  readonly clock: Clock;
  readonly log: Logger;
}

/**
 * A board in Redis. Each process holds a lease, measured by the server's clock; whoever finds one
 * that has run out takes the entries of that process off, in the same step, so that nobody else does.
 */
export class RedisPresence implements PresenceBoard {
  readonly #options: RedisPresenceOptions;
  /** What this process has entered, in case the store loses it. */
  readonly #own = new Map<string, string>();
  /** What it has entered and could not take off: at most what was on the board when the store went away. */
  readonly #gone = new Set<string>();
  #changed: (change: PresenceChange) => Promise<void> = async () => {};
  #stopHeartbeat: () => void = () => {};
  #closed = false;

  constructor(options: RedisPresenceOptions) {
    this.#options = options;
    this.#armHeartbeat();
  }

  async enter(subscriber: string, records: readonly SubscriptionRecord[]): Promise<void> {
    const entry = entryOf(records);
    await this.#asked(() => {
      const session = this.#options.session();
      this.#own.set(subscriber, entry);
      return this.#enter(session, [[subscriber, entry]]);
    });
  }

  async leave(subscriber: string): Promise<void> {
    if (!this.#own.delete(subscriber)) return;
    this.#gone.add(subscriber);
    await this.#asked(async () => this.#takeOff(this.#options.session(), [subscriber]));
  }

  page(after: string | null, limit: number, matcher?: PresenceMatcher): Promise<PresencePage> {
    const places = (): Promise<readonly Place[]> =>
      matcher === undefined
        ? this.#all(after, limit + 1)
        : this.#matched(digestOf(matcherName(matcher)), after, limit + 1);
    return this.#asked(async () => {
      const found = await places();
      const shown = found.slice(0, limit);
      const records = await this.#records(shown.map(({ member }) => member));
      return { records, next: found.length > limit ? (shown.at(-1)?.cursor ?? null) : null };
    });
  }

  of(subscriber: string): Promise<readonly SubscriptionRecord[]> {
    const { keys, session } = this.#options;
    return this.#asked(async () => {
      const processes = texts(await session().command('ZRANGE', keys.processes, '0', '-1'));
      return this.#records(processes.map((process) => `${process} ${subscriber}`));
    });
  }

  watch(listener: (change: PresenceChange) => Promise<void>): void {
    this.#changed = listener;
  }

  /** Enters again what a server that has taken over may not know. */
  async restore(session: Session): Promise<void> {
    await this.#takeOff(session, [...this.#gone]);
    await this.#enter(session, [...this.#own]);
  }

  /** Takes this process off the board, if the store is there; else its lease does. */
  async close(): Promise<void> {
    this.#stopHeartbeat();
    if (this.#closed) return;
    this.#closed = true;
    const { keys, process, session } = this.#options;
    const touched = touchedKeys(keys);
    try {
      const one = session();
      while (Number(await one.run(QUIT, touched, [process, String(AT_ONCE)])) === AT_ONCE);
    } catch (error) {
      const reason = messageOf(error);
      this.#options.log.debug('The presence is left to its lease', { reason });
    }
  }

  async #all(after: string | null, limit: number): Promise<readonly Place[]> {
    const { keys, session } = this.#options;
    const reply = await session().command(
      ...['ZRANGEBYSCORE', keys.present, after === null ? '-inf' : `(${after}`, '+inf'],
      ...['WITHSCORES', 'LIMIT', '0', String(limit)],
    );
    // Members and scores by turns.
    const flat = texts(reply);
    return flat.flatMap((member, index) =>
      index % 2 === 0 ? { member, cursor: flat[index + 1] ?? '' } : [],
    );
  }

  async #matched(digest: string, after: string | null, limit: number): Promise<readonly Place[]> {
    const { keys, session } = this.#options;
    const reply = await session().command(
      ...['ZRANGEBYLEX', keys.matched, after === null ? `[${digest} ` : `(${after}`],
      ...[`(${digest}!`, 'LIMIT', '0', String(limit)],
    );
    // The digest and the number of its coming stand before the member.
    return texts(reply).map((cursor) => ({
      cursor,
      member: cursor.split(' ').slice(2).join(' '),
    }));
  }

  async #records(members: readonly string[]): Promise<readonly SubscriptionRecord[]> {
    if (members.length === 0) return [];
    const { keys, session } = this.#options;
    const found = await session().command('HMGET', keys.records, ...members);
    return Array.isArray(found) ? found.flatMap(recordsOf) : [];
  }

  #armHeartbeat(): void {
    this.#stopHeartbeat = this.#options.clock.after(HEARTBEAT_MS, () => {
      this.#beat().catch((error: unknown) => {
        const reason = messageOf(error);
        this.#options.log.debug('Presence could not be kept', { reason });
      });
      if (!this.#closed) this.#armHeartbeat();
    });
  }

  async #beat(): Promise<void> {
    const { keys, process, session } = this.#options;
    const touched = [...touchedKeys(keys), keys.departed, keys.claims];
    await this.#takeOff(session(), [...this.#gone]);
    for (let more = true; more && !this.#closed; ) {
      const args = [process, String(LEASE_MS), String(AT_ONCE), randomUUID()];
      const reply = await session().run(BEAT, touched, args);
      const [lived, told]: readonly unknown[] = Array.isArray(reply) ? reply : [];
      if (lived === 0 && this.#own.size > 0) {
        // It was taken for dead and announced as gone, when it was only slow.
        const records = await this.#enter(session(), [...this.#own]);
        if (records.length > 0) await this.#changed({ records, active: true }).catch(ignore);
      }
      const departed = texts(told);
      if (departed.length > 0) await this.#announce(departed);
      more = departed.length > 0;
    }
  }

  /** @param departed member and departure by turns */
  async #announce(departed: readonly string[]): Promise<void> {
    const { keys, session } = this.#options;
    const records = new Map<string, SubscriptionRecord[]>();
    for (const [index, text] of departed.entries()) {
      if (index % 2 === 0 || text === '') continue;
      const line = text.indexOf('\n');
      const name = text.slice(0, line);
      records.set(name, [...(records.get(name) ?? []), ...recordsOf(text.slice(line + 1))]);
    }
    for (const [departure, some] of records) {
      await this.#changed({ records: some, active: false, departure });
    }
    const members = departed.filter((_, index) => index % 2 === 0);
    await session().run(ANNOUNCED, [keys.departed, keys.claims], members);
  }

  async #takeOff(session: Session, subscribers: readonly string[]): Promise<void> {
    const { keys, process } = this.#options;
    const touched = touchedKeys(keys);
    for (let from = 0; from < subscribers.length; from += AT_ONCE) {
      const some = subscribers.slice(from, from + AT_ONCE);
      await Promise.all(some.map((one) => session.run(LEAVE, touched, [process, one])));
      for (const one of some) this.#gone.delete(one);
    }
  }

  /** Resolves to the records of those that were not there. */
  async #enter(
    session: Session,
    entries: readonly (readonly [string, string])[],
  ): Promise<readonly SubscriptionRecord[]> {
    const { keys, process } = this.#options;
    const touched = [...touchedKeys(keys), keys.meta];
    const entered: SubscriptionRecord[] = [];
    for (let from = 0; from < entries.length; from += AT_ONCE) {
      const some = entries.slice(from, from + AT_ONCE).flat();
      const reply = await session.run(ENTER, touched, [process, String(LEASE_MS), ...some]);
      entered.push(...texts(reply).flatMap(recordsOf));
    }
    return entered;
  }

  async #asked<Reply>(ask: () => Promise<Reply>): Promise<Reply> {
    if (this.#closed) {
      throw new HubgateError('transport-closed', 'The connection to Redis is closed');
    }
    try {
      return await ask();
    } catch (cause) {
      if (codeOf(cause) === 'transport-failed') throw cause;
      throw new HubgateError('transport-failed', 'The presence could not be stored', { cause });
    }
  }
}

/** In the order of the scripts. */
function touchedKeys(keys: HubKeys): readonly string[] {
  return [keys.present, keys.records, keys.owned, keys.matched, keys.processes];
}

/** `process subscriber`, and what the next page begins behind. */
interface Place {
  readonly member: string;
  readonly cursor: string;
}

/** A line of the digests of its matchers, by which scripts find it in their lists, then JSON. */
function entryOf(records: readonly SubscriptionRecord[]): string {
  const digests = [...matcherNames(records)].map(digestOf);
  return `${digests.join(' ')}\n${JSON.stringify(records)}`;
}

function digestOf(name: string): string {
  return createHash('sha1').update(name).digest('hex');
}

function recordsOf(entry: unknown): readonly SubscriptionRecord[] {
  if (typeof entry !== 'string') return [];
  // Written by entryOf, which was given such records.
  return JSON.parse(entry.slice(entry.indexOf('\n') + 1)) as readonly SubscriptionRecord[];
}

function texts(reply: unknown): readonly string[] {
  return Array.isArray(reply) ? reply.map(String) : [];
}

/** It has been told in the log. */
function ignore(): void {}
