import assert from 'node:assert/strict';
import { after, describe, it } from 'node:test';
import type { HubOptions } from '../../src/hub.ts';
import { type Answer, sendBytes } from '../support/http.ts';
import {
  FORM,
  type Header,
  ISSUER,
  PUBLISHER_KEY,
  signToken,
  startHub,
  SUBSCRIBER_KEY,
  type TestHub,
} from '../support/hub-server.ts';

const HUB = '/.well-known/hub';
const META = `/.well-known/oauth-protected-resource${HUB}`;

const hub = await startHub({ after }, { anonymous: false });
const presence = await startHub({ after }, { subscriptions: true });
const keys = { publisher: { key: PUBLISHER_KEY }, subscriber: { key: SUBSCRIBER_KEY } };

async function metadata(place: TestHub, host?: string): Promise<Record<string, unknown>> {
  const headers = host === undefined ? [] : [['Host', host] as const];
  const answer = await place.get(META, { headers });
  assert.equal(answer.status, 200);
  return JSON.parse(answer.body);
}

function challenges({ rawHeaders }: Answer): string[] {
  return rawHeaders.filter(
    (_, index) => index % 2 === 1 && rawHeaders[index - 1]?.toLowerCase() === 'www-authenticate',
  );
}

describe('protected resource metadata (F, RFC 9728)', () => {
  it('F-397 F-400 F-402 F-404 F-405 F-409: serves this document next to the hub', async () => {
    const answer = await hub.get(META);
    assert.equal(answer.status, 200);
    assert.equal(answer.headers['content-type'], 'application/json');
    assert.deepEqual(JSON.parse(answer.body), {
      resource: hub.url,
      bearer_methods_supported: ['header'],
      authorization_details_types_supported: ['urn:hub:authorization-detail'],
      hub_cookie: '__Secure-hub_access_token',
    });
  });

  it('F-398: answers HEAD without a body, and other methods with 405', async () => {
    const get = await hub.get(META);
    const head = await hub.get(META, { method: 'HEAD' });
    assert.equal(head.status, 200);
    assert.equal(head.body, '');
    assert.equal(head.headers['content-length'], get.headers['content-length']);
    for (const method of ['POST', 'PUT', 'DELETE', 'OPTIONS', 'QUERY']) {
      const answer = await hub.get(META, { method });
      assert.equal(answer.status, 405);
      assert.equal(answer.headers.allow, 'GET, HEAD');
    }
  });

  it('F-399: ignores tokens', async () => {
    for (const value of ['Bearer nonsense', 'Basic YTpi']) {
      const answer = await hub.get(META, { headers: [['Authorization', value]] });
      assert.equal(answer.status, 200);
    }
  });

  it('F-401: lists the authorization servers in the configured order', async (test) => {
    const issuers = [
      { id: 'https://b.example', ...keys, authorizationServer: true },
      { id: ISSUER, ...keys },
      { id: 'https://a.example', ...keys, authorizationServer: true },
    ];
    const { authorization_servers: servers } = await metadata(await startHub(test, { issuers }));
    assert.deepEqual(servers, ['https://b.example', 'https://a.example']);
    assert.equal('authorization_servers' in (await metadata(hub)), false);
  });

  for (const [numbers, options, member, value] of [
    ['F-402', { subscriptions: true }, 'hub_subscriptions', true],
    ['F-403', { cookieName: 'other' }, 'hub_cookie', 'other'],
    ['F-400 L2', { detailType: 'urn:mine' }, 'authorization_details_types_supported', ['urn:mine']],
  ] as readonly (readonly [string, Partial<HubOptions>, string, unknown])[]) {
    it(`${numbers}: ${member} follows the configuration`, async (test) => {
      assert.deepEqual((await metadata(await startHub(test, options)))[member], value);
    });
  }

  it('F-406 F-418 F-423: the resource is the audience that the same request would need', async () => {
    for (const host of ['hub.example', 'HUB.Example:8443', 'other.example']) {
      const { resource } = await metadata(hub, host);
      assert.equal(resource, `http://${host}${HUB}`);
      assert.equal(await publishTo(hub, host, `http://${host}${HUB}`), 200);
      assert.equal(await publishTo(hub, host, hub.url), 401);
    }
  });

  it('F-407 F-417: a pinned identity is the resource, whatever the host', async (test) => {
    const resourceIdentifier = 'https://hub.example/some/path';
    const pinned = await startHub(test, { resourceIdentifier, anonymous: false });
    for (const host of ['hub.example', 'localhost:1']) {
      assert.equal((await metadata(pinned, host))['resource'], resourceIdentifier);
      assert.equal(await publishTo(pinned, host, resourceIdentifier), 200);
      const refused = await pinned.get(`${HUB}?match=a`, { headers: [['Host', host]] });
      assert.deepEqual(challenges(refused), [
        `Bearer resource_metadata="https://hub.example${META}"`,
      ]);
    }
  });

  it('F-408: an anonymous hub without keys has no metadata', async (test) => {
    const open = await startHub(test, { issuers: [] }, { mounted: true });
    assert.equal((await open.get(META)).status, 404);
  });
});

describe('challenges (F, RFC 6750)', () => {
  const parameter = `resource_metadata="http://hub.example${META}"`;
  const host: Header = ['Host', 'hub.example'];

  for (const [numbers, status, challenge, request] of [
    ['F-410', 401, parameter, () => hub.get(`${HUB}?match=a`, { headers: [host] })],
    ['F-410', 401, parameter, () => hub.post('topic=a', { headers: [host, FORM] })],
    ['F-411', 401, `error="invalid_token", ${parameter}`, () => bearing('Bearer nonsense')],
    ['F-412', 403, `error="insufficient_scope", ${parameter}`, publishUncovered],
    ['F-413', 400, `error="invalid_request", ${parameter}`, () => bearing('Basic YTpi')],
    ['F-413', 400, `error="invalid_request", ${parameter}`, publishByCookie],
    ['F-414 L6', 400, `error="invalid_request", ${parameter}`, publishWithoutTopic],
    ['F-414 L6', 400, `error="invalid_request", ${parameter}`, subscribeWithoutMatcher],
    ['F-414 L6', 400, `error="invalid_request", ${parameter}`, askForUnknownMatchType],
  ] as const) {
    it(`${numbers} F-415 F-416: answers ${status} with one challenge, ${challenge.split(',')[0]}`, async () => {
      const answer = await request();
      assert.equal(answer.status, status);
      assert.deepEqual(challenges(answer), [`Bearer ${challenge}`]);
    });
  }

  async function bearing(value: string): Promise<Answer> {
    return hub.get(`${HUB}?match=a`, { headers: [host, ['Authorization', value]] });
  }

  async function publishUncovered(): Promise<Answer> {
    return hub.post('topic=a', { headers: [host, FORM, await forHost('publisher', 'b')] });
  }

  async function publishByCookie(): Promise<Answer> {
    const headers: Header[] = [host, FORM, ['Cookie', '__Secure-hub_access_token=x']];
    return hub.post('topic=a', { headers });
  }

  async function publishWithoutTopic(): Promise<Answer> {
    return hub.post('data=x', { headers: [host, FORM, await forHost('publisher', '*')] });
  }

  async function subscribeWithoutMatcher(): Promise<Answer> {
    return hub.get(HUB, { headers: [host, await forHost('subscriber', '*')] });
  }

  async function askForUnknownMatchType(): Promise<Answer> {
    return presence.get(`${HUB}/subscriptions/x/y`, { headers: [host] });
  }

  function forHost(role: 'publisher' | 'subscriber', match: string): Promise<Header> {
    return tokenFor(role, `http://hub.example${HUB}`, match);
  }
});

describe('identity of a request (F)', () => {
  it('F-418: copies the host exactly as it was sent', async () => {
    const answer = await hub.get(`${HUB}?match=a`, { headers: [['Host', 'Hub.EXAMPLE:81']] });
    assert.deepEqual(challenges(answer), [
      `Bearer resource_metadata="http://Hub.EXAMPLE:81${META}"`,
    ]);
  });

  it('F-419 F-420 L25: ignores forwarded fields', async () => {
    const headers: Header[] = [
      ['X-Forwarded-Proto', 'https'],
      ['X-Forwarded-Host', 'evil.example'],
      ['Forwarded', 'proto=https;host=evil.example'],
    ];
    const { body } = await hub.get(META, { headers });
    assert.equal(JSON.parse(body).resource, hub.url);
  });

  it('F-421 L26: with public_urls, answers any other host with 421, before anything else', async (test) => {
    const place = await startHub(test, { publicUrls: ['http://a.example'], corsOrigins: ['*'] });
    const ask = (path: string, host: string, method = 'GET'): Promise<Answer> =>
      place.get(path, { method, headers: [['Host', host]] });
    for (const path of [HUB, META, `${HUB}/subscriptions`, `${HUB}/x`]) {
      for (const method of ['GET', 'POST', 'DELETE']) {
        const answer = await ask(path, 'b.example', method);
        assert.equal(answer.status, 421);
        assert.equal(answer.body, 'Misdirected Request\n');
        assert.equal(answer.headers['content-type'], 'text/plain; charset=utf-8');
      }
    }
    assert.equal((await ask(META, 'a.example')).status, 200);
    const secure = await startHub(test, { publicUrls: ['https://a.example'] });
    const answer = await secure.get(META, { headers: [['Host', 'a.example']] });
    assert.equal(answer.status, 421);
  });

  for (const [publicUrl, host, status] of [
    ['HTTP://A.Example/path', 'a.EXAMPLE', 200],
    ['http://a.example:80', 'a.example', 421],
    ['http://a.example', 'a.example:80', 421],
    ['http://a.example:8080', 'a.example:8080', 200],
  ] as const) {
    it(`F-422: with public_urls ${publicUrl} answers the host ${host} with ${status}`, async (test) => {
      const place = await startHub(test, { publicUrls: [publicUrl] });
      const answer = await place.get(META, { headers: [['Host', host]] });
      assert.equal(answer.status, status);
    });
  }

  it('F-424: answers 400 to a request without a host', async () => {
    for (const path of [HUB, META]) {
      const text = await sendBytes(hub.origin, `GET ${path} HTTP/1.0\r\n\r\n`);
      assert.match(text, /^HTTP\/1\.1 400 Bad Request\r\n/);
      assert.match(text, /\r\n\r\nBad Request\n$/);
    }
  });
});

async function publishTo(place: TestHub, host: string, audience: string): Promise<number> {
  const headers: Header[] = [['Host', host], FORM, await tokenFor('publisher', audience, '*')];
  return (await place.post('topic=a', { headers })).status;
}

async function tokenFor(
  role: 'publisher' | 'subscriber',
  audience: string,
  match: string,
): Promise<Header> {
  const action = role === 'publisher' ? 'publish' : 'subscribe';
  const detail = { type: 'urn:hub:authorization-detail', actions: [action], topics: [{ match }] };
  const token = await signToken(keys[role].key, {
    iss: ISSUER,
    aud: audience,
    authorization_details: [detail],
  });
  return ['Authorization', `Bearer ${token}`];
}
