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
import type { Queries, Row } from '../../postgres/connection.ts';
import {
  type Claim,
  type Entered,
  LEASE_MS,
  type OwnEntry,
  PresenceKeeper,
  type PresenceStore,
  stateOf,
} from '../presence-keeper.ts';
import { Gathered } from './gathered.ts';
import type { Session } from './session.ts';
import type { StoredLog } from './stored-log.ts';
import { quoted } from './tables.ts';

/** Entries that are added, read or removed in one step. */
const AT_ONCE = 500;

interface Key {
  readonly process: string;
  readonly subscriber: string;
}

interface Leave {
  readonly subscriber: string;
  /** Of the change. */
  readonly name: string;
}

interface PostgresPresenceOptions {
  readonly schema: string;
  readonly storedLog: StoredLog;
  readonly process: string;
  /** @throws while PostgreSQL is unavailable */
  readonly session: () => Session;
  readonly clock: Clock;
  readonly log: Logger;
}

/**
 * A presence board in PostgreSQL. Each process holds a lease, measured by the server's clock. A process that finds an
 * expired lease removes the entries of its process in the same step, so that no other process does the same.
 */
export class PostgresPresence implements PresenceBoard {
  readonly #options: PostgresPresenceOptions;
  readonly #s: string;
  readonly #keeper: PresenceKeeper<Key>;
  /** The next session, while the board is being restored with it. */
  #next: Session | null = null;
  #closed = false;

  constructor(options: PostgresPresenceOptions) {
    this.#options = options;
    this.#s = quoted(options.schema);
    const { clock, log } = options;
    const entering = new Gathered((entries: readonly OwnEntry[]) => this.#enter(entries), AT_ONCE);
    const leaving = new Gathered((leaves: readonly Leave[]) => this.#leave(leaves), AT_ONCE);
    const store: PresenceStore<Key> = {
      atOnce: AT_ONCE,
      enter: (entries) =>
        this.#asked(async () => {
          const entered = await entering.ask(entries);
          const lived = entered.every((one) => one.lived);
          return { lived, states: entered.map(({ state }) => state) };
        }),
      leave: (subscribers, name) =>
        this.#asked(async () => {
          const claims = await leaving.ask(subscribers.map((subscriber) => ({ subscriber, name })));
          return claims.filter((claim) => claim !== null);
        }),
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
    return this.#asked(async () => {
      const found = await this.#pageRows(Number(after ?? 0), limit + 1, matcher);
      const shown = found.slice(0, limit);
      const last = shown.at(-1)?.['arrival'];
      return {
        records: shown.flatMap(recordsOf),
        next: found.length > limit ? String(Number(last)) : null,
      };
    });
  }

  of(subscriber: string): Promise<readonly SubscriptionRecord[]> {
    return this.#asked(async () => {
      const text = `SELECT records FROM ${this.#s}.present WHERE stream = $1 AND subscriber = $2`;
      return (await this.#query(text, [subscriber], 'present of')).flatMap(recordsOf);
    });
  }

  watch(listener: (change: PresenceChange) => Promise<void>): void {
    this.#keeper.watch(listener);
  }

  /**
   * Updates the board through a session that is not in use yet. The returned function announces the changes; it needs
   * the history.
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
    const { process, log } = this.#options;
    try {
      await this.#keeper.close();
      for (let count = AT_ONCE; count === AT_ONCE; ) {
        const [row] = await this.#call('quit', [process, AT_ONCE]);
        count = Number(row?.['quit']);
      }
    } catch (error) {
      log.debug('The presence will expire with its lease', { reason: messageOf(error) });
    }
    this.#closed = true;
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

  async #enter(
    entries: readonly OwnEntry[],
  ): Promise<readonly { lived: boolean; state: Entered['states'][number] }[]> {
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

  async #beat(name: string, renews: boolean) {
    const values = [this.#options.process, LEASE_MS, name, AT_ONCE, renews];
    const [row] = await this.#call('beat', values);
    const claims: readonly Row[] = Array.isArray(row?.['claims']) ? row['claims'] : [];
    return { lived: row?.['lived'] === true, claimed: claims.map(claimOf) };
  }

  async #settle(claims: readonly Claim<Key>[], name: string): Promise<readonly Claim<Key>[]> {
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

  /** Calls a function of the board with the stream and these arguments. */
  #call(name: string, values: readonly unknown[]): Promise<readonly Row[]> {
    const places = values.map((_, index) => `$${index + 2}`).join(', ');
    return this.#query(`SELECT * FROM ${this.#s}.${name}($1, ${places})`, values, name);
  }

  #query(text: string, values: readonly unknown[], name: string): Promise<readonly Row[]> {
    const { storedLog, session } = this.#options;
    const { commands }: { readonly commands: Queries } = this.#next ?? session();
    return commands.query(text, [storedLog.stream, ...values], { name: `${this.#s} ${name}` });
  }

  async #asked<Reply>(ask: () => Promise<Reply>): Promise<Reply> {
    if (this.#closed) {
      throw new HubgateError('transport-closed', 'The connection to PostgreSQL is closed');
    }
    try {
      return await ask();
    } catch (cause) {
      if (codeOf(cause) === 'transport-failed') throw cause;
      throw new HubgateError('transport-failed', 'The presence could not be stored', { cause });
    }
  }
}

function compare(a: string, b: string): number {
  return Buffer.compare(Buffer.from(a), Buffer.from(b));
}

function digestOf(name: string): string {
  return createHash('sha256').update(name).digest('base64url');
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
