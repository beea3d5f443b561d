import assert from 'node:assert/strict';
import { join } from 'node:path';
import { describe, it, type TestContext } from 'node:test';
import { build } from 'esbuild';
import type { HistoryEntry, Transport } from '../../src/hub/transport.ts';
import { codeOf } from '../../src/kernel/error.ts';
import { type LogLine, recorder } from '../support/hub-server.ts';
import { collect, ids, openHistory, until, update } from '../support/postgres-history.ts';
import { type PostgresServer, startPostgres } from '../support/postgres-server.ts';
import { root, startProcess } from '../support/process.ts';
import { temporaryDirectory } from '../support/temporary-directory.ts';
import { rounds } from '../support/rounds.ts';

const ROUNDS = rounds(3, 50);

describe(`SIGKILL while eight publishers publish to PostgreSQL, ${ROUNDS} rounds`, () => {
  it('of the server: nothing acknowledged is lost, none twice, one order', async (test) => {
    const postgres = await startPostgres(test, test);
    if (postgres === null) return;
    const nodes = [
      await openHistory(test, { url: postgres.url }),
      await openHistory(test, { url: postgres.url }),
    ];
    const seen = nodes.map(collect);
    const publishing = publishTo(test, nodes);
    for (let round = 0; round < ROUNDS; round += 1) {
      await publishing.more(50 + ((round * 37) % 100));
      await postgres.kill();
      await postgres.restart();
    }
    await publishing.more(50);
    await publishing.end();
    await checkAll(nodes, seen, publishing);
    const history = await wholeHistory(nodes[0]);
    assert.deepEqual(history, seen[0], 'a replay is what was delivered');
  });

  it('of a process that publishes: nothing acknowledged is lost, none twice, one order', async (test) => {
    const postgres = await startPostgres(test, test);
    if (postgres === null) return;
    const observer = await openHistory(test, { url: postgres.url });
    const seen = collect(observer);
    const program = join(await temporaryDirectory(test), 'publisher.mjs');
    await build({
      entryPoints: [join(root, 'test/cluster/publisher.ts')],
      outfile: program,
      bundle: true,
      platform: 'node',
      format: 'esm',
      conditions: ['hubgate-source'],
      alias: { lmdb: import.meta.resolve('lmdb'), pg: import.meta.resolve('pg') },
      external: ['file:*'],
    });
    const begun = new Set<string>();
    const acknowledged: string[] = [];
    for (let round = 0; round < ROUNDS; round += 1) {
      const child = startProcess(test, [program, postgres.url, String(round)]);
      // A different moment in each round, told by what was published.
      await child.says(`=${round}-${round % 8}-${5 + ((round * 7) % 40)}\n`);
      await child.end('SIGKILL');
      // The last line may be cut.
      for (const line of child.output.split('\n').slice(0, -1)) {
        if (line.startsWith('+')) begun.add(line.slice(1));
        if (line.startsWith('=')) acknowledged.push(line.slice(1));
      }
    }
    // Behind whatever the last process has left on its way.
    await observer.append(update('last'));
    await until(() => ids(seen).includes('last'));
    const stored = ids(seen).filter((id) => id !== 'last');
    assert.equal(new Set(stored).size, stored.length, 'none twice');
    assert.deepEqual(missing(acknowledged, stored), []);
    assert.deepEqual(
      stored.filter((id) => !begun.has(id)),
      [],
    );
    inOrderOfPublishers(stored);
    assert.deepEqual(await wholeHistory(observer), seen);
  });
});

describe('a history in PostgreSQL with a replica that is promoted', () => {
  it('under load: nothing acknowledged is lost with durability replicated, none twice, one order', async (test) => {
    const primary = await startPostgres(test, test, {
      settings: ["synchronous_standby_names = 'replica'"],
    });
    if (primary === null) return;
    const replica = await primary.replica();
    const url = urlOf(primary, replica);
    const nodes = [
      await openHistory(test, { url, durability: 'replicated' }),
      await openHistory(test, { url, durability: 'replicated' }),
    ];
    const seen = nodes.map(collect);
    const publishing = publishTo(test, nodes);
    await publishing.more(300);
    await primary.kill();
    await replica.promote();
    // It acknowledges nothing until it has a replica of its own.
    await replica.replica();
    await publishing.more(300);
    await publishing.end();
    await checkAll(nodes, seen, publishing);
  });

  it('that lacks the end: says what is lost, and delivers what replaces it', async (test) => {
    const primary = await startPostgres(test, test);
    if (primary === null) return;
    const replica = await primary.replica();
    const log: LogLine[] = [];
    const url = urlOf(primary, replica);
    const transport = await openHistory(test, { url, log: recorder(log) });
    const seen = collect(transport);
    const other = await openHistory(test, { url });
    const signals: string[] = [];
    other.signals?.receive((message) => signals.push(message));
    void transport.signals?.send('first');
    for (const id of ['a', 'b', 'c']) await transport.append(update(id));
    await until(async () => (await lastPosition(replica)) === 3);
    await replica.kill();
    void transport.signals?.send('lost');
    for (const id of ['lost', 'lost too']) await transport.append(update(id));
    assert.equal(await transport.find('lost'), 4);
    // The other node reads it on its own connection, and the replica does not have it.
    await until(() => signals.includes('lost'));
    await primary.kill();
    await replica.restart();
    await replica.promote();
    await until(() => transport.lastEventId === 'c');
    assert.equal(await transport.find('lost'), null, 'a client with that cursor is told earliest');
    for (const id of ['d', 'e', 'f']) await transport.append(update(id));
    assert.deepEqual(ids(seen), ['a', 'b', 'c', 'lost', 'lost too', 'd', 'e', 'f']);
    const replay = async (after: number) => ids(await transport.read(after, 100));
    assert.deepEqual(await replay(0), ['a', 'b', 'c', 'd', 'e', 'f']);
    assert.deepEqual(await replay(4), ['d', 'e', 'f'], 'behind one that was lost');
    assert.equal(await transport.find('d'), 6);
    void transport.signals?.send('second');
    await until(() => signals.at(-1) === 'second');
    assert.deepEqual(signals, ['first', 'lost', 'second']);
    const told = log.find(({ message }) => message.includes('has lost its end'));
    assert.deepEqual(told?.fields, { lost: 2, replaced: 0 });
  });

  it('is not needed by durability commit, and missed by durability replicated', async (test) => {
    const postgres = await startPostgres(test, test);
    if (postgres === null) return;
    await (await openHistory(test, { url: postgres.url })).append(update('a'));
    const log: LogLine[] = [];
    const options = { url: postgres.url, log: recorder(log) };
    const replicated = await openHistory(test, { ...options, durability: 'replicated' });
    assert.match(String(log[0]?.fields['reason']), /synchronous_standby_names/);
    await assert.rejects(replicated.check(), { code: 'transport-failed' });
    await assert.rejects(replicated.append(update('b')), {
      code: 'transport-failed',
      message: /durability replicated needs synchronous_standby_names/,
    });
    assert.equal(replicated.position, 1);
  });

  it('is not claimed for an update whose wait for them was cancelled, whatever messages the role asks for', async (test) => {
    const postgres = await startPostgres(test, test);
    if (postgres === null) return;
    await postgres.query("ALTER ROLE CURRENT_USER SET client_min_messages = 'error'");
    const transport = await openHistory(test, { url: postgres.url, durability: 'replicated' });
    const reload = async (change: string): Promise<void> => {
      await postgres.query(`ALTER SYSTEM ${change}`);
      await postgres.query('SELECT pg_reload_conf()');
    };
    await reload("SET synchronous_standby_names = 'nobody'");
    const names = async () => (await postgres.query('SHOW synchronous_standby_names'))[0];
    await until(async () => (await names())?.['synchronous_standby_names'] === 'nobody');
    const waiting = (what: string) =>
      postgres.query(`SELECT ${what} FROM pg_stat_activity
        WHERE wait_event = 'SyncRep' AND query LIKE '%append%'`);
    const cancel = async () => (await waiting('pg_cancel_backend(pid)')).length === 1;
    // The processes of the server learn of the setting one after the other, so the first updates may not wait.
    let append = Promise.resolve();
    let isOver = true;
    await until(async () => {
      if (await cancel()) return true;
      if (isOver) {
        isOver = false;
        append = transport.append(update('a'));
        void append.catch(() => {}).finally(() => (isOver = true));
      }
      return false;
    });
    await until(async () => (await waiting('pid')).length === 0);
    await reload('RESET synchronous_standby_names');
    await assert.rejects(append, { code: 'transport-uncertain' });
  });

  it('loses what the server has not written with durability async, and goes on', async (test) => {
    const postgres = await startPostgres(test, test, { settings: ['wal_writer_delay = 10s'] });
    if (postgres === null) return;
    const log: LogLine[] = [];
    const options = { url: postgres.url, log: recorder(log) };
    const safe = await openHistory(test, options);
    const quick = await openHistory(test, { url: postgres.url, durability: 'async' });
    const seen = collect(quick);
    await safe.append(update('safe'));
    await quick.append(update('quick'));
    await until(() => safe.lastEventId === 'quick');
    await postgres.kill();
    await postgres.restart();
    await until(() => quick.lastEventId === 'safe' && safe.lastEventId === 'safe');
    await safe.append(update('after'));
    await until(() => quick.lastEventId === 'after');
    assert.deepEqual(ids(seen), ['safe', 'quick', 'after']);
    assert.deepEqual(ids(await quick.read(0, 10)), ['safe', 'after']);
    assert.ok(log.some(({ message }) => message.includes('has lost its end')));
  });
});

interface Publishing {
  readonly begun: ReadonlySet<string>;
  readonly acknowledged: readonly string[];
  /** Resolves when that many more updates were acknowledged. */
  more(count: number): Promise<void>;
  end(): Promise<void>;
}

/** Eight publishers, each of which publishes one update after the other. */
function publishTo(test: TestContext, nodes: readonly Transport[]): Publishing {
  const begun = new Set<string>();
  const acknowledged: string[] = [];
  const end = new AbortController();
  test.after(() => end.abort());
  const publishers = Array.from({ length: 8 }, async (_, publisher) => {
    for (let count = 0; !end.signal.aborted; count += 1) {
      const id = `0-${publisher}-${count}`;
      begun.add(id);
      try {
        await nodes[publisher % nodes.length]?.append(update(id));
        acknowledged.push(id);
      } catch (error) {
        // What was certainly not stored may not appear.
        if (codeOf(error) === 'transport-failed') begun.delete(id);
        await new Promise((resolve) => setTimeout(resolve, 5));
      }
    }
  });
  return {
    ...{ begun, acknowledged },
    async more(count) {
      const wanted = acknowledged.length + count;
      await until(() => acknowledged.length >= wanted);
    },
    async end() {
      end.abort();
      await Promise.all(publishers);
    },
  };
}

/** Nothing acknowledged is missing, nothing came that was not begun, each once, all in one order. */
async function checkAll(
  nodes: readonly Transport[],
  seen: readonly (readonly HistoryEntry[])[],
  { begun, acknowledged }: Publishing,
): Promise<void> {
  await nodes[0]?.append(update('last'));
  await until(() => seen.every((entries) => ids(entries).includes('last')));
  const [first, ...others] = seen.map(ids);
  assert.ok(first !== undefined);
  for (const other of others) assert.deepEqual(other, first, 'nobody sees another order');
  const stored = first.filter((id) => id !== 'last');
  assert.equal(new Set(stored).size, stored.length, 'none twice');
  assert.deepEqual(missing(acknowledged, stored), []);
  assert.deepEqual(
    stored.filter((id) => !begun.has(id)),
    [],
    'nothing came that was not begun',
  );
  inOrderOfPublishers(stored);
}

function missing(acknowledged: readonly string[], stored: readonly string[]): readonly string[] {
  const known = new Set(stored);
  return acknowledged.filter((id) => !known.has(id));
}

function inOrderOfPublishers(stored: readonly string[]): void {
  const last = new Map<string, number>();
  for (const id of stored) {
    const [round = '', publisher = '', count = ''] = id.split('-');
    const key = `${round}-${publisher}`;
    assert.ok(Number(count) > (last.get(key) ?? -1), `${id} is in its publisher's order`);
    last.set(key, Number(count));
  }
}

async function wholeHistory(transport: Transport | undefined): Promise<readonly HistoryEntry[]> {
  const all: HistoryEntry[] = [];
  for (;;) {
    const page = (await transport?.read(all.at(-1)?.position ?? 0, 1000)) ?? [];
    if (page.length === 0) return all;
    all.push(...page);
  }
}

function urlOf(...servers: readonly PostgresServer[]): string {
  return `postgres://postgres@${servers.map(({ port }) => `127.0.0.1:${port}`).join(',')}/postgres`;
}

async function lastPosition(server: PostgresServer): Promise<number> {
  const [row] = await server
    .query('SELECT position::int FROM hubgate.streams')
    .catch((): readonly Record<string, unknown>[] => []);
  return Number(row?.['position'] ?? 0);
}
