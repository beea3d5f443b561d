import assert from 'node:assert/strict';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { after, describe, it, type TestContext } from 'node:test';
import { type Clock, systemClock } from '../../src/kernel/clock.ts';
import { Secret } from '../../src/kernel/secret.ts';
import {
  connectPostgres,
  type PostgresConnection,
  faultOf,
} from '../../src/postgres/connection.ts';
import { listenPostgres } from '../../src/postgres/listen.ts';
import { startPgBouncer } from '../support/pgbouncer.ts';
import { type PostgresServer, startPostgres } from '../support/postgres-server.ts';
import { afterSending, pauseProcess } from '../support/paused-process.ts';
import { startRelay } from '../support/relay.ts';
import { temporaryDirectory } from '../support/temporary-directory.ts';
import { TestClock } from '../support/test-clock.ts';

let shared: Promise<PostgresServer | null> | undefined;
const ends: (() => unknown)[] = [];
after(async () => {
  for (const end of ends.reverse()) await end();
});

function server(test: TestContext): Promise<PostgresServer | null> {
  shared ??= startPostgres(
    test,
    { after: (end) => ends.push(end) },
    { access: ['host all guarded 127.0.0.1/32 scram-sha-256'] },
  );
  return shared;
}

async function connect(
  test: TestContext,
  url: string,
  passwordFile: string | null = null,
  clock: Clock = systemClock,
) {
  const place = { url: new Secret(url), passwordFile, trustPoolFile: null };
  const connection = await connectPostgres(place, { clock });
  test.after(() => connection.close());
  return connection;
}

describe('a connection to PostgreSQL', () => {
  it('runs statements and transactions, which other statements do not enter', async (test) => {
    const postgres = await server(test);
    if (postgres === null) return;
    const connection = await connect(test, postgres.url);
    assert.equal(connection.isPooled, false);
    await connection.query('CREATE TEMPORARY TABLE t (n bigint)');
    const failed = connection.transaction(async ({ query }) => {
      await query('INSERT INTO t VALUES (1)');
      await query('SELECT 1 / 0');
    });
    const inserted = connection.query('INSERT INTO t VALUES ($1)', [2]);
    await assert.rejects(failed, { code: '22012' });
    await inserted;
    assert.deepEqual(await connection.query('SELECT n FROM t'), [{ n: 2 }]);
  });

  it('refuses statements that have waited too long for those before them', async (test) => {
    const postgres = await server(test);
    if (postgres === null) return;
    const clock = new TestClock();
    const connection = await connect(test, postgres.url, null, clock);
    const [holder, asker] = [await connect(test, postgres.url), await connect(test, postgres.url)];
    await holder.query('SELECT pg_advisory_lock(1)');
    const options = { timeoutMs: 60_000 };
    const first = connection.query('SELECT pg_advisory_lock(1)', [], options);
    const waiting = connection.query('SELECT 1');
    const refused = assert.rejects(waiting, { code: 'transport-failed' });
    const text = "SELECT 1 FROM pg_stat_activity WHERE wait_event = 'advisory'";
    while ((await asker.query(text)).length === 0);
    clock.advance(11_000);
    const later = connection.query('SELECT 2 AS n');
    await holder.query('SELECT pg_advisory_unlock(1)');
    await first;
    await refused;
    assert.deepEqual(await later, [{ n: 2 }]);
  });

  it('is not lost if this process was paused while the answer arrived', async (test) => {
    const postgres = await server(test);
    if (postgres === null) return;
    const connection = await connect(test, postgres.url);
    const answer = connection.query('SELECT 3 AS n', [], { timeoutMs: 200 });
    await afterSending();
    pauseProcess(1000);
    assert.deepEqual(await answer, [{ n: 3 }]);
  });

  it('leaves no statement behind that waits for a lock', async (test) => {
    const postgres = await server(test);
    if (postgres === null) return;
    const relay = await startRelay(test, postgres.port);
    const url = new URL(postgres.url);
    url.port = String(relay.port);
    const place = { url: new Secret(url.href), passwordFile: null, trustPoolFile: null };
    const [holder, asker] = [await connect(test, postgres.url), await connect(test, postgres.url)];
    await holder.query('SELECT pg_advisory_lock(2)');
    const opened = [
      await connectPostgres(place, { clock: systemClock }),
      await listenPostgres(place, 'channel', () => {}, { clock: systemClock }),
    ];
    const lost = opened.map((one) => assert.rejects(one.query('SELECT pg_advisory_lock(2)')));
    const text = "SELECT 1 FROM pg_stat_activity WHERE wait_event = 'advisory'";
    while ((await asker.query(text)).length < opened.length);
    relay.cut();
    await Promise.all(lost);
    // The server does not notice the loss while they wait.
    while ((await asker.query(text)).length > 0)
      await new Promise((resolve) => setTimeout(resolve, 50));
  });

  it('takes the host that accepts writes, and says what is wrong with each other', async (test) => {
    const postgres = await server(test);
    if (postgres === null) return;
    const replica = await postgres.replica();
    const hosts = (...ports: readonly number[]) =>
      `postgresql://postgres@${ports.map((port) => `127.0.0.1:${port}`).join(',')}/postgres`;
    const connection = await connect(test, `${hosts(replica.port, postgres.port)}?sslmode=disable`);
    const [row] = await connection.query('SELECT inet_server_port() AS port');
    assert.equal(row?.['port'], postgres.port);
    await assert.rejects(connect(test, hosts(replica.port, 1)), {
      code: 'transport-failed',
      message: /:\d+: this server accepts no writes at the moment; 127.0.0.1:1: .*ECONNREFUSED/,
    });
    await assert.rejects(connect(test, `${hosts(replica.port)}?target_session_attrs=primary`), {
      message: /this server is a standby/,
    });
    await connect(test, `${hosts(replica.port)}?target_session_attrs=any`);
    await replica.kill();
  });

  it('takes the password from its file, and never shows one', async (test) => {
    const postgres = await server(test);
    if (postgres === null) return;
    await postgres.query("CREATE ROLE guarded LOGIN PASSWORD 'open sesame'");
    const file = join(await temporaryDirectory(test), 'password');
    await writeFile(file, 'open sesame\n');
    const at = `127.0.0.1:${postgres.port}/postgres`;
    await connect(test, `postgres://guarded@${at}`, file);
    await connect(test, `postgres://guarded:open%20sesame@${at}`);
    const refused = connect(test, `postgres://guarded:close%20sesame@${at}`);
    await assert.rejects(refused, (error: Error) => {
      assert.doesNotMatch(`${error.stack} ${JSON.stringify(error)}`, /sesame/);
      assert.deepEqual(
        { ...faultOf(error), message: '' },
        { message: '', state: '28P01', kind: 'refused', isNotDone: true, isElsewhere: false },
      );
      return true;
    });
    await assert.rejects(connect(test, `postgres://guarded@${at}`), {
      message: /asks for a password, and none is configured/,
    });
  });

  it('reports its loss once, and what was asked as unknown', async (test) => {
    const postgres = await server(test);
    if (postgres === null) return;
    const connection = await connect(test, postgres.url);
    const lost = new Promise<string>((resolve) => connection.onLost(resolve));
    const asked = connection.query('SELECT pg_sleep(600)');
    await until(postgres, "SELECT 1 FROM pg_stat_activity WHERE query = 'SELECT pg_sleep(600)'");
    await postgres.query(
      "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query = 'SELECT pg_sleep(600)'",
    );
    const error = await asked.then(
      () => null,
      (thrown: unknown) => thrown,
    );
    const { kind, isNotDone, isElsewhere } = faultOf(error);
    assert.deepEqual([kind, isNotDone, isElsewhere], ['away', false, true]);
    await lost;
    assert.equal(connection.isLost, true);
  });

  it('listens directly, and through a pooler only where that keeps the session', async (test) => {
    const postgres = await server(test);
    if (postgres === null) return;
    const heard = (url: string): Promise<string> =>
      new Promise((resolve, reject) => {
        const place = { url: new Secret(url), passwordFile: null, trustPoolFile: null };
        listenPostgres(place, 'news', resolve, { clock: systemClock }).then(
          async (connection: PostgresConnection) => {
            test.after(() => connection.close());
            await postgres.query("NOTIFY news, 'something'");
          },
          reject,
        );
      });
    assert.equal(await heard(postgres.url), 'something');
    const session = await startPgBouncer(test, test, postgres, 'session');
    const transaction = await startPgBouncer(test, test, postgres, 'transaction');
    if (session === null || transaction === null) return;
    assert.equal(await heard(session.url), 'something');
    await assert.rejects(heard(transaction.url), {
      code: 'postgres-pooler',
      message: /listen_url/,
    });
    assert.equal((await connect(test, transaction.url)).isPooled, true);
  });
});

async function until(postgres: PostgresServer, question: string): Promise<void> {
  for (let round = 0; round < 1000; round += 1) {
    if ((await postgres.query(question)).length > 0) return;
  }
  throw new Error(`never: ${question}`);
}
