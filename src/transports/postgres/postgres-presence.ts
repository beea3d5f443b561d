import { hash } from 'node:crypto';
import type { SubscriptionRecord } from '../../hub/presence.ts';
import {
  matcherName,
  matcherNames,
  type PresenceMatcher,
  type PresencePage,
} from '../../hub/presence-board.ts';
import type { Row } from '../../postgres/connection.ts';
import {
  type Claim,
  type Entered,
  LEASE_MS,
  type OwnEntry,
  RECORDS_AT_ONCE,
  stateOf,
} from '../presence-keeper.ts';
import { PRESENCE_AT_ONCE, type PresenceSteps } from '../server-presence.ts';
import type { PostgresSignalsOptions } from './postgres-signals.ts';
import { quoted } from './tables.ts';

interface Key {
  readonly process: string;
  readonly subscriber: string;
}

interface Leave {
  readonly subscriber: string;
  /** Of the change. */
  readonly name: string;
}

type PostgresPresenceOptions = Omit<PostgresSignalsOptions, 'log'>;

/** An entered subscriber, and whether its process still had its lease. */
interface EnteredOne {
  readonly lived: boolean;
  readonly state: Entered['states'][number];
}

/** The steps of a presence board in PostgreSQL: each is one call of a function, or one query. */
export class PostgresPresence implements PresenceSteps<Key> {
  readonly #options: PostgresPresenceOptions;
  readonly #s: string;
  readonly #entering = new Gathered<OwnEntry, EnteredOne>(
    (entries) => this.#enter(entries),
    PRESENCE_AT_ONCE,
  );
  readonly #leaving = new Gathered<Leave, Claim<Key> | null>(
    (leaves) => this.#leave(leaves),
    PRESENCE_AT_ONCE,
  );

  constructor(options: PostgresPresenceOptions) {
    this.#options = options;
    this.#s = quoted(options.schema);
  }

  async enter(entries: readonly OwnEntry[]): Promise<Entered> {
    const size = entries.reduce((sum, { records }) => sum + records.length, 0);
    const entered = await this.#entering.ask(entries, size);
    const lived = entered.every((one) => one.lived);
    return { lived, states: entered.map(({ state }) => state) };
  }

  async leave(
    subscribers: readonly string[],
    name: string,
    records: number,
  ): Promise<readonly Claim<Key>[]> {
    const leaves = subscribers.map((subscriber) => ({ subscriber, name }));
    return (await this.#leaving.ask(leaves, records)).filter((claim) => claim !== null);
  }

  async beat(name: string, renews: boolean, most: number) {
    const values = [this.#options.process, LEASE_MS, name, most, renews];
    const [row] = await this.#call('beat', values);
    const claims: readonly Row[] = Array.isArray(row?.['claims']) ? row['claims'] : [];
    return { lived: row?.['lived'] === true, claimed: claims.map(claimOf) };
  }

  async settle(claims: readonly Claim<Key>[], name: string): Promise<readonly Claim<Key>[]> {
    // Whoever locks several does so in the same order.
    const ordered = claims.toSorted(({ key: a }, { key: b }) =>
      a.process === b.process ? compare(a.subscriber, b.subscriber) : compare(a.process, b.process),
    );
    const rows = await this.#call('settle', [
      ...[LEASE_MS, name],
      ordered.map(({ key }) => key.process),
      ordered.map(({ key }) => key.subscriber),
      ordered.map(({ active }) => active),
    ]);
    return rows.map(claimOf);
  }

  async quit(): Promise<number> {
    const [row] = await this.#call('quit', [this.#options.process, PRESENCE_AT_ONCE]);
    return Number(row?.['quit']);
  }

  async page(
    after: string | null,
    limit: number,
    matcher?: PresenceMatcher,
  ): Promise<PresencePage> {
    const found = await this.#pageRows(Number(after ?? 0), limit + 1, matcher);
    const shown = found.slice(0, limit);
    const last = shown.at(-1)?.['arrival'];
    return {
      records: shown.flatMap(recordsOf),
      next: found.length > limit ? String(Number(last)) : null,
    };
  }

  async of(subscriber: string): Promise<readonly SubscriptionRecord[]> {
    const text = `SELECT records FROM ${this.#s}.present WHERE stream = $1 AND subscriber = $2`;
    return (await this.#query(text, [subscriber], 'present of')).flatMap(recordsOf);
  }

  #pageRows(
    after: number,
    limit: number,
    matcher: PresenceMatcher | undefined,
  ): Promise<readonly Row[]> {
    const s = this.#s;
    if (matcher === undefined) {
      const text = `SELECT arrival, records FROM ${s}.present
        WHERE stream = $1 AND arrival > $2 ORDER BY arrival LIMIT $3`;
      return this.#query(text, [after, limit], 'present page');
    }
    const text = `SELECT p.arrival, p.records FROM (
        SELECT arrival FROM ${s}.present_matchers
        WHERE stream = $1 AND matcher = $4 AND arrival > $2 ORDER BY arrival LIMIT $3
      ) m JOIN ${s}.present p ON p.stream = $1 AND p.arrival = m.arrival ORDER BY p.arrival`;
    return this.#query(text, [after, limit, digestOf(matcherName(matcher))], 'present matched');
  }

  async #enter(entries: readonly OwnEntry[]): Promise<readonly EnteredOne[]> {
    const [row] = await this.#call('enter', [
      ...[this.#options.process, LEASE_MS],
      entries.map(({ subscriber }) => subscriber),
      entries.map(({ records }) => JSON.stringify(records)),
      entries.map(({ records }) => [...matcherNames(records)].map(digestOf).join(' ')),
    ]);
    const states: readonly unknown[] = Array.isArray(row?.['states']) ? row['states'] : [];
    const lived = row?.['lived'] === true;
    return states.map((state) => ({ lived, state: stateOf(state) }));
  }

  /** Resolves to a claim for each, or null if there is nothing to announce. */
  async #leave(leaves: readonly Leave[]): Promise<readonly (Claim<Key> | null)[]> {
    const subscribers = leaves.map(({ subscriber }) => subscriber);
    const names = leaves.map(({ name }) => name);
    const rows = await this.#call('leave', [
      ...[this.#options.process, LEASE_MS],
      ...[subscribers, names],
    ]);
    const claims = new Map(rows.map(claimOf).map((claim) => [claim.key.subscriber, claim]));
    return leaves.map(({ subscriber }) => {
      const claim = claims.get(subscriber) ?? null;
      // Whoever is named twice is announced once.
      claims.delete(subscriber);
      return claim;
    });
  }

  /** Calls a function of the board with the stream and these arguments. */
  #call(name: string, values: readonly unknown[]): Promise<readonly Row[]> {
    const places = values.map((_, index) => `$${index + 2}`).join(', ');
    return this.#query(`SELECT * FROM ${this.#s}.${name}($1, ${places})`, values, name);
  }

  #query(text: string, values: readonly unknown[], name: string): Promise<readonly Row[]> {
    const { storedHistory, session } = this.#options;
    return session().commands.query(text, [storedHistory.stream, ...values], {
      name: `${this.#s} ${name}`,
    });
  }
}

function compare(a: string, b: string): number {
  return Buffer.compare(Buffer.from(a), Buffer.from(b));
}

function digestOf(name: string): string {
  return hash('sha256', name, 'base64url');
}

function recordsOf({ records }: Row): readonly SubscriptionRecord[] {
  // Written by `enter`, which gets such records.
  return JSON.parse(String(records)) as readonly SubscriptionRecord[];
}

function claimOf(row: Row): Claim<Key> {
  const { process, subscriber, name, active } = row;
  const key = { process: String(process), subscriber: String(subscriber) };
  return { key, name: String(name), active: active === true, records: recordsOf(row) };
}

/**
 * Requests that arrive while one is being answered form the next one, because each costs a round trip and a flush.
 */
export class Gathered<Item, Result> {
  readonly #answer: (items: readonly Item[]) => Promise<readonly Result[]>;
  readonly #most: number;
  #waiting: Waiting<Item, Result>[] = [];
  #isRunning = false;

  /**
   * @param answer resolves to one result for each item
   * @param most items of one request, unless a single caller has more
   */
  constructor(answer: (items: readonly Item[]) => Promise<readonly Result[]>, most: number) {
    this.#answer = answer;
    this.#most = most;
  }

  /**
   * @param records that these items have. One request has {@link RECORDS_AT_ONCE}, unless a single caller has more
   * @throws what `answer` throws, which concerns all that were asked together
   */
  ask(items: readonly Item[], records = items.length): Promise<readonly Result[]> {
    return new Promise((resolve, reject) => {
      this.#waiting.push({ items, records, resolve, reject });
      if (!this.#isRunning) void this.#run();
    });
  }

  async #run(): Promise<void> {
    this.#isRunning = true;
    while (this.#waiting.length > 0) {
      const together = this.#next();
      try {
        const results = await this.#answer(together.flatMap(({ items }) => items));
        let from = 0;
        for (const { items, resolve } of together) {
          resolve(results.slice(from, from + items.length));
          from += items.length;
        }
      } catch (error) {
        for (const { reject } of together) reject(error);
      }
    }
    this.#isRunning = false;
  }

  #next(): readonly Waiting<Item, Result>[] {
    let count = 0;
    let items = 0;
    let records = 0;
    for (const waiting of this.#waiting) {
      items += waiting.items.length;
      records += waiting.records;
      if (count > 0 && (items > this.#most || records > RECORDS_AT_ONCE)) break;
      count += 1;
    }
    return this.#waiting.splice(0, count);
  }
}

interface Waiting<Item, Result> {
  readonly items: readonly Item[];
  readonly records: number;
  readonly resolve: (results: readonly Result[]) => void;
  readonly reject: (error: unknown) => void;
}
