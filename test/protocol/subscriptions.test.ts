import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { after, describe, it, type TestContext } from 'node:test';
import { type Answer, openStream, type Stream } from '../support/http.ts';
import {
  FORM,
  type Header,
  ISSUER,
  type MatcherClaim,
  PUBLISHER_KEY,
  signToken,
  startHub,
  SUBSCRIBER_KEY,
  type TestHub,
} from '../support/hub-server.ts';

const API = '/.well-known/hub/subscriptions';

/** What an event's data or the API say of one subscription. */
interface Described {
  readonly id: string;
  readonly type: string;
  readonly subscriber: string;
  readonly match: string;
  readonly match_type: string;
  readonly active: boolean;
  readonly payload?: unknown;
}

const start = (test: TestContext, options = {}): Promise<TestHub> =>
  // Connections are counted by each process.
  startHub(test, { subscriptions: true, ...options }, { mounted: 'maxConnections' in options });

/** A stream that sees every subscription event but its own. */
async function watch(test: TestContext, place: TestHub, search = ''): Promise<Stream> {
  const pattern = encodeURIComponent(`${API}/:match_type/:match/:subscriber`);
  const headers = [await place.subscriber('*')];
  const stream = await openStream(test, `${place.url}?match_urlpattern=${pattern}${search}`, {
    headers,
  });
  // Its own event comes first.
  await stream.until(({ ids }) => ids.length > 0);
  return stream;
}

/** The data of the events from the second on, parsed. */
function described({ text }: Stream): Described[] {
  return [...text.matchAll(/^data: (.*)$/gm)].slice(1).map(([, json]) => JSON.parse(json ?? ''));
}

async function collection(place: TestHub, path = API): Promise<readonly Described[]> {
  const answer = await place.get(path, { headers: [await place.subscriber('*')] });
  assert.equal(answer.status, 200);
  return JSON.parse(answer.body).subscriptions;
}

async function tokenWith({ url }: TestHub, details: readonly object[]): Promise<Header> {
  const type = 'urn:hub:authorization-detail';
  const claims = {
    iss: ISSUER,
    aud: url,
    authorization_details: details.map((detail) => ({ type, ...detail })),
  };
  return ['Authorization', `Bearer ${await signToken(SUBSCRIBER_KEY, claims)}`];
}

describe('subscription events (E.1)', () => {
  it('E-348: without subscriptions, there are no events, no API and no metadata member', async (test) => {
    const place = await startHub(test);
    const headers = [await place.subscriber('*')];
    const stream = await openStream(test, `${place.url}?match=*`, { headers });
    await openStream(test, `${place.url}?match=b`);
    await place.post('topic=a&id=1');
    assert.deepEqual(await stream.untilId('1'), ['1']);
    for (const path of [API, `${API}/exact/b`, `${API}/exact/b/c`]) {
      assert.equal((await place.get(path, { headers })).status, 404);
    }
    const metadata = await place.get('/.well-known/oauth-protected-resource/.well-known/hub');
    assert.equal('hub_subscriptions' in JSON.parse(metadata.body), false);
  });

  it('E-349 E-350 E-351 E-353 E-356 E-357 E-358 E-362: announces the start and end of each matcher', async (test) => {
    const place = await start(test);
    const watcher = await watch(test, place);
    const search = 'match=a&match_exact=b&match_urlpattern=https://example.com/:id';
    const stream = await openStream(test, `${place.url}?${search}`);
    await watcher.until((one) => described(one).length === 3);
    stream.close();
    await watcher.until((one) => described(one).length === 6);

    const events = described(watcher);
    assert.deepEqual(
      events.map(({ match, match_type: type, active }) => [match, type, active]),
      [true, false].flatMap((active) => [
        ['a', 'exact', active],
        ['b', 'exact', active],
        ['https://example.com/:id', 'urlpattern', active],
      ]),
    );
    const [first] = events;
    assert.ok(first !== undefined);
    assert.match(first.subscriber, /^urn:uuid:[0-9a-f-]{36}$/);
    const encoded = encodeURIComponent(first.subscriber);
    assert.match(encoded, /^urn%3Auuid%3A/);
    assert.deepEqual(first, {
      id: `${API}/exact/a/${encoded}`,
      type: 'subscription',
      subscriber: first.subscriber,
      match: 'a',
      match_type: 'exact',
      active: true,
    });
    for (const { subscriber } of events) assert.equal(subscriber, first.subscriber);
    const blocks = watcher.text.slice(':\n'.length).split('\n\n').slice(0, -1);
    assert.equal(blocks.length, 7);
    for (const block of blocks) {
      assert.match(block, /^event: hub\nid: urn:uuid:[0-9a-f-]{36}\ndata: \{.*\}$/);
    }
    assert.equal(new Set(watcher.ids).size, 7);
  });

  for (const [match, encoded] of [
    ['https://example.com/:id', 'https%3A%2F%2Fexample.com%2F%3Aid'],
    ['a b', 'a%20b'],
    ['100%', '100%25'],
    ["!'()*+", '%21%27%28%29%2A%2B'],
    ['é', '%C3%A9'],
    ['A-Z.a_z~0', 'A-Z.a_z~0'],
  ] as const) {
    it(`E-352: writes the matcher ${match} as ${encoded}`, async (test) => {
      const place = await start(test);
      await openStream(test, `${place.url}?match=${encodeURIComponent(match)}`);
      const [record] = await collection(place);
      assert.ok(record !== undefined);
      assert.ok(record.id.startsWith(`${API}/exact/${encoded}/urn%3Auuid%3A`), record.id);
      assert.equal(record.match, match);
      const [same] = await collection(place, `${API}/exact/${encoded}`);
      assert.deepEqual(same, record);
    });
  }

  it('E-353 E-354: gives each connection its own subscriber id, whatever the client sends', async (test) => {
    const place = await start(test);
    const type = 'urn:hub:authorization-detail';
    const token = await signToken(SUBSCRIBER_KEY, {
      iss: ISSUER,
      aud: place.url,
      sub: 'urn:chosen',
      subscriber: 'urn:chosen',
      authorization_details: [{ type, actions: ['subscribe'], topics: [{ match: '*' }] }],
    });
    const headers = [
      ['Authorization', `Bearer ${token}`],
      ['Subscriber', 'urn:chosen'],
    ] as const;
    const search = 'match=a&match=b&subscriber=urn:chosen&id=urn:chosen';
    for (let count = 0; count < 2; count += 1) {
      await openStream(test, `${place.url}?${search}`, { headers });
    }
    const subscribers = (await collection(place)).map(({ subscriber }) => subscriber);
    assert.equal(subscribers.length, 4);
    assert.equal(new Set(subscribers).size, 2);
    for (const subscriber of subscribers) assert.match(subscriber, /^urn:uuid:/);
  });

  for (const [grant, sees] of [
    ['*', true],
    [{ match: `${API}/:match_type/:match/:subscriber`, match_type: 'urlpattern' }, true],
    [{ match: `${API}/exact/seen/:subscriber`, match_type: 'urlpattern' }, true],
    [{ match: `${API}/exact/other/:subscriber`, match_type: 'urlpattern' }, false],
    [`${API}/exact/seen`, false],
    ['seen', false],
  ] as readonly (readonly [MatcherClaim, boolean])[]) {
    it(`E-355: a subscriber with a grant on ${JSON.stringify(grant)} sees the event: ${sees}`, async (test) => {
      const place = await start(test);
      const headers = [await place.subscriber(grant)];
      const stream = await openStream(test, `${place.url}?match=*`, { headers });
      await openStream(test, `${place.url}?match=seen`);
      await place.post('topic=a&id=end');
      await stream.untilId('end');
      assert.equal(stream.text.includes('"match":"seen"'), sees);
    });
  }

  it('E-355: an anonymous subscriber sees no events', async (test) => {
    const place = await start(test);
    const stream = await openStream(test, `${place.url}?match=*`);
    await openStream(test, `${place.url}?match=b`);
    await place.post('topic=a&id=end');
    assert.deepEqual(await stream.untilId('end'), ['end']);
  });

  it('E-359 E-360: a subscriber receives the event of its own arrival, but not of its departure', async (test) => {
    const place = await start(test);
    const headers = [await place.subscriber('*')];
    const stream = await openStream(test, `${place.url}?match=*`, { headers });
    await stream.until(({ text }) => text.endsWith('\n\n'));
    assert.match(stream.text, /^:\nevent: hub\nid: .*\ndata: .*"active":true\}\n\n$/);
    await place.hub.close();
    await stream.untilEnd();
    assert.doesNotMatch(stream.text, /"active":false/);
  });

  it('E-361: a refused subscriber causes no events', async (test) => {
    const place = await start(test, { maxConnections: 2 });
    const watcher = await watch(test, place);
    await openStream(test, `${place.url}?match=second`);
    const refused = await place.get('/.well-known/hub?match=third');
    assert.equal(refused.status, 429);
    for (const search of ['', '?match=%00', '?match_urlpattern=%7B']) {
      assert.equal((await place.get(`/.well-known/hub${search}`)).status, 400);
    }
    const own = await place.get(`${API}/exact/third`, {
      headers: [await place.subscriber('*')],
    });
    assert.match(own.body, /"subscriptions":\[\]/);
    assert.deepEqual(
      described(watcher).map(({ match }) => match),
      ['second'],
    );
  });

  it('E-363 E-364: stores events in the history, where they move the cursor', async (test) => {
    const place = await start(test);
    await openStream(test, `${place.url}?match=a`);
    const eventId = await place.hub.lastEventId();
    assert.match(eventId, /^urn:uuid:/);
    const headers = [await place.subscriber('*')];
    const pattern = encodeURIComponent(`${API}/exact/*`);
    const search = `match_urlpattern=${pattern}&last_event_id=earliest`;
    const granted = await openStream(test, `${place.url}?${search}`, { headers });
    await granted.untilId(eventId);
    const anonymous = await openStream(test, `${place.url}?${search}&match=end`);
    await place.post('topic=end&id=end');
    assert.deepEqual(await anonymous.untilId('end'), ['end']);
  });

  it('E-365: a publisher cannot forge an event', async (test) => {
    const place = await start(test);
    const headers = [FORM, await place.publisher('*')];
    for (const form of [`topic=${API}/exact/a/b`, 'topic=a&type=hub']) {
      assert.equal((await place.post(form, { headers })).status, 400);
    }
  });
});

describe('subscription API (E.2)', async () => {
  const place = await startHub({ after }, { subscriptions: true });
  const idle = await startHub({ after }, { subscriptions: true });
  const all = [await place.subscriber('*')];
  const get = (path: string, headers: readonly Header[] = all): Promise<Answer> =>
    place.get(path, { headers });
  const url = 'https://example.com/:id';
  const streams = [
    await openStream({ after }, `${place.url}?match=a&match_urlpattern=${url}`),
    await openStream({ after }, `${place.url}?match=a`),
  ];

  it('E-366 E-387: lists all active subscriptions', async () => {
    assert.equal(streams.length, 2);
    const answer = await get(API);
    assert.equal(answer.status, 200);
    assert.equal(answer.headers['content-type'], 'application/json');
    const { subscriptions, ...rest } = JSON.parse(answer.body);
    assert.deepEqual(rest, { id: API, type: 'subscriptions' });
    assert.deepEqual(
      subscriptions.map(({ match }: Described) => match),
      ['a', url, 'a'],
    );
    for (const { id, ...record } of subscriptions) {
      assert.deepEqual(Object.keys(record), [
        'type',
        'subscriber',
        'match',
        'match_type',
        'active',
      ]);
      assert.ok(id.startsWith(`${API}/${record.match_type}/${encodeURIComponent(record.match)}/`));
    }
  });

  it('E-367: returns an empty array if there are no subscriptions', async () => {
    assert.deepEqual(await collection(idle), []);
  });

  it('E-368 E-371 E-375: lists the subscriptions of one matcher; the id is the path as it was sent', async () => {
    const path = `${API}/urlpattern/https%3A%2F%2Fexample.com%2F%3Aid`;
    const answer = await get(`${path}?x=1`);
    const { id, type, subscriptions } = JSON.parse(answer.body);
    assert.deepEqual([id, type, subscriptions.length], [path, 'subscriptions', 1]);
    const lower = JSON.parse((await get(path.replaceAll('%3A', '%3a'))).body);
    assert.equal(lower.id, path.replaceAll('%3A', '%3a'));
    assert.equal(lower.subscriptions.length, 1);
    assert.equal((await collection(place, `${API}/exact/a`)).length, 2);
    assert.deepEqual(await collection(place, `${API}/urlpattern/a`), []);
    assert.deepEqual(await collection(place, `${API}/exact/nobody`), []);
  });

  it('writes a long collection page by page as its client reads it', {
    timeout: 60_000,
  }, async (test) => {
    const place = await start(test);
    const longest = Array.from({ length: 16 }, (_, at) => `${at}`.padEnd(4000, '/'));
    const query = longest.map((match) => `match=${match}`).join('&');
    const streams: Stream[] = [];
    for (let count = 0; count < 80; count += 1) {
      streams.push(await openStream(test, `${place.url}?${query}`));
    }
    const all = streams.length * longest.length;
    const whole = await collection(place);
    assert.equal(whole.length, all);
    assert.equal(new Set(whole.map(({ id }) => id)).size, all);
    // About 20 MB each, of which a client that reads nothing must not keep more than a page in memory.
    const { hostname, port } = new URL(place.url);
    const [[name, value]] = [await place.subscriber('*')];
    const reader = async (): Promise<Socket> => {
      const socket = connect(Number(port), hostname);
      test.after(() => socket.destroy());
      const head = `GET ${API} HTTP/1.1\r\nHost: ${hostname}:${port}\r\n${name}: ${value}\r\n`;
      socket.write(`${head}Connection: close\r\n\r\n`);
      await once(socket, 'readable');
      return socket;
    };
    const slow = await reader();
    const others: Socket[] = [];
    while (others.length < 7) others.push(await reader());
    await new Promise((resolve) => setTimeout(resolve, 500));
    // A network has eight places for long collections. A short one needs none.
    assert.deepEqual(await collection(place, `${API}/exact/nobody`), []);
    for (const socket of others) socket.destroy();
    for (const stream of streams) stream.close();
    while ((await collection(place)).length > 0)
      await new Promise((resolve) => setTimeout(resolve, 50));
    let text = '';
    for await (const chunk of slow.setEncoding('latin1')) text += String(chunk);
    const body = text
      .slice(text.indexOf('\r\n\r\n') + 4)
      .replaceAll(/(?:^|\r\n)[0-9a-f]+\r\n/g, '');
    const { subscriptions } = JSON.parse(body.trimEnd());
    assert.ok(subscriptions.length > 0);
    assert.ok(subscriptions.length < all / 2, `${subscriptions.length} of ${all} were read ahead`);
  });

  it('E-369 E-370: returns a single subscription, or 404', async () => {
    const [record] = await collection(place);
    assert.ok(record !== undefined);
    const answer = await get(record.id);
    assert.equal(answer.headers['content-type'], 'application/json');
    assert.deepEqual(JSON.parse(answer.body), record);
    for (const path of [
      `${API}/exact/a/urn%3Auuid%3Aother`,
      record.id.replace('/exact/a/', '/exact/b/'),
      record.id.replace('/exact/', '/urlpattern/'),
    ]) {
      const missing = await get(path);
      assert.equal(missing.status, 404);
      assert.equal(missing.body, '404 page not found\n');
      assert.equal(missing.headers.link, answer.headers.link, 'with the cursor');
      assert.equal(missing.headers.etag, undefined);
    }
  });

  it('E-372 E-373: refuses an invalid match type or escape before it asks for a token', async () => {
    for (const rest of [
      'Exact/a',
      'regexp/a',
      'Exact/a/b',
      'exact/%zz',
      'exact/%FF',
      'exact/a/%C3',
    ]) {
      const answer = await get(`${API}/${rest}`, []);
      assert.equal(answer.status, 400, rest);
      // A percent sign without its digits does not pass the front door of a gateway.
      if (rest === 'exact/%zz') continue;
      assert.match(answer.headers['www-authenticate'] ?? '', /error="invalid_request"/);
    }
  });

  it('E-374: reads "+" in a segment as a plus', async (test) => {
    const plus = await start(test);
    await openStream(test, `${plus.url}?match=a%2Bb`);
    await openStream(test, `${plus.url}?match=a+b`);
    const [literal, ...others] = await collection(plus, `${API}/exact/a+b`);
    assert.equal(literal?.match, 'a+b');
    assert.deepEqual(others, []);
  });

  it('E-376: asks for a token even if the hub allows anonymous subscribers', async () => {
    const answer = await get(API, []);
    assert.equal(answer.status, 401);
    assert.match(answer.headers['www-authenticate'] ?? '', /^Bearer resource_metadata="[^"]*"$/);
  });

  it('E-377 E-382: answers 401 for an invalid token and 403 without a subscribe grant', async () => {
    const bad = await get(API, [['Authorization', 'Bearer nonsense']]);
    assert.equal(bad.status, 401);
    assert.match(bad.headers['www-authenticate'] ?? '', /error="invalid_token"/);
    const topics = [{ match: '*' }];
    for (const header of [
      await place.subscriber('a'),
      await tokenWith(place, [{ actions: ['publish'], topics }]),
    ]) {
      const answer = await get(API, [header]);
      assert.equal(answer.status, 403);
      assert.equal(answer.body, 'Forbidden\n');
      assert.match(answer.headers['www-authenticate'] ?? '', /error="insufficient_scope"/);
    }
  });

  for (const [numbers, grant, path, status] of [
    ['E-378', API, API, 200],
    ['E-378', API, `${API}?x=1`, 200],
    ['E-378', `${API}/exact/a%20b`, `${API}/exact/a%20b`, 200],
    ['E-378', `${API}/exact/a b`, `${API}/exact/a%20b`, 403],
    ['E-379', API, `${API}/exact/a`, 403],
    ['E-379', { match: `${API}/*`, match_type: 'urlpattern' }, `${API}/exact/a`, 200],
    ['E-379', { match: `${API}/*`, match_type: 'urlpattern' }, API, 403],
    ['E-379', { match: `${API}/exact/:match`, match_type: 'urlpattern' }, `${API}/exact/a`, 200],
    ['E-379', '*', `${API}/exact/a`, 200],
    ['E-380', `https://hub.example${API}`, API, 403],
  ] as readonly (readonly [string, MatcherClaim, string, number])[]) {
    it(`${numbers}: with a grant on ${JSON.stringify(grant)}, answers ${path} with ${status}`, async () => {
      const answer = await get(path, [await place.subscriber(grant)]);
      assert.equal(answer.status, status);
    });
  }

  it('E-379 E-380: with a pinned identity, accepts absolute patterns but not absolute exact topics', async (test) => {
    const identity = 'https://hub.example/.well-known/hub';
    const pinned = await start(test, { resourceIdentifier: identity });
    const pattern = { match: `https://hub.example${API}{/*}?`, match_type: 'urlpattern' };
    const open = await pinned.get(API, { headers: [await pinned.subscriber(pattern)] });
    assert.equal(open.status, 200);
    const exact = `https://hub.example${API}`;
    const shut = await pinned.get(API, { headers: [await pinned.subscriber(exact)] });
    assert.equal(shut.status, 403);
  });

  it('E-381: accepts the cookie without an origin', async () => {
    const [, value] = await place.subscriber('*');
    const cookie = `__Secure-hub_access_token=${value.slice('Bearer '.length)}`;
    assert.equal((await get(API, [['Cookie', cookie]])).status, 200);
  });

  it('E-383 L18: without a key for subscribers, there is no API', async (test) => {
    const issuers = [{ id: ISSUER, publisher: { key: PUBLISHER_KEY } }];
    const open = await start(test, { issuers });
    assert.equal((await open.get(API)).status, 404);
  });

  it('E-384 E-385 E-388 E-391 L20: returns the cursor in Link and ETag', async (test) => {
    const fresh = await start(test);
    const headers = [await fresh.subscriber('*')];
    for (const id of ['earliest', 'after-one']) {
      if (id !== 'earliest') await fresh.post({ topic: 'a', id, private: 'on' });
      const answer = await fresh.get(API, { headers });
      assert.equal(
        answer.headers.link,
        `</.well-known/hub>; rel="hub"; last-event-id="${id}"; type="hub"; content-type="application/json"`,
      );
      assert.equal(answer.headers.etag, `"${id}"`);
      assert.equal(answer.headers['cache-control'], 'must-revalidate');
    }
  });

  for (const [id, link, etag] of [
    ['a"b\\c', 'a\\"b\\\\c', 'a%22b\\c'],
    ['50% off', '50% off', '50%25%20off'],
    ['é☃', 'é☃', 'é☃'],
  ] as const) {
    it(`E-386 E-388: writes the id ${id} into Link and ETag`, async (test) => {
      const fresh = await start(test);
      await fresh.post({ topic: 'a', id });
      const { headers } = await fresh.get(API, { headers: [await fresh.subscriber('*')] });
      assert.ok(utf8(headers.link).includes(`; last-event-id="${link}"; `), utf8(headers.link));
      assert.equal(utf8(headers.etag), `"${etag}"`);
    });
  }

  it('E-389 E-390 L27: answers 304 for an equal ETag before it looks for subscribers', async (test) => {
    const fresh = await start(test);
    const header = await fresh.subscriber('*');
    await openStream(test, `${fresh.url}?match=a`);
    const [record] = await collection(fresh);
    const etag = JSON.stringify(await fresh.hub.lastEventId());
    const conditional = (path: string, value: string): Promise<Answer> =>
      fresh.get(path, { headers: [header, ['If-None-Match', value]] });
    for (const path of [API, `${API}/exact/a`, record?.id ?? '']) {
      const same = await conditional(path, etag);
      assert.equal(same.status, 304);
      assert.equal(same.body, '');
      assert.equal(same.headers.etag, etag);
      for (const other of ['"x"', `W/${etag}`, `"x", ${etag}`, '*']) {
        assert.equal((await conditional(path, other)).status, 200);
      }
    }
    assert.equal((await conditional(`${API}/exact/a/none`, etag)).status, 304);
    assert.equal((await conditional(`${API}/exact/a/none`, '"x"')).status, 404);
  });

  for (const method of ['POST', 'PUT', 'DELETE', 'HEAD', 'QUERY']) {
    it(`E-392: answers ${method} with 405`, async () => {
      for (const path of [API, `${API}/exact/a`, `${API}/exact/a/b`]) {
        const answer = await place.get(path, { method, headers: all });
        assert.equal(answer.status, 405);
        assert.equal(answer.headers.allow, 'GET');
      }
    });
  }

  for (const rest of ['/', '/foo', '/exact', '/exact/a/b/c', '/exact/a/', '/exact//b']) {
    it(`E-393: answers 404 for ${rest}`, async () => {
      assert.equal((await get(API + rest)).status, 404);
    });
  }

  it('E-394: includes the payload of each subscription, like its event', async (test) => {
    const fresh = await start(test);
    const watcher = await watch(test, fresh);
    const payload = { name: 'Ada', list: [1, null] };
    const headers = [
      await tokenWith(fresh, [
        { actions: ['subscribe'], topics: [{ match: 'a' }], payload },
        { actions: ['subscribe'], topics: [{ match: '*' }], payload: 0 },
      ]),
    ];
    await openStream(test, `${fresh.url}?match=a&match=b`, { headers });
    await watcher.until((one) => described(one).length === 2);
    for (const records of [described(watcher), (await collection(fresh)).slice(1)]) {
      assert.deepEqual(
        records.map((record) => record.payload),
        [payload, 0],
      );
    }
  });

  it('E-395: does not list subscriptions that have ended', async (test) => {
    const fresh = await start(test);
    const watcher = await watch(test, fresh);
    const stream = await openStream(test, `${fresh.url}?match=a`);
    assert.equal((await collection(fresh, `${API}/exact/a`)).length, 1);
    stream.close();
    await watcher.until((one) => described(one).at(-1)?.active === false);
    assert.deepEqual(await collection(fresh, `${API}/exact/a`), []);
  });

  it('E-396: the cursor of the API continues without a gap', async (test) => {
    const fresh = await start(test);
    await openStream(test, `${fresh.url}?match=before`);
    const headers = [await fresh.subscriber('*')];
    const { link } = (await fresh.get(API, { headers })).headers;
    const cursor = /last-event-id="([^"]*)"/.exec(String(link))?.[1] ?? '';
    await openStream(test, `${fresh.url}?match=between`);
    const watcher = await watch(test, fresh, `&last_event_id=${cursor}`);
    await watcher.until(({ text }) => text.includes('"match":"between"'));
    assert.doesNotMatch(watcher.text, /"match":"before"/);
  });
});

/** Text of a field value, which Node gives as one character per byte. */
function utf8(field: string | readonly string[] | undefined): string {
  return Buffer.from(String(field), 'latin1').toString('utf8');
}
