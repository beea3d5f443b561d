import assert from 'node:assert/strict';
import { describe, it, type TestContext } from 'node:test';
import { setImmediate as nextTurn, setTimeout as pause } from 'node:timers/promises';
import pg from 'pg';
import { outboxSql } from '../../src/outbox/outbox-sql.ts';
import { freePort } from '../support/free-port.ts';
import { startGateway, startLibraryGateway, type TestProgram } from '../support/gateway.ts';
import { openStream, send, type Stream } from '../support/http.ts';
import { type PostgresServer, startPostgres } from '../support/postgres-server.ts';
import { RecordedLog } from '../support/recorded-log.ts';
import { temporaryDirectory } from '../support/temporary-directory.ts';
import { TurnedClock } from '../support/turned-clock.ts';
import { rounds } from '../support/rounds.ts';

/** Connections that commit and roll back, and the transactions of each: more, until some nodes were killed. */
const WRITERS = 16;
const KILLS = 3;
const TRANSACTIONS = rounds(20, 40);

async function startOutbox(
  test: TestContext,
  table = 'public.hub_outbox',
): Promise<PostgresServer | null> {
  const server = await startPostgres(test, test);
  await server?.query(outboxSql({ table, writers: [], reader: null }));
  return server;
}

const siteOf = (origin: string, url: string, transport = 'transport memory', more = ''): string =>
  `${origin} {
	hub {
		anonymous
		${transport}
		write_timeout 0s
		outbox ${url} {
			${more}
		}
	}
}
`;

async function client(test: TestContext, server: PostgresServer): Promise<pg.Client> {
  const one = new pg.Client({ connectionString: server.url });
  one.on('error', () => {});
  await one.connect();
  test.after(() => one.end());
  return one;
}

const everything = (test: TestContext, origin: string): Promise<Stream> =>
  openStream(test, `${origin}/.well-known/hub?match=*&last_event_id=earliest`);

const insert = (id: string, topic = '/a'): string =>
  `INSERT INTO hub_outbox (id, topic, data) VALUES ('${id}', '${topic}', 'of ${id}')`;

describe('an outbox in PostgreSQL', () => {
  it('publishes rows if and only if their transaction commits, woken by the commit', async (test) => {
    const server = await startOutbox(test);
    if (server === null) return;
    const origin = `http://localhost:${await freePort()}`;
    // Its clock stands still, so only notifications wake it.
    const clock = new TurnedClock();
    clock.after = () => () => {};
    await startLibraryGateway(test, siteOf(origin, server.url), undefined, undefined, clock);
    const stream = await everything(test, origin);
    const writer = await client(test, server);
    await writer.query(`BEGIN; ${insert('urn:1')}; ${insert('urn:2')}; COMMIT`);
    await stream.untilId('urn:2');
    await writer.query(`BEGIN; ${insert('urn:3')}; ROLLBACK`);
    await writer.query(
      `BEGIN; ${insert('urn:4')}; SAVEPOINT s; ${insert('urn:5')}; ROLLBACK TO s; COMMIT`,
    );
    await writer.query(
      `INSERT INTO hub_outbox (id, topics, data, private, type, retry)
        VALUES ('urn:6', '{https://x.example/1,/b}', E'two\\nlines', false, 'change', 1500)`,
    );
    await stream.untilId('urn:6');
    assert.deepEqual(stream.ids, ['urn:1', 'urn:2', 'urn:4', 'urn:6']);
    assert.match(stream.text, /^data: of urn:1$/m);
    for (const line of [/^event: change$/m, /^retry: 1500$/m]) assert.match(stream.text, line);
    while ((await server.query('SELECT 1 FROM hub_outbox')).length > 0) await nextTurn();
  });

  it('finds what no notification announces, with a look now and then', async (test) => {
    const server = await startOutbox(test);
    if (server === null) return;
    await server.query('DROP TRIGGER hubgate_notify ON hub_outbox');
    const origin = `http://localhost:${await freePort()}`;
    const clock = new TurnedClock();
    await startLibraryGateway(test, siteOf(origin, server.url), undefined, undefined, clock);
    const stream = await everything(test, origin);
    await server.query(insert('urn:1'));
    while (!stream.ids.includes('urn:1')) {
      clock.turn(5_000);
      await pause(10);
    }
  });

  it('waits for transactions that are open, and keeps the order of those that wait for each other', async (test) => {
    const server = await startOutbox(test);
    if (server === null) return;
    await server.query(
      'CREATE TABLE books (id int, title text); INSERT INTO books VALUES (1, $$$$)',
    );
    const origin = `http://localhost:${await freePort()}`;
    await startLibraryGateway(test, siteOf(origin, server.url));
    const stream = await everything(test, origin);
    const [one, other, third] = [
      await client(test, server),
      await client(test, server),
      await client(test, server),
    ];
    // The first has the lower transaction number, and writes the book last.
    await one.query('BEGIN; SELECT pg_current_xact_id()');
    await third.query('BEGIN; SELECT pg_current_xact_id()');
    await other.query(`BEGIN; UPDATE books SET title = 'other'; ${insert('urn:other')}`);
    const waiting = one.query(`UPDATE books SET title = 'one'`);
    await other.query('COMMIT');
    await waiting;
    await one.query(insert('urn:one'));
    await one.query('COMMIT');
    await third.query(`${insert('urn:third')}; COMMIT`);
    await stream.untilId('urn:third');
    assert.deepEqual(stream.ids, ['urn:other', 'urn:one', 'urn:third']);
  });

  it('publishes rows of a restored backup, whose transactions this server has never seen', async (test) => {
    const server = await startOutbox(test);
    if (server === null) return;
    await server.query(
      `INSERT INTO hub_outbox (id, topic, xid) VALUES ('urn:restored', '/a', '99999999999')`,
    );
    await server.query(insert('urn:new'));
    const origin = `http://localhost:${await freePort()}`;
    await startLibraryGateway(test, siteOf(origin, server.url));
    const stream = await everything(test, origin);
    await stream.untilId('urn:new');
    assert.deepEqual(stream.ids, ['urn:restored', 'urn:new']);
  });

  it('puts rows that cannot be published aside with the reason, and goes on', async (test) => {
    const server = await startOutbox(test);
    if (server === null) return;
    const origin = `http://localhost:${await freePort()}`;
    const more = 'topics /books/* urn:last';
    const { gateway } = await startLibraryGateway(
      test,
      siteOf(origin, server.url, 'max_request_body_size 10KB', more),
    );
    const stream = await everything(test, origin);
    await server.query(`
      ${insert('urn:1', '/users/1')};
      INSERT INTO hub_outbox (id, topic, data) VALUES ('urn:2', '/books/1', repeat('x', 20000));
      INSERT INTO hub_outbox (id, topic) VALUES ('urn:3', '/.well-known/hub/subscriptions');
      INSERT INTO hub_outbox (id) VALUES ('urn:4');
      INSERT INTO hub_outbox (id, topic) VALUES (repeat('é', 3000), '/books/1');
      INSERT INTO hub_outbox (id, topics) VALUES ('urn:nulls', '{NULL,NULL}');
      INSERT INTO hub_outbox (id, topics) VALUES ('urn:many', array_fill(''::text, ARRAY[4001]));
      ${insert('urn:5', '/books/1')};
      INSERT INTO hub_outbox (id, topics) VALUES ('urn:6', '{/books/2,NULL}'), ('urn:7', '{{/books/3,NULL}}');
      ${insert('urn:last', 'urn:last')}`);
    await stream.untilId('urn:last');
    assert.deepEqual(stream.ids, ['urn:5', 'urn:6', 'urn:7', 'urn:last']);
    let dead: readonly Record<string, unknown>[] = [];
    while (dead.length < 7) dead = await server.query('SELECT * FROM hub_outbox_dead ORDER BY nr');
    const reasons = dead.map(({ reason }) => String(reason));
    for (const [index, why] of [
      ...[/outside "topics"/, /more than 10000 bytes|more than 10240 bytes/, /reserved/],
      ...[/Missing "topic"/, /id too long/, /Missing "topic"/, /more than 4000 topics/],
    ].entries()) {
      assert.match(reasons[index] ?? '', why);
    }
    assert.equal(String(dead[1]?.['data']).length, 20_000);
    // They are counted when the server has confirmed the transaction that others see already.
    let counted = 0;
    for (let asked = 0; asked < 2000 && counted < 7; asked += 1) {
      const families = await gateway.families();
      const letters = families.find(({ name }) => name === 'hub_outbox_dead_letters_total');
      counted = letters?.values[0]?.value ?? 0;
    }
    assert.equal(counted, 7);
  });

  it('puts large rows aside in portions, so that the server needs little time for each', async (test) => {
    const server = await startOutbox(test);
    if (server === null) return;
    const origin = `http://localhost:${await freePort()}`;
    const site = siteOf(origin, server.url, 'max_request_body_size 10KB');
    await startLibraryGateway(test, site);
    const stream = await everything(test, origin);
    await server.query(`
      INSERT INTO hub_outbox (topic, data) SELECT '/a', repeat('x', 3000000) FROM generate_series(1, 8);
      ${insert('urn:last')}`);
    await stream.untilId('urn:last');
    const [dead] = await server.query(
      'SELECT count(*)::int AS rows, count(DISTINCT xmin::text)::int AS portions FROM hub_outbox_dead',
    );
    assert.deepEqual(dead, { rows: 8, portions: 4 });
  });

  it('publishes a row once that is published but cannot be deleted', async (test) => {
    const server = await startOutbox(test);
    if (server === null) return;
    await server.query(`CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
      $$BEGIN RAISE EXCEPTION 'not now'; END$$;
      CREATE TRIGGER refuse BEFORE DELETE ON hub_outbox FOR EACH ROW EXECUTE FUNCTION refuse()`);
    const origin = `http://localhost:${await freePort()}`;
    const { gateway } = await startLibraryGateway(test, siteOf(origin, server.url));
    const stream = await everything(test, origin);
    await server.query(`${insert('urn:1')}; ${insert('urn:2')}`);
    const failures = async (): Promise<number> => {
      const families = await gateway.families();
      const found = families.find(({ name }) => name === 'hub_outbox_failures_total');
      return found?.values[0]?.value ?? 0;
    };
    while ((await failures()) < 3) await pause(20);
    await server.query('DROP TRIGGER refuse ON hub_outbox');
    await server.query(insert('urn:3'));
    await stream.untilId('urn:3');
    assert.deepEqual(stream.ids, ['urn:1', 'urn:2', 'urn:3']);
  });

  it('publishes and deletes a row in one statement if the history is in the same database', async (test) => {
    const server = await startOutbox(test);
    if (server === null) return;
    await server.query(`CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
      $$BEGIN RAISE EXCEPTION 'not now'; END$$;
      CREATE TRIGGER refuse BEFORE DELETE ON hub_outbox FOR EACH ROW EXECUTE FUNCTION refuse()`);
    const origin = `http://localhost:${await freePort()}`;
    const transport = `transport postgres {\n\t\t\turl ${server.url}\n\t\t\tmax_length 1\n\t\t}`;
    const log = new RecordedLog();
    await startLibraryGateway(test, siteOf(origin, server.url, transport), undefined, log);
    const stream = await everything(test, origin);
    await server.query(`${insert('urn:1')}; ${insert('urn:2')}`);
    await log.says('The rows of the outbox are not published at the moment');
    const [stored] = await server.query('SELECT count(*) AS rows FROM hubgate.entries');
    assert.equal(Number(stored?.['rows']), 0);
    await server.query('DROP TRIGGER refuse ON hub_outbox');
    await server.query(insert('urn:3'));
    await stream.untilId('urn:3');
    assert.deepEqual(stream.ids, ['urn:1', 'urn:2', 'urn:3']);
    assert.deepEqual(await server.query('SELECT 1 FROM hub_outbox'), []);
  });

  it('is not ready while it cannot read, says why, and goes on when it can', async (test) => {
    const server = await startPostgres(test, test);
    if (server === null) return;
    const origin = `http://localhost:${await freePort()}`;
    const clock = new TurnedClock();
    const log = new RecordedLog();
    const site = siteOf(origin, server.url);
    const { gateway } = await startLibraryGateway(test, site, undefined, log, clock);
    const errors = () => log.lines.filter(({ level }) => level === 'error');
    while (errors().length === 0) await pause(5);
    assert.match(String(errors()[0]?.fields['error']), /create them with hubgate outbox sql/);
    const check = async (): Promise<unknown> => {
      const { hubs } = await gateway.status();
      return Promise.all(hubs.map((hub) => hub.check())).then(
        () => null,
        ({ code }) => code,
      );
    };
    assert.equal(await check(), null);
    clock.turn(15_000);
    assert.equal(await check(), 'outbox-failed');
    await server.query(outboxSql({ table: 'hub_outbox', writers: [], reader: null }));
    await server.query(insert('urn:1'));
    const stream = await everything(test, origin);
    while (!stream.ids.includes('urn:1')) {
      clock.turn(1_000);
      await pause(20);
    }
    while ((await check()) !== null) await pause(5);
  });

  it('is not ready while the server still runs a statement of its, with the lock, that took too long', async (test) => {
    const server = await startOutbox(test);
    if (server === null) return;
    const origin = `http://localhost:${await freePort()}`;
    const clock = new TurnedClock();
    const log = new RecordedLog();
    const site = siteOf(origin, server.url, 'max_request_body_size 10KB');
    const { gateway } = await startLibraryGateway(test, site, undefined, log, clock);
    const check = async (): Promise<unknown> => {
      const { hubs } = await gateway.status();
      return Promise.all(hubs.map((hub) => hub.check())).then(
        () => null,
        ({ code }) => code,
      );
    };
    const blocker = await client(test, server);
    await blocker.query('BEGIN; LOCK TABLE hub_outbox_dead IN SHARE MODE');
    await server.query("INSERT INTO hub_outbox (topic, data) VALUES ('/a', repeat('x', 20000))");
    const waiting = "SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
    while ((await server.query(waiting)).length === 0) await pause(5);
    clock.turn(120_000);
    const failed = () => log.lines.filter(({ level }) => level === 'error');
    while (failed().length === 0) {
      clock.turn(1_000);
      await pause(20);
    }
    for (let looks = 0; looks < 20; looks += 1) {
      clock.turn(1_000);
      await pause(20);
    }
    assert.equal(await check(), 'outbox-failed');
    await blocker.query('ROLLBACK');
    const dead = 'SELECT FROM hub_outbox_dead';
    while ((await server.query(dead)).length === 0 || (await check()) !== null) {
      clock.turn(1_000);
      await pause(20);
    }
  });

  it('continues with the same reader after a reload, and with another one after a change', async (test) => {
    const server = await startOutbox(test);
    if (server === null) return;
    const origin = `http://localhost:${await freePort()}`;
    const { reload } = await startLibraryGateway(test, siteOf(origin, server.url));
    const stream = await everything(test, origin);
    await server.query(insert('urn:1'));
    await stream.untilId('urn:1');
    await reload(siteOf(origin, server.url).replace('}\n}', '}\n\trespond hello\n}'));
    await server.query(insert('urn:2'));
    await stream.untilId('urn:2');
    await reload(siteOf(origin, server.url, 'transport memory', 'topics /b'));
    await server.query(`${insert('urn:3')}; ${insert('urn:4', '/b')}`);
    await stream.untilId('urn:4');
    assert.deepEqual(stream.ids, ['urn:1', 'urn:2', 'urn:4']);
  });
});

interface Transaction {
  readonly ids: readonly string[];
  /** Moments of the test: before its first statement, and after its commit was acknowledged. */
  readonly began: number;
  readonly committed: number;
}

/** Commits and rolls back at random, and returns what it has committed. */
async function write(
  test: TestContext,
  server: PostgresServer,
  writer: number,
  moment: () => number,
  progress: { readonly kills: number },
): Promise<Transaction[]> {
  const connection = await client(test, server);
  const done: Transaction[] = [];
  const most = 20 * TRANSACTIONS;
  for (let number = 0; number < most; number += 1) {
    if (number >= TRANSACTIONS && progress.kills >= KILLS) break;
    const began = moment();
    const ids: string[] = [];
    await connection.query('BEGIN');
    const rows = 1 + Math.floor(Math.random() * 4);
    for (let row = 0; row < rows; row += 1) {
      const id = `urn:${writer}:${number}:${row}`;
      const isUndone = Math.random() < 0.1;
      if (isUndone) await connection.query('SAVEPOINT s');
      await connection.query(insert(id));
      if (isUndone) await connection.query('ROLLBACK TO s');
      else ids.push(id);
      // Some transactions are open for long.
      const ms = Math.random() < 0.02 ? 1_500 : Math.random() * 30;
      await connection.query('SELECT pg_sleep($1)', [ms / 1000]);
    }
    if (Math.random() < 0.3) {
      await connection.query('ROLLBACK');
      continue;
    }
    await connection.query('COMMIT');
    done.push({ ids, began, committed: moment() });
  }
  return done;
}

function checkOrder(found: readonly string[], transactions: readonly Transaction[]): void {
  const expected = transactions.flatMap(({ ids }) => ids);
  assert.deepEqual(
    [...found].sort(),
    [...expected].sort(),
    'exactly the committed rows, each once',
  );
  const of = new Map(transactions.flatMap((one) => one.ids.map((id) => [id, one] as const)));
  const placeOf = new Map(found.map((id, place) => [id, place]));
  let firstCommitBehind = Infinity;
  for (const id of found.toReversed()) {
    const { began, committed } = of.get(id) ?? assert.fail(id);
    assert.ok(firstCommitBehind >= began, `${id} has overtaken a row committed before it began`);
    firstCommitBehind = Math.min(firstCommitBehind, committed);
  }
  for (const { ids } of transactions) {
    const places = ids.map((id) => placeOf.get(id) ?? -1);
    assert.deepEqual(
      places,
      [...places].sort((a, b) => a - b),
      'rows of a transaction in order',
    );
  }
}

describe(`an outbox that ${WRITERS} connections write and three nodes read`, () => {
  const transports: Record<string, (test: TestContext, server: PostgresServer) => Promise<string>> =
    {
      lmdb: async (test) => `transport lmdb {\n\t\t\tpath ${await temporaryDirectory(test)}\n\t\t}`,
      postgres: async (_test, { url }) =>
        `transport postgres {\n\t\t\turl ${url}\n\t\t\tstream x\n\t\t}`,
    };
  for (const [name, transportOf] of Object.entries(transports)) {
    it(`becomes exactly the committed rows in order while nodes are killed, with transport ${name}`, async (test) => {
      const server = await startOutbox(test);
      if (server === null) return;
      const transport = await transportOf(test, server);
      const origins = ['https://x.example'].join(' ');
      const start = async (): Promise<{ origin: string; program: TestProgram }> => {
        const origin = `http://localhost:${await freePort()}`;
        const site = siteOf(origin, server.url, transport, `origins ${origins}`);
        return { origin, program: await startGateway(test, site) };
      };
      const nodes = await Promise.all([start(), start(), start()]);
      let now = 0;
      const moment = (): number => (now += 1);
      const progress = { areWriting: true, kills: 0 };
      const writing = Promise.all(
        Array.from({ length: WRITERS }, (_, writer) =>
          write(test, server, writer, moment, progress),
        ),
      ).finally(() => {
        progress.areWriting = false;
      });
      while (progress.areWriting) {
        // The reader loses its session over and over: another one takes over, and publishes what that one may be
        // publishing at this moment.
        for (let cut = 0; cut < 12; cut += 1) {
          await pause(20);
          await server.query(
            `SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory'`,
          );
        }
        const index = progress.kills % nodes.length;
        nodes[index]?.program.process.child.kill('SIGKILL');
        progress.kills += 1;
        nodes[index] = await start();
      }
      const transactions = (await writing).flat();
      assert.ok(progress.kills >= KILLS);
      const [{ origin }] = nodes;
      await server.query(insert('urn:last'));
      while ((await server.query('SELECT 1 FROM hub_outbox LIMIT 1')).length > 0) await pause(20);
      const stream = await everything(test, origin);
      await stream.untilId('urn:last');
      const dead = await server.query('SELECT * FROM hub_outbox_dead');
      assert.deepEqual(dead, []);
      assert.equal((await send(`${origin}/`)).status, 404);
      checkOrder(stream.ids.slice(0, -1), transactions);
    });
  }
});
