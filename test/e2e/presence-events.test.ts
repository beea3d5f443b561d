import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { profiles } from '../../src/hub/profile.ts';
import { freePort } from '../support/free-port.ts';
import { startGateway } from '../support/gateway.ts';
import { openStream, send } from '../support/http.ts';
import { signToken } from '../support/hub-server.ts';
import { runCommand } from '../support/process.ts';
import { startRedis } from '../support/redis-server.ts';

const KEY = 'a key of the hub that is long enough for it';
const UPDATES = 1000;
const STREAMS = 8;
const MATCHERS = 100;
/** More events than a history has updates. */
const ROUNDS = 2;

const kinds = [
  { name: 'memory', transport: 'memory {\n\t\t\tsize 1000\n\t\t}', workers: 1 },
  { name: 'LMDB with two workers', transport: 'lmdb {\n\t\t\tsize 1000\n\t\t}', workers: 2 },
  { name: 'Redis', transport: null, workers: 1 },
] as const;

describe('anonymous streams that come and go with subscriptions on', () => {
  for (const { name, transport, workers } of kinds) {
    it(`push no update out of the history, and do not make the cursors of pages expire: ${name}`, async (test) => {
      const redis = transport === null ? await startRedis(test, test) : null;
      if (transport === null && redis === null) return;
      const kept = transport ?? `redis {\n\t\t\turl ${redis?.url}\n\t\t\tmax_length 1000\n\t\t}`;
      const app = createServer((_request, response) => {
        response.setHeader('Content-Type', 'text/html').end('<p>a page</p>');
      });
      app.listen(0, '127.0.0.1');
      await once(app, 'listening');
      test.after(() => app.close());
      const { port: appPort } = app.address() as AddressInfo;
      const port = await freePort();
      const origin = `http://127.0.0.1:${port}`;
      const hub = `${origin}/.well-known/hub`;
      const sites = `${origin} {
	hub {
		issuer https://idp.example {
			publisher {
				jwt "${KEY}"
			}
			subscriber {
				jwt "${KEY}"
			}
		}
		anonymous
		subscriptions
		max_connections_per_client 0
		transport ${kept}
	}
	discovery
	reverse_proxy 127.0.0.1:${appPort}
}
`;
      const options = `\tauto_https disable_redirects\n\tworkers ${workers}\n`;
      const gateway = await startGateway(test, sites, options);
      const token = await signToken(KEY, {
        iss: 'https://idp.example',
        aud: hub,
        authorization_details: [
          {
            type: profiles.hub.detailType,
            actions: ['publish', 'subscribe'],
            topics: [{ match: '*' }],
          },
        ],
      });
      const authorization: [string, string] = ['Authorization', `Bearer ${token}`];
      const publish = async (id: string): Promise<void> => {
        const { status, body } = await send(hub, {
          method: 'POST',
          headers: [authorization, ['Content-Type', 'application/x-www-form-urlencoded']],
          body: new URLSearchParams({ topic: 'https://example.com/1', id }).toString(),
        });
        assert.equal(status, 200, body);
      };
      const wanted = Array.from({ length: UPDATES }, (_, index) => `u${index}`);
      for (const id of wanted) await publish(id);

      const listener = await openStream(test, `${hub}?match=*`, { headers: [authorization] });
      const query = Array.from({ length: MATCHERS }, (_, index) => `match=m${index}`).join('&');
      for (let round = 1; round <= ROUNDS; round += 1) {
        const streams = await Promise.all(
          Array.from({ length: STREAMS }, () => openStream(test, `${hub}?${query}`)),
        );
        for (const stream of streams) stream.close();
        const gone = STREAMS * MATCHERS * round;
        await listener.until(({ text }) => text.split('"active":false').length - 1 >= gone);
      }

      const page = await send(origin, { headers: [['Accept', 'text/html']] });
      assert.match(String(page.headers['link']), /last-event-id="u999"/);
      const all = await openStream(
        test,
        `${hub}?match=https://example.com/1&last_event_id=earliest`,
      );
      assert.deepEqual(await all.untilId('u999'), wanted);
      const behind = await openStream(test, `${hub}?match=https://example.com/1&last_event_id=u0`);
      assert.deepEqual(await behind.untilId('u999'), wanted.slice(1));
      assert.equal(behind.headers['hub-last-event-id'], 'u0');

      await gateway.stop();
      if (name === 'memory') return;
      const hubfile = join(gateway.storage, 'Hubfile');
      const history = (command: string) =>
        runCommand(['history', command, '--config', hubfile, '--adapter', 'hubfile']);
      const exported = await history('export');
      assert.equal(exported.code, 0, exported.stderr);
      const lines = exported.stdout
        .trimEnd()
        .split('\n')
        .map((line) => JSON.parse(line));
      const events = lines.filter(({ presence }) => presence === true).length;
      assert.equal(lines.length - events, UPDATES);
      assert.ok(events >= 2 * STREAMS * MATCHERS * ROUNDS);
      const verified = await history('verify');
      assert.equal(verified.code, 0, verified.stdout + verified.stderr);
    });
  }
});
