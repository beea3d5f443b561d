import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { freePort } from '../support/free-port.ts';
import { startGateway } from '../support/gateway.ts';
import { openStream, send } from '../support/http.ts';
import { signToken } from '../support/hub-server.ts';
import { startRedis } from '../support/redis-server.ts';
import { startRelay } from '../support/relay.ts';

const KEY = 'the key of the publishers, long enough';
const RESOURCE = 'https://hub.example/.well-known/hub';
/** Of each hub in each process. */
const CONNECTIONS = 3;

describe('a gateway whose Redis is down, as docs/scaling.md describes it', () => {
  it('refuses publishes, keeps streams open, and accepts subscribers without a cursor', {
    timeout: 60_000,
  }, async (test) => {
    const redis = await startRedis(test, test);
    if (redis === null) return;
    const relay = await startRelay(test, redis.port);
    const port = await freePort();
    await startGateway(test, site(port, relay.port));
    const hub = `http://localhost:${port}/.well-known/hub`;
    const token = await signToken(KEY, {
      ...{ iss: 'me', aud: RESOURCE },
      authorization_details: [
        {
          type: 'urn:hub:authorization-detail',
          actions: ['publish'],
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
    // Of those that redis-cli lists, one is its own.
    const clients = redis.command('CLIENT', 'LIST').split('\n');
    assert.equal(clients.filter((line) => !line.includes('cmd=client')).length, CONNECTIONS);

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
      comesBack.close();
    }

    relay.heal();
    while ((await publish('after')).status !== 200) await nextTurn();
    for (const one of [stream, newcomer]) {
      await one.until(({ text }) => text.includes('data: after'));
      assert.ok(!one.text.includes('data: lost'));
    }
  });
});

function site(port: number, redis: number): string {
  return `http://localhost:${port} {
	hub {
		issuer me {
			publisher {
				jwt "${KEY}"
			}
		}
		resource_identifier ${RESOURCE}
		anonymous
		heartbeat 1s
		transport redis {
			url redis://127.0.0.1:${redis}
			stream test
		}
	}
}
`;
}

function nextTurn(): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, 20));
}
