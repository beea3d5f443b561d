import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, it, type TestContext } from 'node:test';
import { fileURLToPath } from 'node:url';
import { WorkerPool } from '../../../src/cli/workers/worker-pool.ts';
import { parseHubfile } from '../../../src/index.ts';
import { systemClock } from '../../../src/kernel/clock.ts';
import { RecordedLog } from '../../support/recorded-log.ts';
import { temporaryDirectory } from '../../support/temporary-directory.ts';

const program = fileURLToPath(new URL('scripted-worker.ts', import.meta.url));

describe('the workers of a gateway', () => {
  it('give up what they have built when another cannot build it', async (test) => {
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

  it('are replaced when they cannot serve what the others serve already', async (test) => {
    const { pool, journal, numbers, log } = await start(test);
    const [first, second] = numbers;
    const wanted = `commit fails in ${second}`;
    await pool.reload(config(wanted));
    await log.says('A worker has been replaced');
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
});

async function start(test: TestContext) {
  const log = new RecordedLog();
  const pool = new WorkerPool(config('first'), { clock: systemClock, log, program });
  test.after(() => pool.stop());
  const file = join(await temporaryDirectory(test), 'journal');
  process.env.SCRIPTED_WORKER_JOURNAL = file;
  const journal = async () => (await readFile(file, 'utf8')).trim().split('\n');
  await pool.start();
  const numbers = (await journal())
    .filter((line) => line.endsWith(' commit first'))
    .map((line) => Number(line.split(' ', 1)[0]))
    .sort((a, b) => a - b);
  assert.equal(numbers.length, 2);
  return { pool, journal, numbers, log };
}

function config(body: string) {
  const options = '{\n\tworkers 2\n\tadmin off\n\tauto_https off\n}\n';
  return parseHubfile(`${options}http://127.0.0.1:1 {\n\trespond "${body}"\n}\n`, { env: {} });
}
