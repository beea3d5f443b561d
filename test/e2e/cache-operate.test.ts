import assert from 'node:assert/strict';
import { once } from 'node:events';
import { writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { describe, it, type TestContext } from 'node:test';
import { freePort } from '../support/free-port.ts';
import { send } from '../support/http.ts';
import { cli, startProcess, type TestProcess } from '../support/process.ts';
import { startRedis } from '../support/redis-server.ts';
import { temporaryDirectory } from '../support/temporary-directory.ts';

/** Of so many answers on connections of their own, every worker has given some. */
const ENOUGH = 40;

interface Place {
  readonly gateway: TestProcess;
  readonly site: string;
  readonly admin: string;
  /** The state of the cache for a page, as often as it takes to ask all workers. */
  states(path: string): Promise<readonly string[]>;
}

async function startApp(test: TestContext): Promise<number> {
  const app = createServer((request, response) => {
    response.writeHead(200, {
      'Cache-Control': 'public, max-age=3600',
      'Cache-Tags': `tag-of-${request.url ?? ''}`,
    });
    response.end('hello');
  });
  app.listen(0, '127.0.0.1');
  await once(app, 'listening');
  test.after(() => {
    app.closeAllConnections();
    app.close();
  });
  return (app.address() as AddressInfo).port;
}

async function start(
  test: TestContext,
  {
    workers,
    transport,
    app,
    host = '127.0.0.1',
  }: { workers: number; transport: string; app: number; host?: string },
): Promise<Place> {
  const directory = await temporaryDirectory(test);
  const port = await freePort();
  const site = `http://127.0.0.1:${port}`;
  const admin = `localhost:${await freePort()}`;
  const file = join(directory, 'Hubfile');
  await writeFile(
    file,
    `{
	storage ${directory}
	admin ${admin}
	workers ${workers}
	auto_https disable_redirects
}
http://${host}:${port} {
	bind 127.0.0.1
	hub {
		anonymous
		cookie_name hub
		${transport}
	}
	discovery {
		changes public
	}
	log
	cache
	reverse_proxy 127.0.0.1:${app}
}
`,
  );
  const gateway = startProcess(test, [cli, 'run', '--config', file]);
  await gateway.says('Admin API on');
  return {
    gateway,
    site,
    admin,
    async states(path) {
      const states = new Set<string>();
      for (let i = 0; i < ENOUGH * (workers - 1) + 1; i += 1) {
        const { headers } = await send(`${site}${path}`, {
          headers: [
            ['Host', host === '127.0.0.1' ? `${host}:${port}` : host],
            ['Connection', 'close'],
          ],
        });
        const [, state = ''] =
          /hubgate; (hit|fwd=[a-z-]+)/.exec(String(headers['cache-status'])) ?? [];
        states.add(state);
      }
      return [...states];
    },
  };
}

describe('operating a cache', () => {
  it('purges by URL, pattern and tag in all workers, and reports what it stores', {
    skip: process.platform !== 'linux',
  }, async (test) => {
    const place = await start(test, { workers: 2, transport: '', app: await startApp(test) });
    const { admin } = place;
    const entries = async (): Promise<number> => {
      const { body } = await send(`http://${admin}/metrics`);
      return Number(/^hubgate_cache_entries(?:\{.*\})? (\d+)$/m.exec(body)?.[1]);
    };
    const fill = async (): Promise<void> => {
      // On a busy machine, one worker may accept many connections in a row.
      for (let attempt = 0; attempt < 20 && (await entries()) < 6; attempt += 1) {
        for (const path of ['/a/1', '/a/2', '/b']) await place.states(path);
      }
      assert.equal(await entries(), 6);
      assert.deepEqual(await place.states('/a/1'), ['hit']);
    };
    const purge = async (...args: readonly string[]): Promise<string> => {
      const command = startProcess(test, [cli, 'cache', 'purge', '--address', admin, ...args]);
      assert.equal(await command.exited(), 0, command.output);
      return command.output.trim();
    };
    await fill();
    assert.equal(await purge(`${place.site}/a/1`), 'purged 2');
    assert.ok((await place.states('/a/1')).includes('fwd=uri-miss'));
    assert.deepEqual(await place.states('/a/2'), ['hit']);
    await fill();
    assert.equal(await purge(`${place.site}/a/*`), 'purged 4');
    assert.deepEqual(await place.states('/b'), ['hit']);
    assert.equal(await purge('--tag', 'tag-of-/b'), 'purged 2');
    await fill();
    assert.equal(await purge('--all'), 'purged 6');
    await fill();

    const stats = startProcess(test, [cli, 'cache', 'stats', '--json', '--address', admin]);
    assert.equal(await stats.exited(), 0, stats.output);
    const stored = JSON.parse(stats.output);
    const { 'purged admin': purged, 'requests hit': hits } = stored;
    assert.deepEqual([stored.entries, purged], [6, 14]);
    assert.ok(hits > 0);
    const { body } = await send(`http://${admin}/metrics`);
    assert.match(body, /^hubgate_cache_entries\{?.*\}? ?6$/m);
    assert.match(place.gateway.output, /"hubgate\.cache":"hit"/);
    assert.match(place.gateway.output, /"hubgate\.cache":"miss"/);
    // A request that changes something is heard of by all workers.
    await send(`${place.site}/a/1`, { method: 'POST', body: 'x' });
    let left = '';
    for (let round = 0; round < 1_000 && !left.endsWith(' 4'); round += 1) {
      const { body: now } = await send(`http://${admin}/metrics`);
      left = /^hubgate_cache_entries\{?.*$/m.exec(now)?.[0] ?? '';
    }
    assert.match(left, / 4$/);
    const refused = await send(`http://${admin}/cache/purge?url=`, { method: 'POST' });
    assert.equal(refused.status, 400);
    const nothing = startProcess(test, [cli, 'cache', 'purge', '--address', admin]);
    assert.equal(await nothing.exited(), 64);
  });

  it('drops what a request has changed on the other nodes of the hub as well (RFC 9111 §4.4)', async (test) => {
    const redis = await startRedis(test, test);
    if (redis === null) return;
    const transport = `transport redis {\n\t\t\turl ${redis.url}\n\t\t\tstream shared\n\t\t}`;
    const app = await startApp(test);
    const host = 'shop.test';
    const here = await start(test, { workers: 1, transport, app, host });
    const there = await start(test, { workers: 1, transport, app, host });
    for (const path of ['/a', '/b']) {
      await there.states(path);
      assert.deepEqual(await there.states(path), ['hit']);
    }
    // A request without an update: `changes` announces nothing for this method.
    const headers = [['Host', host]] as const;
    assert.equal((await send(`${here.site}/a`, { method: 'PROPPATCH', headers })).status, 200);
    let states: readonly string[] = ['hit'];
    for (let round = 0; round < 1_000 && states[0] === 'hit'; round += 1) {
      states = await there.states('/a');
    }
    assert.deepEqual(states, ['fwd=uri-miss']);
    assert.deepEqual(await there.states('/b'), ['hit']);
  });

  it('purges on the other nodes of the hub as well', async (test) => {
    const redis = await startRedis(test, test);
    if (redis === null) return;
    const transport = `transport redis {\n\t\t\turl ${redis.url}\n\t\t\tstream shared\n\t\t}`;
    const app = await startApp(test);
    const here = await start(test, { workers: 1, transport, app });
    const there = await start(test, { workers: 1, transport, app });
    await there.states('/a');
    assert.deepEqual(await there.states('/a'), ['hit']);
    await send(`http://${here.admin}/cache/purge?all`, { method: 'POST' });
    let states: readonly string[] = ['hit'];
    for (let round = 0; round < 1_000 && states[0] === 'hit'; round += 1) {
      states = await there.states('/a');
    }
    assert.deepEqual(states, ['fwd=uri-miss']);
    // Without the log nobody knows what is new: the app does.
    await redis.kill();
    const { status, headers } = await send(`${there.site}/a`);
    assert.deepEqual([status, headers['cache-status']], [200, 'hubgate; fwd=bypass; detail=log']);
  });
});
