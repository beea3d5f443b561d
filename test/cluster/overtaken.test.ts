import assert from 'node:assert/strict';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, it, type TestContext } from 'node:test';
import { freePort } from '../support/free-port.ts';
import { openStream, send } from '../support/http.ts';
import { signToken } from '../support/hub-server.ts';
import { cli, startProcess } from '../support/process.ts';
import { startPostgres } from '../support/postgres-server.ts';
import { startRedis } from '../support/redis-server.ts';
import { temporaryDirectory } from '../support/temporary-directory.ts';

const KEY = 'the key of publishers and subscribers, long enough';
const HUB_PATH = '/.well-known/hub';
const RESOURCE = `https://hub.example${HUB_PATH}`;
/** Updates that the store keeps, and that pass while a gateway is halted. */
const KEPT = 10;
const PASSING = 60;

describe('a gateway that is paused for longer than the store keeps updates', () => {
  it('on Redis: closes its streams, and reports the gap to clients that reconnect', async (test) => {
    const redis = await startRedis(test, test);
    if (redis === null) return;
    const limits = `url ${redis.url}\n\t\t\tstream test\n\t\t\tmax_length ${KEPT}`;
    await isHalted(test, `redis {\n\t\t\t${limits}`);
  });

  it('on PostgreSQL: closes its streams, and reports the gap to clients that reconnect', async (test) => {
    const postgres = await startPostgres(test, test);
    if (postgres === null) return;
    const limits = `url ${postgres.url}\n\t\t\tstream test\n\t\t\tmax_length ${KEPT}`;
    await isHalted(test, `postgres {\n\t\t\t${limits}`);
  });

  it('on LMDB: closes its streams, and reports the gap to clients that reconnect', async (test) => {
    const history = join(await temporaryDirectory(test), 'history');
    await isHalted(test, `lmdb {\n\t\t\tpath ${history}\n\t\t\tsize ${KEPT}`);
  });
});

async function isHalted(test: TestContext, transport: string): Promise<void> {
  const [halted, other] = [await start(test, transport), await start(test, transport)];
  const detail = { type: 'urn:hub:authorization-detail', topics: [{ match: '*' }] };
  const token = await signToken(KEY, {
    ...{ iss: 'me', aud: RESOURCE },
    authorization_details: [{ ...detail, actions: ['publish', 'subscribe'] }],
  });
  const authorization = ['Authorization', `Bearer ${token}`] as const;
  const publish = async (id: string): Promise<void> => {
    const { status } = await send(other.hub, {
      method: 'POST',
      headers: [authorization, ['Content-Type', 'application/x-www-form-urlencoded']],
      body: new URLSearchParams({ topic: 'news', id }).toString(),
    });
    assert.equal(status, 200);
  };
  const url = `${halted.hub}?match=news`;
  const [before, elsewhere] = [
    await openStream(test, url),
    await openStream(test, `${other.hub}?match=news`),
  ];
  await publish('first');
  await before.untilId('first');
  halted.process.child.kill('SIGSTOP');
  const passing = Array.from({ length: PASSING }, (_, index) => `u${index}`);
  for (const id of passing) await publish(id);
  halted.process.child.kill('SIGCONT');
  await before.untilEnd();
  assert.ok(before.complete, 'in good order');
  const seen = before.ids.length;
  assert.deepEqual(before.ids, ['first', ...passing].slice(0, seen));
  assert.ok(seen < PASSING - KEPT, `${seen} updates before the hole`);
  const cursor = before.ids.at(-1) ?? '';
  const again = await openStream(test, url, { headers: [['Last-Event-ID', cursor]] });
  assert.equal(again.headers['hub-last-event-id'], 'earliest');
  await publish('last');
  await again.untilId('last');
  assert.deepEqual(await elsewhere.untilId('last'), ['first', ...passing, 'last']);
  assert.equal(again.ended, false);
}

async function start(test: TestContext, transport: string) {
  const directory = await temporaryDirectory(test);
  const port = await freePort();
  const file = join(directory, 'Hubfile');
  await writeFile(file, hubfile(directory, port, transport));
  const process = startProcess(test, [cli, 'run', '--no-watch', '--config', file]);
  await process.says('Listening on');
  return { process, hub: `http://127.0.0.1:${port}${HUB_PATH}` };
}

function hubfile(storage: string, port: number, transport: string): string {
  const jwt = `{\n\t\t\t\tjwt "${KEY}"\n\t\t\t}`;
  return `{
	admin off
	auto_https off
	storage ${storage}
}
http://127.0.0.1:${port} {
	hub {
		issuer me {
			publisher ${jwt}
			subscriber ${jwt}
		}
		anonymous
		resource_identifier ${RESOURCE}
		transport ${transport}
		}
	}
}
`;
}
