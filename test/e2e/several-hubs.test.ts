import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { profiles } from '../../src/hub/profile.ts';
import { freePort } from '../support/free-port.ts';
import { startLibraryGateway } from '../support/gateway.ts';
import { openStream, send, type Stream } from '../support/http.ts';
import { signToken } from '../support/hub-server.ts';

const FIRST_KEY = 'the key of the first hub, which is long enough';
const SECOND_KEY = 'the key of the second hub, which is long enough';

const issuer = (key: string): string =>
  `issuer https://idp.example {\n\t\t\tpublisher {\n\t\t\t\tjwt "${key}"\n\t\t\t}\n\t\t}\n\t\tanonymous`;

const site = (port: number, more = ''): string => `http://127.0.0.1:${port} {
	@events header X-Hub events
	hub {
		${issuer(FIRST_KEY)}
	}
	hub /.well-known/hub2 {
		name second
		${issuer(SECOND_KEY)}
		${more}
	}
	hub @events /.well-known/hub {
		name events
		${issuer(SECOND_KEY)}
	}
	respond "a page"
}
`;

async function publish(url: string, key: string, data: string, headers: [string, string][] = []) {
  const token = await signToken(key, {
    iss: 'https://idp.example',
    aud: url,
    authorization_details: [
      { type: profiles.hub.detailType, actions: ['publish'], topics: [{ match: '*' }] },
    ],
  });
  return send(url, {
    method: 'POST',
    headers: [
      ['Authorization', `Bearer ${token}`],
      ['Content-Type', 'application/x-www-form-urlencoded'],
      ...headers,
    ],
    body: new URLSearchParams({ topic: 'https://example.com/1', data }).toString(),
  });
}

describe('several hubs on one site', () => {
  it('each have their own issuers, streams, history, health and metrics, after a reload too', async (test) => {
    const port = await freePort();
    const { gateway, reload } = await startLibraryGateway(test, site(port));
    const origin = `http://127.0.0.1:${port}`;
    const first = `${origin}/.well-known/hub`;
    const second = `${origin}/.well-known/hub2`;
    const all = '?match=*';
    const ofFirst = await openStream(test, first + all);
    const ofSecond = await openStream(test, second + all);
    const events: [string, string] = ['X-Hub', 'events'];
    const ofEvents = await openStream(test, first + all, { headers: [events] });

    assert.equal((await publish(second, FIRST_KEY, 'no')).status, 401, 'each has its own keys');
    assert.equal((await publish(first, SECOND_KEY, 'no')).status, 401);
    const told = await publish(first, FIRST_KEY, 'one');
    assert.deepEqual([told.status, told.body.startsWith('urn:uuid:')], [200, true], told.body);
    assert.equal((await publish(second, SECOND_KEY, 'two')).status, 200);
    assert.equal((await publish(first, SECOND_KEY, 'three', [events])).status, 200);
    const before = await reload(site(port, 'heartbeat 20s'));
    assert.ok(before);
    assert.equal((await publish(second, SECOND_KEY, 'four')).status, 200, 'after a reload');

    const has = (data: string) => (stream: Stream) => stream.text.includes(`data: ${data}\n`);
    await ofFirst.until(has('one'));
    await ofSecond.until(has('four'));
    await ofEvents.until(has('three'));
    assert.equal(ofSecond.text.match(/^data: .*$/gm)?.join(), 'data: two,data: four');
    const again = await openStream(test, `${second}${all}&last_event_id=earliest`);
    await again.until(has('four'));
    assert.ok(has('two')(again), 'its own history');

    const { hubs } = await gateway.status();
    assert.deepEqual(
      new Map(hubs.map(({ name, counts }) => [name, counts.updates])),
      new Map([
        ['default', 1],
        ['second', 2],
        ['events', 1],
      ]),
    );
  });
});
