import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { createServer } from 'node:http';
import { type AddressInfo, connect } from 'node:net';
import { after, describe, it, type TestContext } from 'node:test';
import { exportJWK, generateKeyPair, SignJWT } from 'jose';
import { type Answer, openStream, sendBytes } from '../support/http.ts';
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
import { TestClock } from '../support/test-clock.ts';

const hub = await startHub({ after });
const publisher = await hub.publisher();

/** The bytes of the one event that a publication of these fields causes. */
async function eventOf(test: TestContext, form: string): Promise<string> {
  const topic = `urn:topic:${randomUUID()}`;
  const stream = await openStream(test, `${hub.url}?match=${topic}`);
  const { status, body } = await hub.post(`topic=${topic}&${form}`);
  assert.equal(status, 200, body);
  await stream.until(({ text }) => text.endsWith('\n\n'));
  return stream.text.slice(':\n'.length);
}

function assertText(answer: Answer, status: number, text: string): void {
  assert.equal(answer.status, status);
  assert.equal(answer.body, `${text}\n`);
  assert.equal(answer.headers['content-type'], 'text/plain; charset=utf-8');
  assert.equal(answer.headers['x-content-type-options'], 'nosniff');
}

const encode = (fields: Record<string, string>): string => new URLSearchParams(fields).toString();

describe('publish: method, routing, encoding (A.1)', () => {
  it('A-1 A-2: answers 200 with the id and nothing else', async () => {
    const answer = await hub.post('topic=https://example.com/books/1&data=hi&id=urn:a1');
    assert.equal(answer.status, 200);
    assert.equal(answer.body, 'urn:a1');
    assert.equal(answer.headers['content-type'], 'text/plain; charset=utf-8');
  });

  it('A-3: generates an IRI for an update without an id', async () => {
    const { body } = await hub.post('topic=a&data=b');
    assert.match(
      body,
      /^urn:uuid:[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/,
    );
  });

  it('A-4: keeps the publisher’s id in the response and in the event', async (test) => {
    assert.match(await eventOf(test, 'id=custom-id'), /^id: custom-id$/m);
  });

  it('A-5: succeeds with or without subscribers', async () => {
    assert.equal((await hub.post(`topic=urn:nobody:${randomUUID()}`)).status, 200);
  });

  it('A-6: delivers the update even if the publisher disconnects after it has sent its request', async (test) => {
    const stream = await openStream(test, `${hub.url}?match=urn:a6`);
    const body = 'topic=urn:a6&data=left&id=a6';
    const { hostname, port } = new URL(hub.url);
    const socket = connect(Number(port), hostname);
    socket.on('error', () => {});
    socket.end(
      `POST /.well-known/hub HTTP/1.1\r\nHost: ${hostname}:${port}\r\n${publisher.join(': ')}\r\n` +
        `${FORM.join(': ')}\r\nContent-Length: ${body.length}\r\n\r\n${body}`,
      () => socket.destroy(),
    );
    await stream.untilId('a6');
  });

  it('A-6: does the same while the keys for its token are fetched', async (test) => {
    const { publicKey, privateKey } = await generateKeyPair('RS256');
    const jwks = JSON.stringify({ keys: [{ ...(await exportJWK(publicKey)), alg: 'RS256' }] });
    let release: () => void = () => {};
    const released = new Promise<void>((resolve) => (release = resolve));
    let fetched: () => void = () => {};
    const asked = new Promise<void>((resolve) => (fetched = resolve));
    const keys = createServer((_, response) => {
      fetched();
      void released.then(() => response.end(jwks));
    }).listen(0, '127.0.0.1');
    test.after(() => keys.close());
    await once(keys, 'listening');
    const jwksUri = `http://127.0.0.1:${(keys.address() as AddressInfo).port}/`;
    const other = await startHub(test, {
      issuers: [{ id: ISSUER, publisher: { jwksUri, algorithms: ['RS256'] } }],
    });
    const authorization_details = [
      { type: 'urn:hub:authorization-detail', actions: ['publish'], topics: [{ match: '*' }] },
    ];
    const token = await new SignJWT({ iss: ISSUER, aud: other.url, authorization_details })
      .setProtectedHeader({ alg: 'RS256', typ: 'at+jwt' })
      .setExpirationTime('1h')
      .sign(privateKey);
    const stream = await openStream(test, `${other.url}?match=urn:a6`);
    const { hostname, port } = new URL(other.url);
    const body = 'topic=urn:a6&data=left&id=a6';
    // The set of keys is fetched when the hub starts, and the token has to wait for it.
    await asked;
    const socket = connect(Number(port), hostname);
    await new Promise<void>((resolve) =>
      socket.end(
        `POST /.well-known/hub HTTP/1.1\r\nHost: ${hostname}:${port}\r\nAuthorization: Bearer ${token}\r\n` +
          `${FORM.join(': ')}\r\nContent-Length: ${body.length}\r\n\r\n${body}`,
        resolve,
      ),
    );
    socket.destroy();
    // The gateway hears of it before it has the keys.
    await (await openStream(test, `${other.url}?match=urn:other`)).until(() => true);
    release();
    await stream.untilId('a6');
  });

  it('stores nothing for a token that expires before the body has arrived', async (test) => {
    const clock = new TestClock();
    const place = await startHub(test, { clock });
    const claims = { iss: ISSUER, aud: place.url, exp: clock.now() / 1000 + 100 };
    const details = {
      type: 'urn:hub:authorization-detail',
      actions: ['publish'],
      topics: [{ match: '*' }],
    };
    const token = await signToken(PUBLISHER_KEY, { ...claims, authorization_details: [details] });
    const headers = [FORM, ['Authorization', `Bearer ${token}`] as const];
    assert.equal((await place.post('topic=a&id=1', { headers })).status, 200);
    const late = await place.post('topic=a&id=2', {
      headers,
      beforeBody: () => clock.advance(100_000),
    });
    assert.equal(late.status, 401);
    assert.match(late.headers['www-authenticate'] ?? '', /error="invalid_token"/);
    assert.equal(await place.hub.lastEventId(), '1');
  });

  it('A-7: reads no fields from the query of the URL', async () => {
    const answer = await post('', { query: '?topic=a&data=b' });
    assertText(answer, 400, 'Missing "topic" parameter');
  });

  for (const type of [null, 'application/json', 'text/plain', 'multipart/form-data; boundary=x']) {
    it(`A-8: finds no topic in a body of type ${type}`, async () => {
      const headers = type === null ? [] : [['Content-Type', type] as const];
      assertText(await post('topic=a', { headers }), 400, 'Missing "topic" parameter');
    });
  }

  for (const type of [
    'application/x-www-form-urlencoded; charset=utf-8',
    'application/x-www-form-urlencoded;charset="utf-8"',
    'application/x-www-form-urlencoded; charset=utf-8;',
    'application/x-www-form-urlencoded; charset="a;\\"b" ; x=y',
    'Application/X-WWW-Form-URLencoded',
  ]) {
    it(`A-9: reads a form of type ${type}`, async () => {
      assert.equal((await post('topic=a', { headers: [['Content-Type', type]] })).status, 200);
    });
  }

  for (const type of ['text/plain; boundary=', 'nonsense', '/', 'a/b; c']) {
    it(`A-10: refuses the unparsable type ${type}`, async () => {
      const answer = await post('topic=a', { headers: [['Content-Type', type]] });
      assertText(answer, 400, 'Bad Request');
    });
  }

  it('A-11 L14: reads a malformed escape and a semicolon literally (WHATWG URL §5.1)', async (test) => {
    const stream = await openStream(test, `${hub.url}?match=${encodeURIComponent('%zz;x=1')}`);
    await hub.post('topic=%zz;x=1&id=a11');
    await stream.untilId('a11');
  });

  it('A-12: reads "+" as a space and "%2B" as a plus', async (test) => {
    assert.match(await eventOf(test, 'data=a+b%2Bc'), /^data: a b\+c$/m);
  });

  it('A-13 A-14: ignores unknown fields, such as "Topic"', async () => {
    assertText(await hub.post('Topic=x'), 400, 'Missing "topic" parameter');
    assert.equal((await hub.post('topic=x&foo=bar&target=y')).status, 200);
  });

  for (const method of ['PUT', 'PATCH', 'DELETE', 'OPTIONS']) {
    it(`A-15: answers ${method} with 405 and the allowed methods`, async () => {
      const answer = await hub.get('/.well-known/hub', { method });
      assert.equal(answer.status, 405);
      assert.equal(answer.body, '');
      assert.equal(answer.headers.allow, 'GET, HEAD, POST, QUERY');
    });
  }

  it('A-16: answers 405 if no issuer has a publisher key', async (test) => {
    const issuers = [{ id: ISSUER, subscriber: { key: SUBSCRIBER_KEY } }];
    // A Hubfile must name publishers.
    const readOnly = await startHub(test, { issuers }, { mounted: true });
    const answer = await readOnly.post('topic=a');
    assert.equal(answer.status, 405);
    assert.equal(answer.headers.allow, 'GET, HEAD, QUERY');
  });

  for (const path of ['/.well-known/hub/', '/.well-known/hub/x', '/.well-known/hub/debug/']) {
    it(`A-17 L36: answers POST ${path} with 404`, async () => {
      assertText(await hub.get(path, { method: 'POST' }), 404, '404 page not found');
    });
  }

  it('A-17 L41: leaves /.well-known/hubx to the site', async () => {
    const answer = await hub.get('/', { method: 'POST', target: '/.well-known/hubx' });
    assert.deepEqual([answer.status, answer.body], [404, 'the site']);
  });

  it('A-18: never passes other spellings of its path to the site, whose guards do not cover the hub', async () => {
    const answer = await hub.get('/', { method: 'POST', target: '/.well-known/%68ub' });
    assert.equal(answer.status, 401);
    for (const target of ['/.well-known/HUB', '//.well-known/hub', '/.well-known%2fhub']) {
      const other = await hub.get('/', { method: 'POST', target });
      assert.deepEqual([other.status, other.body.includes('the site')], [404, false], target);
    }
  });
});

describe('publish: order of checks (A.2)', () => {
  const tooLong = 'x'.repeat(1024 * 1024 + 1);

  it('A-19 A-21: asks for a token before it checks the body', async () => {
    for (const body of ['topic=%FF', '', tooLong]) {
      const answer = await hub.post(body, { headers: [FORM] });
      assert.equal(answer.status, 401);
      assert.equal(answer.headers['www-authenticate'], bareChallenge(hub));
    }
  });

  it('A-20: refuses an invalid token before it checks the body', async () => {
    const headers = [FORM, ['Authorization', 'Bearer nonsense'] as const];
    const answer = await hub.post('', { headers });
    assert.equal(answer.status, 401);
    assert.match(answer.headers['www-authenticate'] ?? '', /error="invalid_token"/);
  });

  // Each form has the fault of its row and those of all rows below it.
  for (const [fault, form, status, text] of [
    ['the size', `retry=x&${tooLong}`, 413, 'Request Entity Too Large'],
    ['a missing topic', 'retry=x&id=%23', 400, 'Missing "topic" parameter'],
    [
      'the count',
      `${'topic=%01&'.repeat(1001)}retry=x`,
      413,
      'too many topics in update (max 1000)',
    ],
    [
      'characters',
      'topic=%01&retry=x',
      400,
      '"topic" must not contain control or format characters',
    ],
    ['retry', 'topic=a&retry=x&id=%23', 400, 'Invalid "retry" parameter'],
    ['id', 'topic=a&id=+x&data=%FF', 400, '"id" must not begin or end with a space'],
    ['id', 'topic=a&id=x%20&data=%FF', 400, '"id" must not begin or end with a space'],
    ['id', 'topic=a&id=%23&data=%FF', 400, '"id" must not start with "#"'],
    ['data', 'topic=a&data=%FF', 400, '"data" field is not valid UTF-8'],
  ] as const) {
    it(`A-22: reports ${fault} first (${form.slice(0, 30)}) if there are several errors, and checks the grants last`, async () => {
      const headers = [FORM, await hub.publisher('urn:other')];
      assertText(await hub.post(form, { headers }), status, text);
    });
  }

  it('A-23 L7: refuses a reserved topic with 400 whatever the token grants', async () => {
    const headers = [FORM, await hub.publisher('urn:other')];
    for (const topic of ['*', '/.well-known/hub/x']) {
      const answer = await hub.post({ topic }, { headers });
      assert.equal(answer.status, 400);
      assert.match(answer.headers['www-authenticate'] ?? '', /error="invalid_request"/);
    }
    assert.equal((await hub.post('topic=urn:mine', { headers })).status, 403);
  });
});

describe('publish: topic (A.3)', () => {
  it('A-24: needs a topic', async () => {
    const answer = await hub.post('data=hi');
    assertText(answer, 400, 'Missing "topic" parameter');
    assert.match(answer.headers['www-authenticate'] ?? '', /^Bearer error="invalid_request", /);
  });

  it('A-25 A-26: is delivered once as one event, however many of its topics match', async (test) => {
    const stream = await openStream(test, `${hub.url}?match=urn:a25&match=urn:a25b&match=*`);
    const only = await openStream(test, `${hub.url}?match=urn:a25b`);
    await hub.post('topic=urn:a25&topic=urn:a25b&topic=urn:a25&id=a25');
    await hub.post('topic=urn:a25b&id=a25-end');
    for (const one of [stream, only]) {
      await one.untilId('a25-end');
      assert.equal(one.ids.filter((id) => id === 'a25').length, 1);
    }
  });

  it('A-27 L8: accepts 1000 topics and answers 1001 with 413', async () => {
    assert.equal((await hub.post('topic=a&'.repeat(1000))).status, 200);
    assertText(
      await hub.post('topic=a&'.repeat(1001)),
      413,
      'too many topics in update (max 1000)',
    );
  });

  it('A-28 L8: accepts a topic of 4096 bytes and answers 4097 with 413', async () => {
    const topic = 'é'.repeat(2048);
    assert.equal((await hub.post({ topic })).status, 200);
    assertText(await hub.post({ topic: `${topic}x` }), 413, 'topic too long (max 4096 bytes)');
  });

  for (const topic of [
    'chat-room-1',
    'urn:isbn:1',
    'a topic with spaces',
    'naïve ☃ 日本',
    '\u{1F600}',
  ]) {
    it(`A-29: accepts ${topic}, which need not be a URL`, async () => {
      assert.equal((await hub.post({ topic })).status, 200);
    });
  }

  it('A-30: refuses the empty topic, which is the hub itself', async () => {
    assert.equal((await hub.post('topic=')).status, 400);
  });

  it('A-31: refuses the wildcard, also as an alternate topic', async () => {
    for (const form of ['topic=*', 'topic=a&topic=*']) {
      const { status, body } = await hub.post(form);
      assert.equal(status, 400);
      assert.match(body, /"\*"/);
    }
  });

  for (const [numbers, character] of forbiddenCharacters()) {
    const code = character.codePointAt(0)?.toString(16).toUpperCase().padStart(4, '0');
    it(`${numbers}: refuses U+${code} in topic, alternate topic, id and type`, async () => {
      for (const fields of [
        { topic: `a${character}` },
        { topic: character },
        { topic: 'a', id: `a${character}b` },
        { topic: 'a', type: `${character}a` },
      ]) {
        assert.equal((await hub.post(fields)).status, 400, JSON.stringify(fields));
      }
      const alternate = await hub.post(`topic=a&topic=${encodeURIComponent(character)}`);
      assert.equal(alternate.status, 400);
    });
  }

  it('A-34: refuses bytes that are not UTF-8, but accepts U+FFFD itself', async () => {
    for (const bytes of ['%FF', 'a%C3', '%ED%A0%80', '%C0%AF', '%F4%90%80%80']) {
      assertText(await hub.post(`topic=${bytes}`), 400, '"topic" field is not valid UTF-8');
    }
    const raw = Buffer.concat([Buffer.from('topic='), Buffer.from([0xff])]);
    assert.equal((await hub.post(raw)).status, 400);
    assert.equal((await hub.post('topic=%EF%BF%BD')).status, 200);
  });

  it('A-35: accepts right-to-left letters', async () => {
    for (const topic of ['سلام', 'שלום']) assert.equal((await hub.post({ topic })).status, 200);
  });

  it('A-36: refuses the whole publication if one alternate topic is invalid', async (test) => {
    const stream = await openStream(test, `${hub.url}?match=urn:a36`);
    for (const alternate of ['%FF', '%00', 'hub', '']) {
      assert.equal((await hub.post(`topic=urn:a36&topic=${alternate}&id=no`)).status, 400);
    }
    await hub.post('topic=urn:a36&id=yes');
    assert.deepEqual(await stream.untilId('yes'), ['yes']);
  });

  it('A-37: refuses NUL before it checks the grants', async () => {
    const headers = [FORM, await hub.publisher('a')];
    assert.equal((await hub.post('topic=a%00b', { headers })).status, 400);
  });
});

const RESERVED: readonly (readonly [numbers: string, topic: string])[] = [
  ['A-38', '/.well-known/hub'],
  ['A-39', '/.well-known/hub/subscriptions/foo'],
  ['A-40', 'https://example.com/.well-known/hub/subscriptions/x'],
  ['A-41', 'http://other.example/.well-known/hub/x'],
  ['A-42', 'hub/subscriptions/foo'],
  ['A-43', 'https://example.com/.well-known/%68ub/subscriptions/x'],
  ['A-43', 'https://example.com/.%77%65ll%2Dknown/hub'],
  ['A-43', 'https://example.com/.%77%65ll%2dknown/hub'],
  ['A-44', '/.well-known/hu%62/x'],
  ['A-45', '/%2e%77ell-known/hub'],
  ['A-45', '/%2E%77ell-known/hub'],
  ['A-46', 'hub'],
  ['A-46', './hub'],
  ['A-47', '/.well-known/hub?x'],
  ['A-47', '/.well-known/hub#x'],
  ['A-47', '/.well-known/hub//'],
  ['A-48', 'foo://bar/.well-known/hub'],
  ['A-48', 'custom:/.well-known/hub/x'],
  ['A-49', '/.well-known/hub/../hub/x'],
  ['A-49', '/.well-known/./hub'],
  ['A-49', '/x/%2e%2e/.well-known/hub'],
  ['A-49', '/x/%2E./.well-known/hub'],
  ['A-50', 'https://example.com\\.well-known\\hub\\subscriptions\\x'],
  ['A-51', '//anyhost/.well-known/hub'],
  ['A-52', '?q'],
  ['A-52', '#f'],
  ['A-53', 'https:hub/subscriptions/exact/x/y'],
  ['A-53', 'https:'],
  ['A-54', ' /.well-known/hub'],
  ['A-54', '/.well-known/hub  '],
];

describe('publish: reserved namespace (A.4)', () => {
  for (const [numbers, topic] of RESERVED) {
    it(`${numbers}: refuses ${JSON.stringify(topic)}, alone and as an alternate topic`, async () => {
      const answer = await hub.post({ topic });
      assertText(answer, 400, '"topic" is in the namespace reserved for the hub');
      const alternate = await hub.post(`topic=a&${encode({ topic })}`);
      assert.equal(alternate.status, 400);
    });
  }

  it('A-53: resolves topics against the configured identity', async (test) => {
    const plain = await startHub(test, { resourceIdentifier: 'http://h.example/.well-known/hub' });
    for (const topic of ['https:hub/subscriptions/exact/x/y', 'https:']) {
      assert.equal((await plain.post({ topic })).status, 200, topic);
    }
    for (const topic of ['http:hub/subscriptions/exact/x/y', 'http:', 'hub']) {
      assert.equal((await plain.post({ topic })).status, 400, topic);
    }
  });

  for (const topic of [
    '/.well-known/hubXXX',
    '/.well-known/hub-dashboard',
    'https://example.com/foo/.well-known/hub/bar',
    'subscriptions/foo',
    'bar',
    '../hub/x',
    'urn:example:hub',
    '/.WELL-KNOWN/HUB',
    '/.well-known%2Fhub',
    '/.well-known/hub%2Fx',
    '/.well-known//hub',
    '/.well-known/hub;x',
  ]) {
    it(`A-55: accepts ${topic}`, async () => {
      assert.equal((await hub.post({ topic })).status, 200);
    });
  }

  it('A-56: accepts topics that no URL parser can read', async () => {
    assert.equal((await hub.post({ topic: 'http://[::1' })).status, 200);
  });

  it('A-57: decides by the resolved path only, because there are no URI templates', async () => {
    const topic = '/.well-known/hub/subscriptions/../../https://example.com';
    assert.equal((await hub.post({ topic })).status, 200);
    const answer = await hub.get(`/.well-known/hub?topic=${encodeURIComponent('a/{b}')}`);
    assert.equal(answer.status, 400);
  });
});

describe('publish: data (A.5)', () => {
  for (const [numbers, form, lines] of [
    ['A-58', '', 'data: \n'],
    ['A-59', 'data=', 'data: \n'],
    ['A-60', 'data=first&data=second', 'data: first\n'],
    [
      'A-61',
      'data=several%0Alines%0Dwith%0D%0Aeol',
      'data: several\ndata: lines\ndata: with\ndata: eol\n',
    ],
    ['A-61', 'data=a%0A%0Db', 'data: a\ndata: \ndata: b\n'],
    ['A-62', 'data=x%0A', 'data: x\ndata: \n'],
    ['A-63', 'data=a%0Aid:%20evil%0Aevent:%20evil', 'data: a\ndata: id: evil\ndata: event: evil\n'],
    ['A-64', 'data=%20%20two+spaces', 'data:   two spaces\n'],
    ['A-64', 'data=:colon', 'data: :colon\n'],
    ['A-66', 'data=%00%01%7F%C2%85', 'data: \0\u0001\u007F\u0085\n'],
    ['A-67', encode({ data: '{"a":"é ☃"}' }), 'data: {"a":"é ☃"}\n'],
    [
      'A-67',
      encode({ data: 'eyJhbGciOiJkaXIifQ..48V1_ALb6US04U3b.5eym8.XF' }),
      'data: eyJhbGciOiJkaXIifQ..48V1_ALb6US04U3b.5eym8.XF\n',
    ],
  ] as const) {
    it(`${numbers}: ${JSON.stringify(form)} arrives as ${JSON.stringify(lines)}`, async (test) => {
      assert.equal(await eventOf(test, `id=x&${form}`), `id: x\n${lines}\n`);
    });
  }

  it('A-65: refuses data that is not UTF-8', async () => {
    assertText(await hub.post('topic=a&data=%FF'), 400, '"data" field is not valid UTF-8');
  });
});

describe('publish: private (A.6)', () => {
  for (const [numbers, form] of [
    ['A-68', 'private=on'],
    ['A-69', 'private='],
    ['A-69', 'private=off'],
    ['A-69', 'private=0'],
    ['A-69', 'private=false'],
    ['A-69', 'private'],
    ['A-69', 'private=%FF'],
  ]) {
    it(`${numbers} L13: ${form} hides the update from a subscriber without a token`, async (test) => {
      const topic = `urn:topic:${randomUUID()}`;
      const anonymous = await openStream(test, `${hub.url}?match=${topic}`);
      const headers = [await hub.subscriber(topic)];
      const granted = await openStream(test, `${hub.url}?match=${topic}`, { headers });
      await hub.post(`topic=${topic}&id=secret&${form}`);
      await hub.post(`topic=${topic}&id=public`);
      assert.deepEqual(await granted.untilId('public'), ['secret', 'public']);
      assert.deepEqual(await anonymous.untilId('public'), ['public']);
    });
  }

  it('A-70 A-71: without the field, or with "Private", the update is public', async (test) => {
    assert.match(await eventOf(test, 'id=1'), /^id: 1$/m);
    assert.match(await eventOf(test, 'id=2&Private=on'), /^id: 2$/m);
  });
});

describe('publish: id (A.7)', () => {
  it('A-72: treats an empty id as missing', async () => {
    assert.match((await hub.post('topic=a&id=')).body, /^urn:uuid:/);
  });

  it('A-73 A-74: refuses "#…" and "earliest"', async () => {
    for (const id of ['%23foo', '%23', 'earliest']) {
      assert.equal((await hub.post(`topic=a&id=${id}`)).status, 400, id);
    }
    assert.equal((await hub.post('topic=a&id=Earliest')).body, 'Earliest');
    assert.equal((await hub.post('topic=a&id=a%23')).body, 'a#');
  });

  it('A-75: refuses an id that is not UTF-8', async () => {
    assertText(await hub.post('topic=a&id=%FF'), 400, '"id" field is not valid UTF-8');
  });

  it('A-76 L8: accepts an id of 1024 bytes and answers 1025 with 413', async () => {
    const id = 'é'.repeat(512);
    assert.equal((await hub.post({ topic: 'a', id })).body, id);
    assertText(await hub.post({ topic: 'a', id: `${id}x` }), 413, 'id too long (max 1024 bytes)');
  });

  for (const id of ['https://example.com/1', 'with space', '"quoted"', 'schön ☃']) {
    it(`A-77: accepts the id ${id}`, async (test) => {
      assert.equal(await eventOf(test, encode({ id })), `id: ${id}\ndata: \n\n`);
    });
  }

  it('A-78 A-79: accepts an id that was used before, and uses the first of two', async () => {
    assert.equal((await hub.post('topic=a&id=again&id=other')).body, 'again');
    assert.equal((await hub.post('topic=a&id=again')).body, 'again');
  });
});

describe('publish: type and retry (A.8, A.9)', () => {
  for (const [numbers, form, head] of [
    ['A-80', 'type=message', 'event: message\n'],
    ['A-81', 'type=', ''],
    ['A-81', 'foo=', ''],
    ['A-83', 'type=Hub', 'event: Hub\n'],
    ['A-83', 'type=hubs', 'event: hubs\n'],
    ['A-84', 'retry=3000', 'retry: 3000\n'],
    ['A-86', 'retry=', ''],
    ['A-87 L10', 'retry=0', ''],
    ['A-87 L10', 'retry=000', ''],
    ['A-88', 'retry=007', 'retry: 7\n'],
    ['A-89', 'retry=18446744073709551615', 'retry: 18446744073709551615\n'],
  ] as const) {
    it(`${numbers}: ${form} gives ${JSON.stringify(head)}`, async (test) => {
      assert.equal(await eventOf(test, `id=x&${form}`), `${head}id: x\ndata: \n\n`);
    });
  }

  it('A-82: refuses a type that is not UTF-8', async () => {
    assertText(await hub.post('topic=a&type=%FF'), 400, '"type" field is not valid UTF-8');
  });

  it('A-83: refuses the reserved type', async () => {
    assertText(await hub.post('topic=a&type=hub'), 400, '"type" must not be "hub"');
  });

  for (const [numbers, retry] of [
    ['A-85', 'invalid'],
    ['A-85', '1.5'],
    ['A-85', '-1'],
    ['A-85', '+1'],
    ['A-85', ' 1'],
    ['A-85', '1e3'],
    ['A-85', '0x10'],
    ['A-85', '１'],
    ['A-89', '18446744073709551616'],
    ['A-89', '9'.repeat(400)],
  ] as const) {
    it(`${numbers}: refuses retry=${retry.slice(0, 30)}`, async () => {
      assertText(await hub.post({ topic: 'a', retry }), 400, 'Invalid "retry" parameter');
    });
  }
});

describe('publish: limits and failures (A.10)', () => {
  const form = (bytes: number): string => 'topic=a&data='.padEnd(bytes, 'x');

  it('A-90: accepts a body of 1 MiB, and answers one more byte with 413', async () => {
    assert.equal((await hub.post(form(1024 * 1024))).status, 200);
    assertText(await hub.post(form(1024 * 1024 + 1)), 413, 'Request Entity Too Large');
  });

  it('A-91: counts the bytes of a chunked body while it reads them', async (test) => {
    const small = await startHub(test, { maxRequestBodySize: 100 });
    const chunked: Header = ['Transfer-Encoding', 'chunked'];
    const headers = [FORM, await small.publisher(), chunked];
    assert.equal((await small.post(form(100), { headers })).status, 200);
    assertText(await small.post(form(101), { headers }), 413, 'Request Entity Too Large');
  });

  it('A-92: accepts larger bodies with the limit 0', async (test) => {
    const open = await startHub(test, { maxRequestBodySize: 0 });
    assert.equal((await open.post(form(1024 * 1024 + 1))).status, 200);
  });

  it('A-93 L37: answers 500 and returns no id if the update was not stored', async (test) => {
    // A program that is closed answers nothing.
    const closed = await startHub(test, {}, { mounted: true });
    await closed.hub.close();
    assertText(await closed.post('topic=a&id=lost'), 500, 'Internal Server Error');
  });

  it('A-94: does not limit the rate', async () => {
    const answers = await Promise.all(Array.from({ length: 100 }, () => hub.post('topic=a')));
    assert.ok(answers.every(({ status }) => status === 200));
  });
});

describe('publish: with a cookie (A.11)', async () => {
  const site = await startHub(
    { after },
    { publishOrigins: ['https://Site.example', 'https://*.example.com'] },
  );
  const any = await startHub({ after }, { publishOrigins: ['*'] });
  const opaque = await startHub({ after }, { publishOrigins: ['null'] });

  const origin = (value: string): Header => ['Origin', value];
  const referer = (value: string): Header => ['Referer', value];

  for (const [numbers, place, fields, status] of [
    ['A-95', site, [], 400],
    ['A-96', site, [origin('https://evil.example')], 400],
    ['A-97', site, [origin('https://site.example')], 200],
    ['A-98', site, [referer('https://site.example/page?x')], 200],
    ['A-98', site, [referer('https://evil.example/https://site.example')], 400],
    ['A-99', site, [origin('https://site.example'), referer('https://evil.example/')], 200],
    ['A-99', site, [origin('https://evil.example'), referer('https://site.example/')], 400],
    ['A-100', site, [referer('http://192.168.0.%31/')], 400],
    ['A-101', hub, [origin('https://site.example')], 400],
    ['A-101', hub, [], 400],
    ['A-102', any, [origin('https://whoever.example')], 200],
    ['A-102', any, [referer('https://whoever.example/x')], 200],
    ['A-102', any, [], 400],
    ['A-103', site, [origin('https://a.example.com')], 200],
    ['A-103', site, [origin('https://a.b.example.com')], 200],
    ['A-103', site, [origin('https://evilexample.com')], 400],
    ['A-103', site, [origin('http://a.example.com')], 400],
    ['A-104', site, [origin('HTTPS://SITE.EXAMPLE')], 400],
    ['A-105', site, [origin('null')], 400],
    ['A-105', opaque, [origin('null')], 200],
    ['A-105', any, [origin('null')], 200],
  ] as const) {
    const sent = fields.map((field) => field.join(': ')).join(', ') || 'neither field';
    it(`${numbers}: answers ${status} for ${sent}`, async () => {
      const headers = [FORM, await publisherCookie(place), ...fields];
      const answer = await place.post('topic=a', { headers });
      assert.equal(answer.status, status);
      if (status === 200) return;
      assertText(answer, 400, 'Bad Request');
      assert.match(answer.headers['www-authenticate'] ?? '', /^Bearer error="invalid_request", /);
    });
  }

  it('A-95: checks the origin before the token', async () => {
    const headers = [FORM, ['Cookie', '__Secure-hub_access_token=nonsense'] as const];
    assert.equal((await hub.post('topic=a', { headers })).status, 400);
  });

  it('A-97: if the origin is listed, the token decides', async () => {
    const cookie = ['Cookie', '__Secure-hub_access_token=nonsense'] as const;
    const bad = [FORM, cookie, origin('https://site.example')];
    assert.equal((await site.post('topic=a', { headers: bad })).status, 401);
    const narrow = [FORM, await publisherCookie(site, 'b'), origin('https://site.example')];
    assert.equal((await site.post('topic=a', { headers: narrow })).status, 403);
  });

  it('A-106: needs no origin if the token is in the header', async () => {
    const headers = [FORM, await site.publisher(), origin('https://evil.example')];
    assert.equal((await site.post('topic=a', { headers })).status, 200);
    const both = [FORM, await site.publisher(), await publisherCookie(site)];
    assert.equal((await site.post('topic=a', { headers: both })).status, 200);
  });

  it('A-107: requires an origin with POST only', async (test) => {
    const [, value] = await hub.subscriber('urn:a107');
    const cookie = [
      'Cookie',
      `__Secure-hub_access_token=${value.slice('Bearer '.length)}`,
    ] as const;
    const stream = await openStream(test, `${hub.url}?match=urn:a107`, { headers: [cookie] });
    assert.equal(stream.status, 200);
    const query = await openStream(test, hub.url, {
      method: 'QUERY',
      headers: [cookie, FORM],
      body: 'match=urn:a107',
    });
    assert.equal(query.status, 200);
    const head = await hub.get('/.well-known/hub?match=a', { method: 'HEAD', headers: [cookie] });
    assert.equal(head.status, 200);
    await hub.post('topic=urn:a107&private=on&id=a107');
    await stream.untilId('a107');
    await query.untilId('a107');
  });
});

it('A-19: keeps the connection open after a refused body, and does not read the body as a request', async () => {
  const { host } = new URL(hub.url);
  const body = 'topic=a';
  const refused =
    `POST /.well-known/hub HTTP/1.1\r\nHost: ${host}\r\nContent-Length: ${body.length}\r\n` +
    `${FORM.join(': ')}\r\n\r\n${body}`;
  const last = `DELETE /.well-known/hub HTTP/1.1\r\nHost: ${host}\r\nConnection: close\r\n\r\n`;
  const text = await sendBytes(hub.origin, refused + last);
  assert.deepEqual(
    [...text.matchAll(/^HTTP\/1\.1 (\d+)/gm)].map(([, status]) => status),
    ['401', '405'],
  );
});

async function post(
  body: string,
  { query = '', headers = [FORM] as readonly Header[] } = {},
): Promise<Answer> {
  return hub.get(`/.well-known/hub${query}`, {
    method: 'POST',
    body,
    headers: [publisher, ...headers],
  });
}

async function publisherCookie(place: TestHub, ...topics: string[]): Promise<Header> {
  const [, value] = await place.publisher(...topics);
  return ['Cookie', `__Secure-hub_access_token=${value.slice('Bearer '.length)}`];
}

function bareChallenge({ origin }: TestHub): string {
  return `Bearer resource_metadata="${origin}/.well-known/oauth-protected-resource/.well-known/hub"`;
}

function* forbiddenCharacters(): Generator<readonly [numbers: string, character: string]> {
  for (const code of [0x00, 0x09, 0x0a, 0x0d, 0x1b, 0x1f, 0x7f, 0x80, 0x85, 0x9f]) {
    yield ['A-32 A-75 A-82', String.fromCodePoint(code)];
  }
  for (const code of [0xad, 0x200b, 0x200e, 0x202e, 0x2066, 0xfeff, 0xe0001, 0xe007f]) {
    yield ['A-33 A-75 A-82', String.fromCodePoint(code)];
  }
}
