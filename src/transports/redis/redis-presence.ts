import { createHash } from 'node:crypto';
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
import {
  type Claim,
  type Entered,
  LEASE_MS,
  type OwnEntry,
  PresenceKeeper,
  type PresenceStore,
  stateOf,
} from '../presence-keeper.ts';
import type { HubKeys } from './keys.ts';
import { BEAT, ENTER, LEAVE, QUIT, type Script, SETTLE } from './scripts.ts';
import type { Session } from './session.ts';

/** Entries that are added, read or removed in one step. */
const AT_ONCE = 500;

interface RedisPresenceOptions {
  readonly keys: HubKeys;
  readonly process: string;
  /** @throws while Redis is unavailable */
  readonly session: () => Session;
  readonly clock: Clock;
  readonly log: Logger;
}

/**
 * A presence board in Redis. Each process holds a lease, measured by the server's clock. A process that finds
 * an expired lease removes the entries of its process in the same step, so that no other process does the
 * same.
 */
export class RedisPresence implements PresenceBoard {
  readonly #options: RedisPresenceOptions;
  readonly #keeper: PresenceKeeper<string>;
  /** The next session, while the board is being restored with it. */
  #next: Session | null = null;
  #closed = false;

  constructor(options: RedisPresenceOptions) {
    this.#options = options;
    const { clock, log } = options;
    const store: PresenceStore<string> = {
      atOnce: AT_ONCE,
      enter: (entries) => this.#asked(() => this.#enter(entries)),
      leave: (subscribers, name) =>
        this.#asked(async () => claimsOf(await this.#run(LEAVE, [name, ...subscribers]))),
      beat: (name, renews) => this.#asked(() => this.#beat(name, renews)),
      settle: (claims, name) => this.#asked(() => this.#settle(claims, name)),
    };
    this.#keeper = new PresenceKeeper({ store, mayBeAway: true, clock, log });
  }

  enter(subscriber: string, records: readonly SubscriptionRecord[]): Promise<void> {
    return this.#keeper.enter(subscriber, records);
  }

  leave(subscriber: string): Promise<void> {
    return this.#keeper.leave(subscriber);
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
    const { keys } = this.#options;
    return this.#asked(async () => {
      const processes = texts(await this.#session().command('ZRANGE', keys.processes, '0', '-1'));
      return this.#records(processes.map((process) => `${process} ${subscriber}`));
    });
  }

  watch(listener: (change: PresenceChange) => Promise<void>): void {
    this.#keeper.watch(listener);
  }

  /**
   * Updates the board through a session that is not in use yet. The returned function announces the changes;
   * it needs the history.
   */
  async restore(session: Session): Promise<() => void> {
    this.#next = session;
    try {
      return await this.#keeper.restore();
    } finally {
      this.#next = null;
    }
  }

  /** Removes this process from the board if the store is available; otherwise its lease expires. */
  async close(): Promise<void> {
    if (this.#closed) return;
    const { keys, process } = this.#options;
    try {
      await this.#keeper.close();
      const one = this.#session();
      const touched = touchedKeys(keys);
      while (Number(await one.run(QUIT, touched, [process, String(AT_ONCE)])) === AT_ONCE);
    } catch (error) {
      const reason = messageOf(error);
      this.#options.log.debug('The presence will expire with its lease', { reason });
    }
    this.#closed = true;
  }

  async #all(after: string | null, limit: number): Promise<readonly Place[]> {
    const { keys } = this.#options;
    const reply = await this.#session().command(
      ...['ZRANGEBYSCORE', keys.present, after === null ? '-inf' : `(${after}`, '+inf'],
      'WITHSCORES',
      'LIMIT',
      '0',
      String(limit),
    );
    // Members and scores alternate.
    const flat = texts(reply);
    return flat.flatMap((member, index) =>
      index % 2 === 0 ? { member, cursor: flat[index + 1] ?? '' } : [],
    );
  }

  async #matched(digest: string, after: string | null, limit: number): Promise<readonly Place[]> {
    const { keys } = this.#options;
    const reply = await this.#session().command(
      ...['ZRANGEBYLEX', keys.matched, after === null ? `[${digest} ` : `(${after}`],
      ...[`(${digest}!`, 'LIMIT', '0', String(limit)],
    );
    // The digest and the number of the arrival come before the member.
    return texts(reply).map((cursor) => ({
      cursor,
      member: cursor.split(' ').slice(2).join(' '),
    }));
  }

  async #records(members: readonly string[]): Promise<readonly SubscriptionRecord[]> {
    if (members.length === 0) return [];
    const { keys } = this.#options;
    const found = await this.#session().command('HMGET', keys.records, ...members);
    return Array.isArray(found) ? found.flatMap(recordsOf) : [];
  }

  async #enter(entries: readonly OwnEntry[]): Promise<Entered> {
    const args = entries.flatMap(({ subscriber, records }) => [subscriber, entryOf(records)]);
    const reply = await this.#run(ENTER, args);
    const [lived, states]: readonly unknown[] = Array.isArray(reply) ? reply : [];
    return { lived: lived !== 0, states: texts(states).map(stateOf) };
  }

  async #beat(name: string, renews: boolean) {
    const reply = await this.#run(BEAT, [name, String(AT_ONCE), renews ? '1' : '0']);
    const [lived, claimed]: readonly unknown[] = Array.isArray(reply) ? reply : [];
    return { lived: lived !== 0, claimed: claimsOf(claimed) };
  }

  async #settle(claims: readonly Claim<string>[], name: string) {
    const { keys } = this.#options;
    const args = claims.flatMap(({ key, active }) => [key, active ? '1' : '0']);
    const touched = [keys.records, keys.departed, keys.claims];
    return claimsOf(await this.#session().run(SETTLE, touched, [String(LEASE_MS), name, ...args]));
  }

  #run(script: Script, args: readonly string[]): Promise<unknown> {
    const { keys, process } = this.#options;
    const last = script === ENTER ? keys.meta : keys.claims;
    const touched = [...touchedKeys(keys), keys.departed, last];
    return this.#session().run(script, touched, [process, String(LEASE_MS), ...args]);
  }

  #session(): Session {
    return this.#next ?? this.#options.session();
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

/** `process subscriber`, and the position after which the next page begins. */
interface Place {
  readonly member: string;
  readonly cursor: string;
}

/** A line with the digests of its matchers, with which scripts find it in their lists, then JSON. */
function entryOf(records: readonly SubscriptionRecord[]): string {
  const digests = [...matcherNames(records)].map(digestOf);
  return `${digests.join(' ')}\n${JSON.stringify(records)}`;
}

function digestOf(name: string): string {
  return createHash('sha1').update(name).digest('hex');
}

function recordsOf(entry: unknown): readonly SubscriptionRecord[] {
  if (typeof entry !== 'string') return [];
  // Written by entryOf, which gets such records.
  return JSON.parse(entry.slice(entry.indexOf('\n') + 1)) as readonly SubscriptionRecord[];
}

/** @param reply member and claim alternate, as the scripts return them */
function claimsOf(reply: unknown): readonly Claim<string>[] {
  const claims: Claim<string>[] = [];
  const flat = texts(reply);
  for (let index = 0; index < flat.length; index += 2) {
    const [key = '', text = ''] = flat.slice(index, index + 2);
    const line = text.indexOf('\n');
    const active = text.startsWith('+');
    const name = text.slice(active ? 1 : 0, Math.max(0, line));
    claims.push({ key, name, active, records: line < 0 ? [] : recordsOf(text.slice(line + 1)) });
  }
  return claims;
}

function texts(reply: unknown): readonly string[] {
  return Array.isArray(reply) ? reply.map(String) : [];
}
