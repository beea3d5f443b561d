import assert from 'node:assert/strict';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, it, type TestContext } from 'node:test';
import { freePort } from '../support/free-port.ts';
import { openStream, send, type Stream } from '../support/http.ts';
import { signToken } from '../support/hub-server.ts';
import { cli, startProcess } from '../support/process.ts';
import { startPostgres } from '../support/postgres-server.ts';
import { startRedis } from '../support/redis-server.ts';
import { startRelay } from '../support/relay.ts';
import { temporaryDirectory } from '../support/temporary-directory.ts';

const KEY = 'the key of publishers and subscribers, long enough';
const RESOURCE = 'https://hub.example/.well-known/hub';

const STORES = [
  ['redis', startRedis, (port: number) => `redis://127.0.0.1:${port}`],
  ['postgres', startPostgres, (port: number) => `postgres://postgres@127.0.0.1:${port}/postgres`],
] as const;

for (const [kind, startStore, urlOf] of STORES) {
  describe(`a token that is revoked through the admin API of one gateway, with ${kind}`, () => {
    for (const workers of [1, 2]) {
      it(`loses its streams on the other gateways: ${workers} workers`, async (test) => {
        const store = await startStore(test, test);
        if (store === null) return;
        const [here, there] = [
          await start(test, kind, urlOf(store.port), workers),
          await start(test, kind, urlOf(store.port), 1),
        ];
        const [revoked, kept] = [await there.open(test, 'a'), await there.open(test, 'b')];
        const own = await here.open(test, 'a');
        const answer = await send(`${here.admin}/hub/revoke?jti=a`, { method: 'POST' });
        assert.deepEqual(JSON.parse(answer.body), { ended: 1 });
        await Promise.all([own.untilEnd(), revoked.untilEnd()]);
        assert.equal(kept.ended, false);
      });
    }

    it('is not acknowledged while the store is away, and reaches the other gateways when it is back', async (test) => {
      const store = await startStore(test, test);
      if (store === null) return;
      const relay = await startRelay(test, store.port);
      const here = await start(test, kind, urlOf(relay.port), 1);
      const there = await start(test, kind, urlOf(store.port), 1);
      const [own, other] = [await here.open(test, 'a'), await there.open(test, 'a')];
      relay.cut();
      for (const path of ['/hub/revoke?jti=a', '/cache/purge?all']) {
        const { status, headers } = await send(`${here.admin}${path}`, { method: 'POST' });
        assert.deepEqual([status, headers['retry-after']], [503, '1']);
      }
      await own.untilEnd();
      assert.equal(other.ended, false);
      relay.heal();
      await other.untilEnd();
    });

    it('loses them on a gateway that was disconnected, before it delivers later updates', async (test) => {
      const store = await startStore(test, test);
      if (store === null) return;
      const relay = await startRelay(test, store.port);
      const here = await start(test, kind, urlOf(store.port), 1);
      const there = await start(test, kind, urlOf(relay.port), 1);
      const [revoked, kept] = [await there.open(test, 'a'), await there.open(test, 'b')];
      await here.publish('before');
      await Promise.all([revoked.untilId('before'), kept.untilId('before')]);
      relay.cut();
      await send(`${here.admin}/hub/revoke?jti=a`, { method: 'POST' });
      await here.publish('after');
      relay.heal();
      await Promise.all([revoked.untilEnd(), kept.untilId('after')]);
      assert.deepEqual(revoked.ids, ['before']);
    });
  });
}

async function start(test: TestContext, kind: string, url: string, workers: number) {
  const directory = await temporaryDirectory(test);
  const [port, adminPort] = [await freePort(), await freePort()];
  const hub = `http://localhost:${port}/.well-known/hub`;
  const file = join(directory, 'Hubfile');
  const keys = ['publisher', 'subscriber'].map(
    (role) => `${role} {\n\t\t\t\tjwt "${KEY}"\n\t\t\t}`,
  );
  await writeFile(
    file,
    `{
	workers ${workers}
	admin localhost:${adminPort}
	storage ${directory}
}
http://localhost:${port} {
	hub {
		issuer me {
			${keys.join('\n\t\t\t')}
		}
		resource_identifier ${RESOURCE}
		transport ${kind} {
			url ${url}
			stream test
		}
	}
}
`,
  );
  const gateway = startProcess(test, [cli, 'run', '--no-watch', '--config', file]);
  await gateway.says('Admin API on');
  return {
    admin: `http://localhost:${adminPort}`,
    async open(owner: TestContext, jti: string): Promise<Stream> {
      const stream = await openStream(owner, `${hub}?match=news`, {
        headers: [['Authorization', `Bearer ${await grant('subscribe', jti)}`]],
      });
      assert.equal(stream.status, 200, stream.text);
      return stream;
    },
    async publish(id: string): Promise<void> {
      const { status } = await send(hub, {
        method: 'POST',
        headers: [
          ['Authorization', `Bearer ${await grant('publish', 'publisher')}`],
          ['Content-Type', 'application/x-www-form-urlencoded'],
        ],
        body: new URLSearchParams({ topic: 'news', id }).toString(),
      });
      assert.equal(status, 200);
    },
  };
}

function grant(action: string, jti: string): Promise<string> {
  const detail = {
    type: 'urn:hub:authorization-detail',
    actions: [action],
    topics: [{ match: '*' }],
  };
  return signToken(KEY, { iss: 'me', aud: RESOURCE, jti, authorization_details: [detail] });
}
