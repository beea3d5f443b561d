import assert from 'node:assert/strict';
import cluster from 'node:cluster';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, it, type TestContext } from 'node:test';
import { fileURLToPath } from 'node:url';
import { MAX_UNHANDLED } from '../../../src/cli/workers/worker.ts';
import { WorkerPool } from '../../../src/cli/workers/worker-pool.ts';
import { parseHubfile } from '../../../src/index.ts';
import { type Clock, systemClock } from '../../../src/kernel/clock.ts';
import { RecordedLog } from '../../support/recorded-log.ts';
import { TestClock } from '../../support/test-clock.ts';
import { temporaryDirectory } from '../../support/temporary-directory.ts';

const program = fileURLToPath(new URL('scripted-worker.ts', import.meta.url));

describe('the workers of a gateway', () => {
  it('discard what they have built if another worker cannot build it', async (test) => {
    const { pool, journal, numbers } = await start(test);
    const [first, second] = numbers;
    const refused = `prepare fails in ${second}`;
    await assert.rejects(pool.reload(config(refused)), { code: 'listen-failed' });
    assert.deepEqual((await journal()).slice(-4).sort(), [
      `${first} discard ${refused}`,
      `${first} prepare ${refused}`,
      `${second} discard ${refused}`,
      `${second} prepare ${refused}`,
    ]);
    await pool.reload(config('next'));
    assert.deepEqual((await journal()).slice(-2).sort(), [
      `${first} commit next`,
      `${second} commit next`,
    ]);
  });

  it('of a gateway that does not start are not replaced, and not reported', async (test) => {
    const all = Array.from({ length: 100 }, (_, number) => `prepare fails in ${number}`);
    const { pool, log } = await create(test, systemClock, all.join());
    await assert.rejects(pool.start(), { code: 'listen-failed' });
    assert.deepEqual(log.lines, []);
  });

  it('are replaced if they cannot serve what the others already serve', async (test) => {
    const { pool, journal, numbers, log } = await start(test);
    const [first, second] = numbers;
    const wanted = `commit fails in ${second}`;
    await pool.reload(config(wanted));
    await log.says('A worker was replaced');
    const third = (second ?? 0) + 1;
    assert.deepEqual(
      (await journal()).filter((line) => line.endsWith(` commit ${wanted}`)).sort(),
      [`${first} commit ${wanted}`, `${second} commit ${wanted}`, `${third} commit ${wanted}`],
    );
    await pool.reload(config('next'));
    assert.deepEqual((await journal()).slice(-2).sort(), [
      `${first} commit next`,
      `${third} commit next`,
    ]);
  });

  for (const [what, load] of [
    ['reload', (pool: WorkerPool) => pool.reload(config('refused'))],
    ['dry run', (pool: WorkerPool) => pool.dryRun(config('refused'))],
  ] as const) {
    it(`are killed and replaced if they hang during a ${what}, which is refused`, async (test) => {
      const clock = new TestClock();
      const { pool, journal, numbers, log } = await start(test, clock);
      // The one that gets a configuration before the others.
      const hanging = cluster.workers?.[Object.keys(cluster.workers)[0] ?? '']?.process;
      hanging?.kill('SIGSTOP');
      const refused = assert.rejects(load(pool), { code: 'worker-silent' });
      // The order is sent in another turn.
      await new Promise((resolve) => setImmediate(resolve));
      // On a busy machine, one that works may be silent for so long.
      clock.advance(100_000);
      assert.deepEqual(log.of('A worker that hangs is killed'), []);
      clock.advance(60_000);
      await refused;
      assert.equal(log.of('A worker that hangs is killed')[0]?.fields['pid'], hanging?.pid);
      await log.says('A worker ended; hubgate starts another one');
      clock.advance(1_000);
      await log.says('A worker was replaced');
      const third = Math.max(...numbers) + 1;
      assert.ok((await journal()).includes(`${third} commit first`));
      await pool.reload(config('next'));
      assert.equal((await journal()).filter((line) => line.endsWith(' commit next')).length, 2);
    });
  }

  it('may take long to build a configuration if they give signs of life', async (test) => {
    const clock = new TestClock();
    const { pool, journal, numbers, log } = await start(test, clock);
    const [first, second] = numbers;
    await pool.reload(config(`prepare hangs in ${first}, prepare hangs in ${second}`));
    const cut = assert.rejects(pool.reload(config('next')), { code: 'worker-ended' });
    for (let asked = 1; asked <= 20; asked += 1) {
      await new Promise((resolve) => setImmediate(resolve));
      clock.advance(5_000);
      while ((await journal()).filter((line) => line.includes(' status ')).length < asked);
    }
    assert.deepEqual(log.of('A worker that hangs is killed'), []);
    for (const worker of Object.values(cluster.workers ?? {})) worker?.process.kill('SIGKILL');
    await cut;
  });

  it('stop although a reload waits for one that hangs, and start no other ones', async (test) => {
    const clock = new TestClock();
    const { pool, journal } = await start(test, clock);
    const [number = '', other] = Object.keys(cluster.workers ?? {});
    cluster.workers?.[number]?.process.kill('SIGSTOP');
    const cut = assert.rejects(pool.reload(config('refused')), { code: 'worker-silent' });
    const late = assert.rejects(pool.reload(config('late')), { code: 'gateway-stopped' });
    await new Promise((resolve) => setImmediate(resolve));
    const stopped = pool.stop();
    clock.advance(3_000);
    while (!(await journal()).includes(`${other} stop first`));
    clock.advance(160_000);
    await Promise.all([stopped, cut, late]);
    await assert.rejects(pool.reload(config('later')), { code: 'gateway-stopped' });
    assert.deepEqual(Object.keys(cluster.workers ?? {}), []);
  });

  it('are replaced if the operating system starts no process for a while', async (test) => {
    const { pool, journal, numbers, log } = await start(test);
    const [first, second] = numbers;
    test.after(() => cluster.setupPrimary({ cwd: process.cwd() }));
    cluster.setupPrimary({ cwd: '/nowhere' });
    cluster.workers?.[second ?? 0]?.process.kill('SIGKILL');
    await log.says('A worker could not be started');
    cluster.setupPrimary({ cwd: process.cwd() });
    await log.says('A worker was replaced');
    await pool.reload(config('next'));
    const commits = (await journal()).filter((line) => line.endsWith(' commit next'));
    assert.equal(commits.length, 2);
    assert.ok(commits.includes(`${first} commit next`));
  });

  it('are replaced although the operating system refused at once to start a process', async (test) => {
    const { pool, journal, numbers, log } = await start(test);
    const [first, second] = numbers;
    test.after(() => delete process.env['TOO_LARGE']);
    // As for lack of memory, `spawn` throws.
    process.env['TOO_LARGE'] = 'x'.repeat(4 * 1024 ** 2);
    cluster.workers?.[second ?? 0]?.process.kill('SIGKILL');
    await log.says('A worker could not be started', 2);
    delete process.env['TOO_LARGE'];
    await log.says('A worker was replaced');
    await pool.reload(config('next'));
    const commits = (await journal()).filter((line) => line.endsWith(' commit next'));
    assert.equal(commits.length, 2);
    assert.ok(commits.includes(`${first} commit next`));
  });

  it('are ended if a reload cannot start all of them', async (test) => {
    const { pool, journal, numbers, log } = await start(test, new TestClock());
    for (const number of numbers) cluster.workers?.[number]?.process.kill('SIGKILL');
    await log.says('A worker ended; hubgate starts another one', 2);
    const fork = cluster.fork.bind(cluster);
    let left = 1;
    const { mock } = test.mock.method(cluster, 'fork', () => {
      left -= 1;
      if (left >= 0) return fork();
      throw new Error('spawn ENOMEM');
    });
    await assert.rejects(pool.reload(config('refused')), /ENOMEM/);
    mock.restore();
    assert.deepEqual(Object.keys(cluster.workers ?? {}), []);
    await pool.reload(config('next'));
    const commits = (await journal()).filter((line) => line.endsWith(' commit next'));
    assert.equal(commits.length, 2);
  });

  it('keep serving the same configuration if none of them can commit, and the reload reports it', async (test) => {
    const { pool, journal, numbers } = await start(test);
    const [first, second] = numbers;
    const wanted = `commit fails in ${first}, commit fails in ${second}`;
    await assert.rejects(pool.reload(config(wanted)), { code: 'listen-failed' });
    await pool.reload(config('next'));
    assert.deepEqual((await journal()).slice(-2).sort(), [
      `${first} commit next`,
      `${second} commit next`,
    ]);
  });

  it('are restarted by a reload if none is left; the reload is refused if they cannot build it', async (test) => {
    const clock = new TestClock();
    const { pool, journal, numbers, log } = await start(test, clock);
    for (const number of numbers) cluster.workers?.[number]?.process.kill('SIGKILL');
    await log.says('A worker ended; hubgate starts another one', 2);
    const [third, fourth] = numbers.map((number) => number + 2);
    await assert.rejects(pool.reload(config(`prepare fails in ${third}`)), {
      code: 'listen-failed',
    });
    await pool.reload(config('next'));
    const [fifth, sixth] = numbers.map((number) => number + 4);
    assert.deepEqual(
      (await journal()).filter((line) => line.endsWith(' commit next')).sort(),
      [`${fifth} commit next`, `${sixth} commit next`],
      `${third} and ${fourth} were given up`,
    );
    // Those that were to take the places of the dead are not needed any more.
    clock.advance(60_000);
    await pool.reload(config('last'));
    assert.deepEqual((await journal()).slice(-2).sort(), [
      `${fifth} commit last`,
      `${sixth} commit last`,
    ]);
  });

  for (const [kind, give] of [
    ['purge', (pool: WorkerPool) => pool.purge({ kind: 'all' }, 'everywhere')],
    ['revoke', (pool: WorkerPool) => pool.revoke('jti', 'everywhere')],
  ] as const) {
    it(`carry out a ${kind}, and one of them notifies the other machines`, async (test) => {
      const { pool, journal, numbers } = await start(test);
      const [first, second] = numbers;
      assert.equal(await give(pool), 2);
      const orders = (await journal()).slice(-3);
      assert.deepEqual(orders.slice(0, 2).sort(), [
        `${first} ${kind} here`,
        `${second} ${kind} here`,
      ]);
      assert.match(orders[2] ?? '', new RegExp(`^(${first}|${second}) ${kind} everywhere$`));
    });

    it(`do not confirm a ${kind} while one of them hangs, but the others carry it out`, async (test) => {
      const { pool, journal, numbers, log } = await start(test);
      const [first, second] = numbers;
      await pool.reload(config(`${kind} hangs in ${first}`));
      await assert.rejects(give(pool), {
        code: 'order-unconfirmed',
        message: /^A worker has not confirmed the order/,
      });
      assert.deepEqual(
        (await journal()).filter((line) => / (here|everywhere)$/.test(line)),
        [`${second} ${kind} here`, `${second} ${kind} everywhere`],
      );
      assert.equal(log.of('A worker has not confirmed an order').length, 1);
    });

    it(`do not confirm a ${kind} while all of them hang`, async (test) => {
      const { pool, numbers } = await start(test);
      const [first, second] = numbers;
      await pool.reload(config(`${kind} hangs in ${first}, ${kind} hangs in ${second}`));
      await assert.rejects(give(pool), {
        code: 'order-unconfirmed',
        message: /^No worker has confirmed the order/,
      });
    });

    it(`do not confirm a ${kind} that one of them cannot carry out`, async (test) => {
      const { pool, numbers } = await start(test);
      await pool.reload(config(`${kind} fails in ${numbers[1]}`));
      await assert.rejects(give(pool), { code: 'order-unconfirmed' });
    });

    it(`do not confirm a ${kind} while none of them is left`, async (test) => {
      const { pool, numbers, log } = await start(test, new TestClock());
      for (const number of numbers) cluster.workers?.[number]?.process.kill('SIGKILL');
      await log.says('A worker ended; hubgate starts another one', 2);
      await assert.rejects(give(pool), {
        code: 'order-unconfirmed',
        message: /^No worker has confirmed that other machines get the order/,
      });
    });
  }

  it('wait for each other no longer if one of them is too far behind', async (test) => {
    const { pool, journal, numbers } = await start(test);
    const [first, second] = numbers;
    await pool.reload(config(`many signals from ${first}, signals hang in ${second}`));
    const handled = async () => (await journal()).filter((line) => line.includes(' handled '));
    while ((await handled()).length === 0) await new Promise((resolve) => setImmediate(resolve));
    assert.deepEqual(await handled(), [`${first} handled ${MAX_UNHANDLED + 1}`]);
  });

  it('that all end take an inherited socket with them, which only another start brings back', async (test) => {
    const { pool, journal, numbers, failures } = await start(test, new TestClock(), 'fd/3');
    const lost =
      'Cannot listen on fd/3: it was closed when the last worker ended; start hubgate again';
    const [first, second] = numbers;
    cluster.workers?.[first ?? 0]?.process.kill('SIGKILL');
    cluster.workers?.[second ?? 0]?.process.kill('SIGKILL');
    while (failures.length === 0) await new Promise((resolve) => setImmediate(resolve));
    assert.deepEqual(failures, [lost]);
    for (const load of [pool.reload(config('next', 'fd/3')), pool.dryRun(config('x', 'fd/3'))]) {
      await assert.rejects(load, { code: 'listen-failed', message: lost });
    }
    await pool.reload(config('next', 'fd/4'));
    const commits = (await journal()).filter((line) => line.endsWith(' commit next'));
    assert.equal(commits.length, 2);
  });

  it('leave an inherited socket to those that are left, but not to one that has never served', async (test) => {
    const clock = new TestClock();
    const { pool, numbers, failures, log } = await start(test, clock, 'fd/3');
    const [first, second] = numbers;
    const third = (second ?? 0) + 1;
    await pool.reload(config(`prepare hangs in ${third}`, 'fd/3'));
    cluster.workers?.[first ?? 0]?.process.kill('SIGKILL');
    await log.says('A worker ended; hubgate starts another one');
    clock.advance(1_000);
    while (cluster.workers?.[third] === undefined)
      await new Promise((resolve) => setImmediate(resolve));
    assert.deepEqual(failures, []);
    cluster.workers[second ?? 0]?.process.kill('SIGKILL');
    while (failures.length === 0) await new Promise((resolve) => setImmediate(resolve));
    assert.equal(failures.length, 1);
    cluster.workers[third]?.process.kill('SIGKILL');
  });

  it('are replaced within a second while none is left, however often they have ended', async (test) => {
    const clock = new TestClock();
    const { log } = await start(test, clock);
    let ended = 0;
    for (const replaced of [2, 4, 5, 6]) {
      const workers = Object.values(cluster.workers ?? {}).filter((one) => one !== undefined);
      ended += workers.length;
      for (const worker of workers) worker.process.kill('SIGKILL');
      await log.says('A worker ended; hubgate starts another one', ended);
      clock.advance(1_000);
      await log.says('A worker was replaced', replaced);
    }
  });
});

async function create(test: TestContext, clock: Clock, first: string, bind = '127.0.0.1') {
  const log = new RecordedLog();
  const failures: string[] = [];
  const pool = new WorkerPool(config(first, bind), {
    count: 2,
    clock,
    log,
    program,
    metrics: async () => '',
    onFailure: ({ message }) => void failures.push(message),
  });
  test.after(() => pool.stop());
  const file = join(await temporaryDirectory(test), 'journal');
  process.env.SCRIPTED_WORKER_JOURNAL = file;
  const journal = async () => (await readFile(file, 'utf8')).trim().split('\n');
  return { pool, journal, log, failures };
}

async function start(test: TestContext, clock: Clock = systemClock, bind = '127.0.0.1') {
  const { pool, journal, log, failures } = await create(test, clock, 'first', bind);
  await pool.start();
  const numbers = (await journal())
    .filter((line) => line.endsWith(' commit first'))
    .map((line) => Number(line.split(' ', 1)[0]))
    .sort((a, b) => a - b);
  assert.equal(numbers.length, 2);
  return { pool, journal, numbers, log, failures };
}

function config(body: string, bind = '127.0.0.1') {
  const options = '{\n\tadmin off\n\tauto_https off\n}\n';
  return parseHubfile(`${options}http://127.0.0.1:1 {\n\tbind ${bind}\n\trespond "${body}"\n}\n`, {
    env: {},
  });
}
