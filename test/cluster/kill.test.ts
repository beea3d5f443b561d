import assert from 'node:assert/strict';
import { mkdtemp } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { build } from 'esbuild';
import type { HistoryEntry, Transport } from '../../src/hub/transport.ts';
import { codeOf } from '../../src/kernel/error.ts';
import { systemClock } from '../../src/kernel/clock.ts';
import { silentLogger } from '../../src/kernel/log.ts';
import { Secret } from '../../src/kernel/secret.ts';
import { openLmdbTransport } from '../../src/transports/lmdb/lmdb-transport.ts';
import { openRedisTransport } from '../../src/transports/redis/redis-transport.ts';
import { root, startProcess } from '../support/process.ts';
import { startRedis } from '../support/redis-server.ts';
import { removeWith } from '../support/temporary-directory.ts';
import { follow } from '../support/follow.ts';
import { rounds } from '../support/rounds.ts';

const ROUNDS = rounds(12, 35);

interface Told {
  readonly begun: ReadonlySet<string>;
  readonly acknowledged: readonly string[];
}

describe(`SIGKILL while eight publishers publish, ${ROUNDS} rounds`, () => {
  it('LMDB: the process is killed; nothing acknowledged is lost', async (test) => {
    const path = await mkdtemp(join(tmpdir(), 'hubgate-kill-'));
    removeWith(test, path);
    // Bundled once: a process of each round that compiles its modules would take longer than it lives.
    const program = join(path, 'publisher.mjs');
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
      const child = startProcess(test, [program, path, String(round)]);
      // A different moment in each round, told by what was published.
      await child.says(`=${round}-${round % 8}-${5 + ((round * 7) % 40)}\n`);
      await child.end('SIGKILL');
      const told = toldBy(child.output);
      for (const id of told.begun) begun.add(id);
      acknowledged.push(...told.acknowledged);
    }
    const options = { path, size: 0, maxAgeMs: 0, clock: systemClock, log: silentLogger };
    const log = await openLmdbTransport({ ...options, durability: 'commit' });
    test.after(() => log.close());
    checkReplay(await replayOf(log), { begun, acknowledged });
  });

  it('Redis: the server is killed; nothing acknowledged is lost with appendfsync always', async (test) => {
    const redis = await startRedis(test, test, ['appendonly yes', 'appendfsync always']);
    if (redis === null) return;
    const alive = setInterval(() => {}, 1000);
    test.after(() => clearInterval(alive));
    const log = await openRedisTransport({
      ...{ urls: [new Secret(redis.url)], sentinel: null, cluster: false, trustPoolFile: null },
      ...{ stream: 'test', maxLength: 0, maxAgeMs: 0, replicas: 0 },
      ...{ random: Math.random, clock: systemClock, log: silentLogger },
    });
    test.after(() => log.close());
    const delivered: string[] = [];
    follow(log, (entries) => delivered.push(...entries.map(({ update: { id } }) => id)));
    const begun = new Set<string>();
    const acknowledged: string[] = [];
    const end = new AbortController();
    const publishers = Array.from({ length: 8 }, async (_, publisher) => {
      for (let count = 0; !end.signal.aborted; count += 1) {
        const id = `0-${publisher}-${count}`;
        const plain = { topics: ['topic'], data: '', private: false, type: null, retry: null };
        try {
          begun.add(id);
          await log.append({ ...plain, id });
          acknowledged.push(id);
        } catch (error) {
          // What was certainly not stored may not appear.
          if (codeOf(error) === 'transport-failed') begun.delete(id);
          await new Promise((resolve) => setTimeout(resolve, 5));
        }
      }
    });
    for (let round = 0; round < ROUNDS; round += 1) {
      const before = acknowledged.length;
      while (acknowledged.length < before + 50 + ((round * 37) % 100)) {
        await new Promise((resolve) => setTimeout(resolve, 1));
      }
      await redis.kill();
      await redis.restart();
    }
    end.abort();
    await Promise.all(publishers);
    await log.append({
      id: '0-9-0',
      topics: ['t'],
      data: '',
      private: false,
      type: null,
      retry: null,
    });
    const replay = (await replayOf(log)).filter(({ update: { id } }) => id !== '0-9-0');
    checkReplay(replay, { begun, acknowledged });
    const replayed = replay.map(({ update: { id } }) => id);
    assert.deepEqual(delivered.slice(0, -1), replayed, 'what was delivered is what is kept');
  });
});

function toldBy(output: string): Told {
  // The last line may be cut.
  const lines = output.split('\n').slice(0, -1);
  const of = (sign: string) =>
    lines.filter((line) => line[0] === sign).map((line) => line.slice(1));
  return { begun: new Set(of('+')), acknowledged: of('=') };
}

/** Nothing acknowledged is missing, nothing came that was not begun, each once, each in order. */
function checkReplay(replay: readonly HistoryEntry[], { begun, acknowledged }: Told): void {
  const ids = replay.map(({ update: { id } }) => id);
  const kept = new Set(ids);
  assert.equal(kept.size, ids.length, 'ids are unique');
  assert.deepEqual(
    acknowledged.filter((id) => !kept.has(id)),
    [],
    'what was acknowledged is kept',
  );
  assert.deepEqual(
    ids.filter((id) => !begun.has(id)),
    [],
    'nothing came that was not begun',
  );
  assert.deepEqual(
    replay.map(({ position }) => position),
    ids.map((_, index) => index + 1),
    'positions have no gap',
  );
  const last = new Map<string, number>();
  for (const id of ids) {
    const [round = '', publisher = '', count = ''] = id.split('-');
    const key = `${round}-${publisher}`;
    assert.ok(Number(count) > (last.get(key) ?? -1), `${id} is in its publisher's order`);
    last.set(key, Number(count));
  }
  assert.ok(acknowledged.length > ROUNDS * 50, `${acknowledged.length} were acknowledged`);
}

async function replayOf(log: Transport): Promise<readonly HistoryEntry[]> {
  const all: HistoryEntry[] = [];
  for (;;) {
    const page = await log.read(all.at(-1)?.position ?? 0, 1000);
    if (page.length === 0) return all;
    all.push(...page);
  }
}
