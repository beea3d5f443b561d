import { hash } from 'node:crypto';
import type { SubscriptionRecord } from '../../hub/presence.ts';
import {
  matcherName,
  matcherNames,
  type PresenceMatcher,
  type PresencePage,
} from '../../hub/presence-board.ts';
import { type Claim, type Entered, LEASE_MS, type OwnEntry, stateOf } from '../presence-keeper.ts';
import { PRESENCE_AT_ONCE, type PresenceSteps } from '../server-presence.ts';
import type { RedisSignalsOptions } from './blocking-reader.ts';
import type { HubKeys } from './keys.ts';
import { BEAT, ENTER, LEAVE, QUIT, type Script, SETTLE } from './scripts.ts';

type RedisPresenceOptions = Omit<RedisSignalsOptions, 'log'>;

/** The steps of a presence board in Redis: each is one script, or one query. */
export class RedisPresence implements PresenceSteps<string> {
  readonly #options: RedisPresenceOptions;

  constructor(options: RedisPresenceOptions) {
    this.#options = options;
  }

  async enter(entries: readonly OwnEntry[]): Promise<Entered> {
    const args = entries.flatMap(({ subscriber, records }) => [subscriber, entryOf(records)]);
    const reply = await this.#run(ENTER, args);
    const [lived, states]: readonly unknown[] = Array.isArray(reply) ? reply : [];
    return { lived: lived !== 0, states: texts(states).map(stateOf) };
  }

  async leave(subscribers: readonly string[], name: string): Promise<readonly Claim<string>[]> {
    return claimsOf(await this.#run(LEAVE, [name, ...subscribers]));
  }

  async beat(name: string, renews: boolean, most: number) {
    const reply = await this.#run(BEAT, [name, String(most), renews ? '1' : '0']);
    const [lived, claimed]: readonly unknown[] = Array.isArray(reply) ? reply : [];
    return { lived: lived !== 0, claimed: claimsOf(claimed) };
  }

  async settle(claims: readonly Claim<string>[], name: string): Promise<readonly Claim<string>[]> {
    const { keys, session } = this.#options;
    const args = claims.flatMap(({ key, active }) => [key, active ? '1' : '0']);
    const touched = [keys.records, keys.departed, keys.claims];
    return claimsOf(await session().run(SETTLE, touched, [String(LEASE_MS), name, ...args]));
  }

  async quit(): Promise<number> {
    const { keys, process, session } = this.#options;
    const args = [process, String(PRESENCE_AT_ONCE)];
    return Number(await session().run(QUIT, touchedKeys(keys), args));
  }

  async page(
    after: string | null,
    limit: number,
    matcher?: PresenceMatcher,
  ): Promise<PresencePage> {
    const found =
      matcher === undefined
        ? await this.#all(after, limit + 1)
        : await this.#matched(digestOf(matcherName(matcher)), after, limit + 1);
    const shown = found.slice(0, limit);
    const records = await this.#records(shown.map(({ member }) => member));
    return { records, next: found.length > limit ? (shown.at(-1)?.cursor ?? null) : null };
  }

  async of(subscriber: string): Promise<readonly SubscriptionRecord[]> {
    const { keys, session } = this.#options;
    const processes = texts(await session().command('ZRANGE', keys.processes, '0', '-1'));
    return this.#records(processes.map((process) => `${process} ${subscriber}`));
  }

  async #all(after: string | null, limit: number): Promise<readonly Place[]> {
    const { keys } = this.#options;
    const reply = await this.#options
      .session()
      .command(
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
    const reply = await this.#options
      .session()
      .command(
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
    const found = await this.#options.session().command('HMGET', keys.records, ...members);
    return Array.isArray(found) ? found.flatMap(recordsOf) : [];
  }

  #run(script: Script, args: readonly string[]): Promise<unknown> {
    const { keys, process, session } = this.#options;
    const last = script === ENTER ? keys.meta : keys.claims;
    const touched = [...touchedKeys(keys), keys.departed, last];
    return session().run(script, touched, [process, String(LEASE_MS), ...args]);
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
  return hash('sha1', name, 'hex');
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
