import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:http';
import { describe, it, type TestContext } from 'node:test';
import { freePort } from '../support/free-port.ts';
import { startGateway } from '../support/gateway.ts';
import { openStream, send } from '../support/http.ts';
import { signToken } from '../support/hub-server.ts';
import { startPostgres } from '../support/postgres-server.ts';
import { startRedis } from '../support/redis-server.ts';
import { startRelay } from '../support/relay.ts';

const KEY = 'the key of the publishers, long enough';
const RESOURCE = 'https://hub.example/.well-known/hub';
/** Of each hub in each process. */
const CONNECTIONS = 3;

/** A server, how a Hubfile names it behind a port, and how many connections it has. */
interface Store {
  readonly port: number;
  readonly transport: (port: number) => string;
  readonly connections: () => Promise<number>;
}

const STORES: readonly (readonly [string, (test: TestContext) => Promise<Store | null>])[] = [
  [
    'Redis',
    async (test) => {
      const redis = await startRedis(test, test);
      if (redis === null) return null;
      return {
        port: redis.port,
        transport: (port) => `redis {\n\t\t\turl redis://127.0.0.1:${port}`,
        async connections() {
          // Of those that redis-cli lists, one is its own.
          const clients = redis.command('CLIENT', 'LIST').split('\n');
          return clients.filter((line) => !line.includes('cmd=client')).length;
        },
      };
    },
  ],
  [
    'PostgreSQL',
    async (test) => {
      const postgres = await startPostgres(test, test);
      if (postgres === null) return null;
      return {
        port: postgres.port,
        transport: (port) => `postgres {\n\t\t\turl postgres://postgres@127.0.0.1:${port}/postgres`,
        async connections() {
          const text = "SELECT 1 FROM pg_stat_activity WHERE application_name = 'hubgate'";
          return (await postgres.query(text)).length;
        },
      };
    },
  ],
];

describe('a gateway whose store is down, as docs/scaling.md describes it', () => {
  for (const [name, startStore] of STORES) {
    it(`refuses publishes, keeps streams open, and accepts subscribers without a cursor: ${name}`, async (test) => {
      const store = await startStore(test);
      if (store === null) return;
      const relay = await startRelay(test, store.port);
      const port = await freePort();
      await startGateway(test, site(port, store.transport(relay.port)));
      const hub = `http://localhost:${port}/.well-known/hub`;
      const token = await signToken(KEY, {
        ...{ iss: 'me', aud: RESOURCE },
        authorization_details: [
          {
            type: 'urn:hub:authorization-detail',
            actions: ['publish', 'subscribe'],
            topics: [{ match: '*' }],
          },
        ],
      });
      const publish = (data: string) =>
        send(hub, {
          method: 'POST',
          headers: [
            ['Authorization', `Bearer ${token}`],
            ['Content-Type', 'application/x-www-form-urlencoded'],
          ],
          body: new URLSearchParams({ topic: 'news', data }).toString(),
        });
      assert.equal(await store.connections(), CONNECTIONS);

      const stream = await openStream(test, `${hub}?match=news`);
      const { status, body: cursor } = await publish('before');
      assert.equal(status, 200);
      await stream.until(({ text }) => text.includes('data: before'));
      relay.cut();
      const refused = await publish('lost');
      assert.deepEqual([refused.status, refused.headers['retry-after']], [503, '1']);
      const beats = stream.text.length;
      await stream.until(({ text }) => /^:\n/m.test(text.slice(beats)));
      const newcomer = await openStream(test, `${hub}?match=news`);
      assert.equal(newcomer.status, 200);
      for (const known of [cursor, 'earliest']) {
        const comesBack = await openStream(test, `${hub}?match=news&last_event_id=${known}`);
        assert.equal(comesBack.status, 503, known);
        assert.equal(comesBack.headers['retry-after'], '1');
        comesBack.close();
      }

      for (const path of ['', '/exact/news', '/exact/news/urn:uuid:unknown']) {
        const { status, headers } = await send(`${hub}/subscriptions${path}`, {
          headers: [['Authorization', `Bearer ${token}`]],
        });
        assert.deepEqual([status, headers['retry-after']], [503, '1'], path);
      }

      relay.heal();
      while ((await publish('after')).status !== 200) await nextTurn();
      for (const one of [stream, newcomer]) {
        await one.until(({ text }) => text.includes('data: after'));
        assert.ok(!one.text.includes('data: lost'));
      }
    });

    it(`announces what the app has changed meanwhile, each page once: ${name}`, async (test) => {
      const store = await startStore(test);
      if (store === null) return;
      const app = createServer((_request, response) => response.writeHead(204).end());
      test.after(() => app.close());
      const appPort = await freePort();
      app.listen(appPort, '127.0.0.1');
      await once(app, 'listening');
      const relay = await startRelay(test, store.port);
      const port = await freePort();
      // With `sync`, each change has been tried once when its response arrives. One that is still on its way when
      // the store is back may rightly be announced apart from those that wait.
      const discovery = `discovery {\n\t\tchanges public {\n\t\t\tsync\n\t\t}\n\t}\n\treverse_proxy 127.0.0.1:${appPort}`;
      const hubfile = site(port, store.transport(relay.port), discovery);
      const gateway = await startGateway(test, hubfile);
      const origin = `http://localhost:${port}`;
      const hub = `${origin}/.well-known/hub`;
      const stream = await openStream(test, `${hub}?match=${origin}/a&match=${origin}/b`);
      assert.equal(stream.status, 200);
      const change = async (path: string): Promise<void> => {
        const { status } = await send(`${origin}${path}`, { method: 'POST', body: '' });
        assert.equal(status, 204);
      };
      const changes = (path: string): number => stream.text.split(`"url":"${path}"`).length - 1;

      await change('/a');
      await stream.until(() => changes('/a') === 1);
      relay.cut();
      for (const path of ['/a', '/b', '/a', '/b', '/a']) await change(path);
      // What waits survives a new configuration.
      await gateway.reload(`${hubfile}# reloaded\n`);
      relay.heal();
      await stream.until(() => changes('/a') === 2 && changes('/b') === 1);
      await change('/b');
      await stream.until(() => changes('/b') === 2);
      assert.equal(changes('/a'), 2);
    });
  }
});

function site(port: number, transport: string, more = ''): string {
  return `http://localhost:${port} {
	hub {
		issuer me {
			publisher {
				jwt "${KEY}"
			}
			subscriber {
				jwt "${KEY}"
			}
		}
		subscriptions
		resource_identifier ${RESOURCE}
		anonymous
		heartbeat 1s
		transport ${transport}
			stream test
		}
	}
	${more}
}
`;
}

function nextTurn(): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, 20));
}
