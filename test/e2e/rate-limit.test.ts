import assert from 'node:assert/strict';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, it, type TestContext } from 'node:test';
import { freePort } from '../support/free-port.ts';
import { startLibraryGateway } from '../support/gateway.ts';
import { send } from '../support/http.ts';
import { cli, startProcess } from '../support/process.ts';
import { RecordedLog } from '../support/recorded-log.ts';
import { type RedisServer, startRedis } from '../support/redis-server.ts';
import { startRelay } from '../support/relay.ts';
import { temporaryDirectory } from '../support/temporary-directory.ts';
import { TestClock } from '../support/test-clock.ts';

const KEY = 'the key of publishers and subscribers, long enough';

describe('rate_limit', () => {
  it('responds 429 with Retry-After, and shows the remaining quota on every response', async (test) => {
    const port = await freePort();
    const clock = new TestClock(60_000 * 20_000);
    const site = (body: string): string => `http://127.0.0.1:${port} {
	rate_limit /api/* {
		zone small {
			key {header.X-Key}
			events 2
			window 1m
		}
		zone large {
			key all
			events 5
			window 1h
		}
	}
	respond ${body}
	handle_errors 429 {
		respond "slow down"
	}
}
`;
    const { reload } = await startLibraryGateway(test, site('ok'), undefined, undefined, clock);
    const ask = (key: string, path = '/api/x'): ReturnType<typeof send> =>
      send(`http://127.0.0.1:${port}${path}`, { headers: [['X-Key', key]] });
    const first = await ask('a');
    assert.deepEqual(
      [first.status, first.headers['ratelimit-policy'], first.headers['ratelimit']],
      [200, '"small";q=2;w=60, "large";q=5;w=3600', '"small";r=1;t=60, "large";r=4;t=2400'],
    );
    assert.equal((await ask('a')).status, 200);
    const third = await ask('a');
    assert.deepEqual(
      [third.status, third.body, third.headers['retry-after'], third.headers['ratelimit']],
      [429, 'slow down', '90', '"small";r=0;t=90'],
    );
    await reload(site('again'));
    assert.equal((await ask('a')).status, 429);
    assert.equal((await ask('b')).body, 'again');
    assert.equal((await ask('a', '/else')).headers['ratelimit'], undefined);
    clock.advance(90_000);
    assert.equal((await ask('a')).status, 200);
    // What was refused has not been counted in the zone of all.
    assert.equal((await ask('c')).status, 200);
    const last = await ask('d');
    assert.deepEqual(
      [last.status, last.headers['ratelimit']?.toString().slice(0, 7)],
      [429, '"large"'],
    );
  });

  for (const key of ['', 'key {client_ip}', 'key "{method} {client_ip}"']) {
    it(`counts all requests of an IPv6 network as one client’s (${key})`, async (test) => {
      const port = await freePort();
      await startLibraryGateway(
        test,
        `http://127.0.0.1:${port} {
	rate_limit {
		zone z {
			events 1
			window 1h
			${key}
		}
	}
	respond ok
}
`,
        '\tservers {\n\t\ttrusted_proxies static private_ranges\n\t}\n',
      );
      const statuses: number[] = [];
      for (const address of ['2001:db8::1', '2001:db8::2', '2001:db8:0:1::1', '192.0.2.1']) {
        const headers = [['X-Forwarded-For', address]] as const;
        statuses.push((await send(`http://127.0.0.1:${port}/`, { headers })).status);
      }
      assert.deepEqual(statuses, [200, 429, 200, 200]);
    });
  }

  it('counts across nodes with Redis, and locally while Redis is down', async (test) => {
    const redis = await startRedis(test, test);
    if (redis === null) return;
    const log = new RecordedLog();
    const nodes = [await node(test, redis.url, log), await node(test, redis.url, log)];
    const statuses: number[] = [];
    for (let i = 0; i < 6; i += 1) statuses.push((await send(nodes[i % 2] ?? '')).status);
    assert.deepEqual(statuses, [200, 200, 200, 200, 429, 429]);
    assert.ok(Number(redis.command('TTL', redis.command('KEYS', '*counts*').trim()).trim()) > 0);
    await redis.kill();
    // Each has counted two of four.
    assert.equal((await send(nodes[0] ?? '')).status, 200);
    await log.says('rate_limit counts on this machine only');
    assert.equal((await send(nodes[0] ?? '')).status, 200);
    assert.equal((await send(nodes[0] ?? '')).status, 429);
  });

  it('counts locally while Redis accepts everything and answers nothing', async (test) => {
    const redis = await startRedis(test, test);
    if (redis === null) return;
    const relay = await startRelay(test, redis.port);
    const log = new RecordedLog();
    const origin = await node(test, `redis://127.0.0.1:${relay.port}`, log);
    relay.pause();
    const first = send(origin);
    const { fields } = await log.says('rate_limit counts on this machine only');
    assert.equal(fields['error'], 'The store did not answer within 1000 ms');
    assert.equal((await first).status, 200);
    // What follows does not ask at all.
    const asked = counted(redis);
    assert.equal((await send(origin)).status, 200);
    assert.equal(counted(redis), asked);
  });

  it('counts across workers', {
    skip: process.platform !== 'linux',
  }, async (test) => {
    const directory = await temporaryDirectory(test);
    const port = await freePort();
    const file = join(directory, 'Hubfile');
    await writeFile(
      file,
      `{
	storage ${directory}
	admin localhost:${await freePort()}
	workers 2
	auto_https disable_redirects
}
http://127.0.0.1:${port} {
	rate_limit {
		zone z {
			events 500
			window 24h
		}
	}
	respond ok
}
`,
    );
    const gateway = startProcess(test, [cli, 'run', '--config', file]);
    await gateway.says('Admin API on');
    let passed = 0;
    for (let refused = 0; refused < 20; ) {
      const { status } = await send(`http://127.0.0.1:${port}/`, {
        headers: [['Connection', 'close']],
      });
      if (status === 200) passed += 1;
      refused = status === 429 ? refused + 1 : 0;
    }
    // Without a word between them each would let 500 pass.
    assert.ok(passed >= 500 && passed < 900, String(passed));
  });
});

/** Scripts that Redis has executed. */
function counted(redis: RedisServer): string | undefined {
  return /cmdstat_evalsha:calls=(\d+)/.exec(redis.command('INFO', 'commandstats'))?.[1];
}

async function node(test: TestContext, url: string, log: RecordedLog): Promise<string> {
  const origin = `http://127.0.0.1:${await freePort()}`;
  await startLibraryGateway(
    test,
    `${origin} {
	hub {
		resource_identifier https://hub.example/.well-known/hub
		cookie_name hub
		transport redis {
			url ${url}
			stream shared
		}
		issuer https://hub.example {
			publisher {
				jwt "${KEY}"
			}
			subscriber {
				jwt "${KEY}"
			}
		}
	}
	rate_limit {
		zone z {
			events 4
			window 24h
		}
	}
	respond ok
}
`,
    undefined,
    log,
  );
  return origin;
}
