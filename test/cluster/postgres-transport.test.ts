import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import pg from 'pg';
import type { SubscriptionRecord } from '../../src/hub/presence.ts';
import { type Clock, systemClock } from '../../src/kernel/clock.ts';
import { onBoard } from '../support/board.ts';
import {
  collect,
  ids,
  openHistory,
  sharedPostgres,
  until,
  update,
} from '../support/postgres-history.ts';
import type { PostgresServer } from '../support/postgres-server.ts';
import { startRelay } from '../support/relay.ts';
import { TestClock } from '../support/test-clock.ts';
import { follow } from '../support/follow.ts';

const server = sharedPostgres();
/** After which a node looks without a notification. */
const LOOK_MS = 5000;

describe('a history in PostgreSQL whose answers are lost', () => {
  it('stores nothing twice when an append is retried', async (test) => {
    const postgres = await server(test);
    if (postgres === null) return;
    const relay = await startRelay(test, postgres.port);
    const transport = await openHistory(test, { url: through(relay, postgres) });
    const seen = collect(transport);
    await transport.append(update('before'));
    relay.loseAnswers();
    const appends = ['a', 'b', 'c'].map((id) => transport.append(update(id)));
    await until(async () => (await stored(postgres)) === 4);
    relay.cut();
    relay.heal();
    await Promise.all(appends);
    await transport.append(update('after'));
    assert.deepEqual(ids(seen), ['before', 'a', 'b', 'c', 'after']);
    assert.equal(await stored(postgres), 5);
  });

  it('stores nothing twice when the first attempt is executed after the second', async (test) => {
    const postgres = await server(test);
    if (postgres === null) return;
    const relay = await startRelay(test, postgres.port);
    const transport = await openHistory(test, { url: through(relay, postgres) });
    const seen = collect(transport);
    await transport.append(update('before'));
    const holder = new pg.Client({ connectionString: postgres.url });
    await holder.connect();
    await holder.query('BEGIN; SELECT * FROM hubgate.streams FOR UPDATE');
    const append = transport.append(update('a'));
    const waiting = async (): Promise<number> => {
      const text = `SELECT count(*)::int AS count FROM pg_stat_activity
        WHERE wait_event_type = 'Lock' AND query LIKE '%append%'`;
      return Number((await postgres.query(text))[0]?.['count']);
    };
    await until(async () => (await waiting()) === 1);
    // The server does not notice that, because it waits for something else.
    relay.cut();
    relay.heal();
    await until(async () => (await waiting()) === 2);
    await holder.query('COMMIT');
    await holder.end();
    await append;
    await until(async () => (await waiting()) === 0);
    await transport.append(update('after'));
    assert.deepEqual(ids(seen), ['before', 'a', 'after']);
    assert.equal(await stored(postgres), 3);
  });

  it('reports an unknown outcome when the server does not return in time', async (test) => {
    const postgres = await server(test);
    if (postgres === null) return;
    const relay = await startRelay(test, postgres.port);
    const url = through(relay, postgres);
    const transport = await openHistory(test, { url, clock: quickClock() });
    relay.loseAnswers();
    const append = transport.append(update('a'));
    const refused = assert.rejects(append, { code: 'transport-uncertain' });
    await until(async () => (await stored(postgres)) === 1);
    relay.cut();
    await refused;
    await assert.rejects(transport.append(update('b')), { code: 'transport-failed' });
    await assert.rejects(transport.check(), { code: 'transport-failed' });
  });
});

describe('a history in PostgreSQL that becomes unavailable', () => {
  it('delivers what was acknowledged in the meantime, once and in order', async (test) => {
    const postgres = await server(test);
    if (postgres === null) return;
    const relay = await startRelay(test, postgres.port);
    const [away, here] = [
      await openHistory(test, { url: through(relay, postgres) }),
      await openHistory(test, { url: postgres.url }),
    ];
    const seen = collect(away);
    await here.append(update('a'));
    await until(() => seen.length === 1);
    relay.cut();
    const more = Array.from({ length: 500 }, (_, index) => `m${index}`);
    await Promise.all(more.map((id) => here.append(update(id))));
    relay.heal();
    await until(() => seen.length === 501);
    assert.deepEqual(ids(seen), ['a', ...more]);
    assert.deepEqual(
      seen.map(({ position }) => position),
      seen.map((_, index) => index + 1),
    );
  });

  it('is woken by a notification, without a look of its own', async (test) => {
    const postgres = await server(test);
    if (postgres === null) return;
    const never = (): void => {};
    const after: Clock['after'] = (delayMs, task) =>
      delayMs === LOOK_MS ? never : systemClock.after(delayMs, task);
    const [waiting, here] = [
      await openHistory(test, { url: postgres.url, clock: { ...systemClock, after } }),
      await openHistory(test, { url: postgres.url }),
    ];
    const seen: string[] = [];
    follow(waiting, (entries) => seen.push(...ids(entries)));
    waiting.signals?.receive((message) => seen.push(message));
    for (const id of ['a', 'b']) {
      await here.append(update(id));
      await until(() => seen.at(-1) === id);
    }
    void here.signals?.send('signal');
    await until(() => seen.at(-1) === 'signal');
    assert.deepEqual(seen, ['a', 'b', 'signal']);
  });

  it('finds what it was not notified of, and skips nothing for a client that is ahead', async (test) => {
    const postgres = await server(test);
    if (postgres === null) return;
    const clock = quickClock();
    const [deaf, here] = [
      await openHistory(test, { url: postgres.url, clock }),
      await openHistory(test, { url: postgres.url }),
    ];
    const seen = collect(deaf);
    await here.append(update('a'));
    await until(() => seen.length === 1);
    await postgres.query("UPDATE hubgate.streams SET channel = 'elsewhere'");
    await here.append(update('b'));
    await until(() => seen.length === 2);
    await here.append(update('c'));
    assert.equal(await deaf.find('c'), 3);
    assert.deepEqual(ids(seen), ['a', 'b', 'c']);
  });

  it('reports all signals of other nodes before it delivers the updates that followed them', async (test) => {
    const postgres = await server(test);
    if (postgres === null) return;
    const relay = await startRelay(test, postgres.port);
    const [away, here] = [
      await openHistory(test, { url: through(relay, postgres) }),
      await openHistory(test, { url: postgres.url }),
    ];
    const seen: string[] = [];
    follow(away, (entries) => seen.push(...ids(entries)));
    away.signals?.receive((message) => seen.push(message));
    const atHere: string[] = [];
    here.signals?.receive((message) => atHere.push(message));
    void here.signals?.send('first');
    await until(() => seen.length === 1);
    relay.cut();
    void away.signals?.send('from away');
    const signals = Array.from({ length: 1_300 }, (_, index) => `signal ${index}`);
    for (const signal of signals) void here.signals?.send(signal);
    const count = 'SELECT count(*)::int AS count FROM hubgate.signals';
    const sent = async () => Number((await postgres.query(count))[0]?.['count']);
    await until(async () => (await sent()) === 1 + signals.length);
    await here.append(update('a'));
    relay.heal();
    await until(() => seen.includes('a') && atHere.length === 1);
    // Signals that are sent again after a lost connection come later than others.
    assert.equal(seen.indexOf('a'), seen.length - 1);
    assert.deepEqual(new Set(seen), new Set(['first', ...signals, 'a']));
    assert.deepEqual(atHere, ['from away']);
    // While it is connected, and busy.
    relay.pause();
    void here.signals?.send('second');
    await until(async () => (await sent()) === 3 + signals.length);
    await here.append(update('b'));
    relay.resume();
    await until(() => seen.includes('b'));
    assert.deepEqual(seen.slice(-2), ['second', 'b']);
  });

  it('reports a signal before the update that the same node stores after it', async (test) => {
    const postgres = await server(test);
    if (postgres === null) return;
    const [there, here] = [
      await openHistory(test, { url: postgres.url }),
      await openHistory(test, { url: postgres.url }),
    ];
    const seen: string[] = [];
    follow(there, (entries) => seen.push(...ids(entries)));
    there.signals?.receive((message) => seen.push(message));
    for (let round = 0; round < 50; round += 1) {
      void here.signals?.send(`signal ${round}`);
      await here.append(update(`update ${round}`));
    }
    await until(() => seen.at(-1) === 'update 49');
    const tooLate = Array.from({ length: 50 }, (_, round) => round).filter(
      (round) => seen.indexOf(`signal ${round}`) > seen.indexOf(`update ${round}`),
    );
    assert.deepEqual([tooLate, seen.length], [[], 100]);
  });

  it('starts over when its tables were removed', async (test) => {
    const postgres = await server(test);
    if (postgres === null) return;
    const transport = await openHistory(test, { url: postgres.url });
    const seen = collect(transport);
    for (const id of ['a', 'b']) await transport.append(update(id));
    await postgres.query('DROP SCHEMA hubgate CASCADE');
    await assert.rejects(transport.append(update('refused')), { code: 'transport-failed' });
    await until(() => transport.lastEventId === null);
    await transport.append(update('c'));
    assert.deepEqual(
      seen.map(({ position, update: { id } }) => [position, id]),
      [
        [1, 'a'],
        [2, 'b'],
        [3, 'c'],
      ],
    );
    assert.deepEqual(ids(await transport.read(0, 10)), ['c']);
  });
});

describe('a history in PostgreSQL and its nodes', () => {
  it('is opened without reading its updates', async (test) => {
    const postgres = await server(test);
    if (postgres === null) return;
    const relay = await startRelay(test, postgres.port);
    const here = await openHistory(test, { url: postgres.url });
    const data = 'x'.repeat(256 * 1024);
    for (let nth = 0; nth < 48; nth += 1) await here.append(update(`u${nth}`, data));
    const other = await openHistory(test, { url: through(relay, postgres) });
    assert.ok(relay.answered < data.length, `${relay.answered} bytes to open it`);
    const seen = collect(other);
    await here.append(update('live'));
    await until(() => seen.length === 1);
    assert.deepEqual(ids(seen), ['live']);
  });

  it('is created once by nodes that start at the same time', async (test) => {
    const postgres = await server(test);
    if (postgres === null) return;
    const nodes = await Promise.all(
      Array.from({ length: 5 }, () => openHistory(test, { url: postgres.url, schema: 'Two "x"' })),
    );
    await Promise.all(nodes.map((node, index) => node.append(update(`${index}`))));
    const [row] = await postgres.query('SELECT count(*)::int AS n FROM "Two ""x""".streams');
    assert.deepEqual(row, { n: 1 });
  });

  it('stores what has waited for another node, whatever isolation is the default of the database', async (test) => {
    const postgres = await server(test);
    if (postgres === null) return;
    const database = new URL(postgres.url).pathname.slice(1);
    await postgres.query(
      `ALTER DATABASE ${database} SET default_transaction_isolation = 'serializable'`,
    );
    const transport = await openHistory(test, { url: postgres.url });
    const holder = new pg.Client({ connectionString: postgres.url });
    await holder.connect();
    await holder.query('BEGIN; UPDATE hubgate.streams SET channel = channel');
    const append = transport.append(update('a'));
    await until(async () => {
      const text = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
      return (await postgres.query(text)).length === 1;
    });
    await holder.query('COMMIT');
    await holder.end();
    await append;
    assert.equal(await stored(postgres), 1);
  });

  it('keeps its connections to a server that ends idle sessions, although nobody publishes', async (test) => {
    const postgres = await server(test);
    if (postgres === null) return;
    const database = new URL(postgres.url).pathname.slice(1);
    await postgres.query(`ALTER DATABASE ${database} SET idle_session_timeout = '1s'`);
    await openHistory(test, { url: postgres.url });
    const backends = async (): Promise<readonly unknown[]> => {
      const text = `SELECT pid FROM pg_stat_activity
        WHERE datname = '${database}' AND application_name LIKE 'hubgate%' ORDER BY pid`;
      return (await postgres.query(text)).map(({ pid }) => pid);
    };
    const before = await backends();
    const idle = new pg.Client({ connectionString: postgres.url });
    idle.on('error', () => {});
    const ended = new Promise((resolve) => idle.once('end', resolve));
    await idle.connect();
    await ended;
    assert.equal(before.length, 3);
    assert.deepEqual(await backends(), before);
  });

  it('leaves tables of a later version unchanged', async (test) => {
    const postgres = await server(test);
    if (postgres === null) return;
    const transport = await openHistory(test, { url: postgres.url });
    await transport.append(update('a'));
    await postgres.query('UPDATE hubgate.version SET version = 2');
    await assert.rejects(openHistory(test, { url: postgres.url }), { code: 'history-too-new' });
  });

  it('evicts old updates by the clock of the server, a bounded number for each append', async (test) => {
    const postgres = await server(test);
    if (postgres === null) return;
    const transport = await openHistory(test, { url: postgres.url, maxAgeMs: 60_000 });
    const old = Array.from({ length: 200 }, (_, index) => `old${index}`);
    await Promise.all(old.map((id) => transport.append(update(id))));
    await postgres.query('UPDATE hubgate.entries SET at = at - 61000');
    await transport.append(update('new'));
    const left = ids(await transport.read(0, 1000));
    assert.deepEqual(left, [...old.slice(65), 'new'], '64 and as many as were appended');
    assert.equal(await transport.find('old0'), null);
    assert.equal((await transport.evicted()).updates, 65);
    for (let count = 0; count < 3; count += 1) await transport.append(update(`more${count}`));
    assert.deepEqual(ids(await transport.read(0, 1000)), ['new', 'more0', 'more1', 'more2']);
  });

  it('counts events of a key for all nodes in a window, and forgets keys', async (test) => {
    const postgres = await server(test);
    if (postgres === null) return;
    const nodes = [
      await openHistory(test, { url: postgres.url }),
      await openHistory(test, { url: postgres.url }),
    ];
    const seen: number[] = [];
    for (const node of [...nodes, ...nodes]) {
      seen.push((await node.counts?.count('key', 3, 3_600_000))?.current ?? -1);
    }
    assert.deepEqual(seen, [0, 1, 2, 3]);
    await Promise.all(
      Array.from({ length: 20 }, async (_, index) =>
        nodes[index % 2]?.counts?.count('k', 10, 3_600_000),
      ),
    );
    assert.equal((await nodes[0]?.counts?.count('k', 10, 3_600_000))?.current, 10);
    await postgres.query('UPDATE hubgate.counts SET expires = 0');
    await nodes[0]?.counts?.count('another', 3, 1000);
    const [row] = await postgres.query('SELECT count(*)::int AS n FROM hubgate.counts');
    assert.deepEqual(row, { n: 1 });
  });

  it('removes the subscriptions of a dead node, and notifies exactly one of the others', async (test) => {
    const postgres = await server(test);
    if (postgres === null) return;
    const relay = await startRelay(test, postgres.port);
    const clocks = [new TestClock(), new TestClock()];
    const [one, two] = await Promise.all(
      clocks.map((presenceClock) => openHistory(test, { url: postgres.url, presenceClock })),
    );
    const dying = await openHistory(test, { url: through(relay, postgres) });
    assert.ok(one !== undefined && two !== undefined);
    const told: unknown[] = [];
    for (const { presence } of [one, two]) {
      presence.watch(async ({ records, active }) => {
        if (!active) told.push(...records.map(({ id }) => id));
      });
    }
    await one.presence.enter('urn:s', [subscription('s')]);
    const gone = Array.from({ length: 700 }, (_, index) => `g${index}`);
    await Promise.all(gone.map((id) => dying.presence.enter(`urn:${id}`, [subscription(id)])));
    assert.equal((await onBoard(two.presence)).length, 701);
    relay.cut();
    // Its lease runs out by the clock of the server, which is not turned but told.
    await postgres.query(`UPDATE hubgate.processes SET until = 1 WHERE process = (
      SELECT process FROM hubgate.present WHERE subscriber = 'urn:g0')`);
    for (const clock of clocks) clock.advance(5000);
    await until(() => told.length >= 700);
    for (const clock of clocks) clock.advance(5000);
    assert.deepEqual(
      (await onBoard(two.presence)).map(({ id }) => id),
      [subscription('s').id],
    );
    assert.equal(told.length, 700);
  });
});

/** The address of a server behind a relay. */
function through({ port }: { readonly port: number }, { url }: PostgresServer): string {
  const there = new URL(url);
  there.port = String(port);
  return there.href;
}

async function stored(postgres: PostgresServer): Promise<number> {
  const [row] = await postgres.query('SELECT count(*)::int AS count FROM hubgate.entries');
  return Number(row?.['count']);
}

/** Waits and limits of seconds are over ten times as soon. */
function quickClock(): Clock {
  return {
    now: systemClock.now,
    monotonic: () => systemClock.monotonic() * 10,
    after: (delayMs, task) => systemClock.after(delayMs / 10, task),
  };
}

function subscription(subscriber: string): SubscriptionRecord {
  return {
    id: `/hub/subscriptions/exact/m/${subscriber}`,
    type: 'subscription',
    ...{ subscriber, match: 'm', match_type: 'exact', active: true },
  };
}
