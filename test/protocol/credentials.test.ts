import assert from 'node:assert/strict';
import { generateKeyPairSync } from 'node:crypto';
import { connect } from 'node:net';
import { describe, it, type TestContext } from 'node:test';
import { SignJWT } from 'jose';
import { freePort } from '../support/free-port.ts';
import type { Answer, RawRequest } from '../support/http.ts';
import {
  FORM,
  ISSUER,
  PUBLISHER_KEY,
  signToken,
  startHub,
  SUBSCRIBER_KEY,
  type TestHub,
} from '../support/hub-server.ts';

const COOKIE = '__Secure-hub_access_token';
/** Of the right length and shape, and accepted by nobody. */
const GARBAGE = 'eyJhbGciOiJIUzI1NiIsInR5cCI6ImF0K2p3dCJ9.e30.c2lnbmF0dXJlLXRoYXQtaXMtbm90LW9uZQ';

describe('presenting a token (seed §5.2)', () => {
  it('C-218 C-219: accepts the Bearer scheme in any letter case', async (test) => {
    const hub = await startHub(test);
    const [, value] = await hub.publisher();
    for (const scheme of ['Bearer', 'bearer', 'BEARER', 'BeArEr']) {
      const answer = await publish(hub, [['Authorization', value.replace('Bearer', scheme)]]);
      assert.equal(answer.status, 200, scheme);
    }
  });

  it('C-220: expects one space after the scheme; a second is part of the token, a tab is malformed', async (test) => {
    const hub = await startHub(test);
    const [, value] = await hub.publisher();
    const two = await publish(hub, [['Authorization', value.replace(' ', '  ')]]);
    assertChallenge(hub, two, 401, 'invalid_token');
    const tab = await publish(hub, [['Authorization', value.replace(' ', '\t')]]);
    assertChallenge(hub, tab, 400, 'invalid_request');
  });

  it('C-221 C-222: refuses another scheme, a bare token, an empty field and a lone Bearer', async (test) => {
    const hub = await startHub(test);
    const [, value] = await hub.publisher();
    const token = value.slice(7);
    for (const field of [`Basic ${token}`, `Greater ${token}`, token, '', 'Bearer', 'Bearer ']) {
      const answer = await publish(hub, [['Authorization', field]]);
      assertChallenge(hub, answer, 400, 'invalid_request');
    }
  });

  it('C-223 L5: answers 401 to any single token that is not accepted, however short', async (test) => {
    const hub = await startHub(test);
    for (const token of ['x', GARBAGE]) {
      const answer = await publish(hub, [['Authorization', `Bearer ${token}`]]);
      assertChallenge(hub, answer, 401, 'invalid_token');
    }
  });

  it('C-308: answers 503 while the keys of the issuer cannot be fetched, because the token may be valid', async (test) => {
    const key = { jwksUri: `http://127.0.0.1:${await freePort()}/jwks` };
    const issuers = [{ id: ISSUER, publisher: key, subscriber: key }];
    const hub = await startHub(test, { issuers }, { mounted: true });
    const token = await new SignJWT({})
      .setProtectedHeader({ alg: 'ES256', typ: 'at+jwt', kid: 'a' })
      .setIssuer(ISSUER)
      .sign(generateKeyPairSync('ec', { namedCurve: 'P-256' }).privateKey);
    const answer = await publish(hub, [['Authorization', `Bearer ${token}`]]);
    assert.equal(answer.status, 503);
    assert.equal(answer.headers['retry-after'], '1');
    assert.equal(answer.headers['www-authenticate'], undefined);
    const line = hub.log.find(({ message }) => message === 'The hub refused a request');
    assert.equal(line?.fields['check'], 'keys');
    assert.match(String(line?.fields['found']), /ECONNREFUSED/);
  });

  it('C-224: refuses two Authorization fields, even identical ones', async (test) => {
    const hub = await startHub(test);
    const header = await hub.publisher();
    const answer = await publish(hub, [header, header]);
    assertChallenge(hub, answer, 400, 'invalid_request');
  });

  it('C-225: the header takes precedence over the cookie, even if only the cookie is valid', async (test) => {
    const hub = await startHub(test, { publishOrigins: ['*'] });
    const [, value] = await hub.publisher();
    const cookie = ['Cookie', `${COOKIE}=${value.slice(7)}`] as const;
    const answer = await publish(hub, [['Authorization', `Bearer ${GARBAGE}`], cookie]);
    assertChallenge(hub, answer, 401, 'invalid_token');
  });

  it('C-226: reads the cookie on GET, HEAD and QUERY, and on POST after the origin check', async (test) => {
    const hub = await startHub(test, { anonymous: false, publishOrigins: ['https://a.example'] });
    const [, read] = await hub.subscriber('*');
    const cookie = ['Cookie', `other=1; ${COOKIE}=${read.slice(7)}`] as const;
    const stream = await hub.subscribe('match=a', { headers: [cookie] });
    assert.equal(stream.status, 200);
    assert.equal(
      (await hub.get('/.well-known/hub?match=a', { method: 'HEAD', headers: [cookie] })).status,
      200,
    );
    const query = await hub.subscribe('', {
      method: 'QUERY',
      headers: [cookie, FORM],
      body: 'match=a',
    });
    assert.equal(query.status, 200);
    const [, write] = await hub.publisher();
    const posted = await publish(hub, [
      ['Cookie', `${COOKIE}=${write.slice(7)}`],
      ['Origin', 'https://a.example'],
    ]);
    assert.equal(posted.status, 200);
  });

  it('reads a cookie with quotes, but not one with spaces around its = (RFC 6265 §4.1.1)', async (test) => {
    const hub = await startHub(test, { anonymous: false });
    const [, read] = await hub.subscriber('*');
    const token = read.slice(7);
    for (const [field, status] of [
      [`${COOKIE}="${token}"`, 200],
      [`a="b; c"; ${COOKIE}="${token}"; d=1`, 200],
      [`${COOKIE} =${token}`, 401],
      [`${COOKIE}= ${token}`, 401],
      [`${COOKIE} = "${token}"`, 401],
      [`${COOKIE} = ${token}; ${COOKIE}=${token}`, 200],
      [`${COOKIE}="${token}`, 401],
    ] as const) {
      const headers = [['Cookie', field]] as const;
      const answer = await hub.get('/.well-known/hub?match=a', { method: 'HEAD', headers });
      assert.equal(answer.status, status, field.replace(token, 'TOKEN'));
    }
  });

  it('C-227: a configured cookie name replaces the default one', async (test) => {
    const hub = await startHub(test, { anonymous: false, cookieName: 'hub_token' });
    const [, value] = await hub.subscriber('*');
    const named = await hub.subscribe('match=a', {
      headers: [['Cookie', `hub_token=${value.slice(7)}`]],
    });
    assert.equal(named.status, 200);
    const other = await hub.get('/.well-known/hub?match=a', {
      headers: [['Cookie', `${COOKIE}=${value.slice(7)}`]],
    });
    assert.equal(other.status, 401);
  });

  it('C-228 C-229: the first cookie of that name counts, and an empty one is an invalid token', async (test) => {
    const hub = await startHub(test);
    const [, value] = await hub.subscriber('*');
    for (const first of ['', 'garbage', GARBAGE]) {
      const answer = await hub.get('/.well-known/hub?match=a', {
        headers: [['Cookie', `${COOKIE}=${first}; ${COOKIE}=${value.slice(7)}`]],
      });
      assertChallenge(hub, answer, 401, 'invalid_token');
    }
  });

  it('C-230 C-231 C-232 C-233: looks for a token nowhere else', async (test) => {
    const hub = await startHub(test);
    const [, value] = await hub.publisher();
    const token = value.slice(7);
    for (const query of [`access_token=${token}`, `authorization=${token}`]) {
      const answer = await hub.get(`/.well-known/hub?${query}`, {
        method: 'POST',
        headers: [FORM],
        body: 'topic=a',
      });
      assertBareChallenge(hub, answer);
    }
    const legacy = await publish(hub, [['Cookie', `hubAuthorization=${token}`]]);
    assertBareChallenge(hub, legacy);
    const inBody = await publish(hub, [], `topic=a&access_token=${token}`);
    assertBareChallenge(hub, inBody);
  });

  it('C-234 C-235: serves plain HTTP and never sets a cookie', async (test) => {
    const hub = await startHub(test);
    assert.match(hub.origin, /^http:/);
    const published = await hub.post('topic=a');
    assert.equal(published.status, 200);
    const stream = await hub.subscribe('match=a');
    assert.equal(published.headers['set-cookie'], undefined);
    assert.equal(stream.headers['set-cookie'], undefined);
  });

  it('C-236: ignores a cookie that contains forbidden bytes', async (test) => {
    const hub = await startHub(test);
    const stream = await hub.subscribe('match=a', { headers: [['Cookie', `${COOKIE}=a"b\\c`]] });
    assert.equal(stream.status, 200);
  });

  it('C-240: responds in the same way to all refused tokens', async (test) => {
    const hub = await startHub(test);
    const past = await signToken(PUBLISHER_KEY, { iss: ISSUER, aud: hub.url, exp: 1 });
    const wrongKey = await signToken(SUBSCRIBER_KEY, { iss: ISSUER, aud: hub.url });
    const wrongAudience = await signToken(PUBLISHER_KEY, { iss: ISSUER, aud: 'https://x.example' });
    const answers: Answer[] = [];
    for (const token of [past, wrongKey, wrongAudience, GARBAGE, 'x'.repeat(65537)]) {
      answers.push(await publish(hub, [['Authorization', `Bearer ${token}`]]));
    }
    const seen = answers.map(({ status, body, headers }) => ({
      status,
      body,
      headers: { ...headers, date: '', 'x-request-id': '' },
    }));
    const [first] = seen;
    for (const one of seen) assert.deepEqual(one, first);
    assert.equal(first?.body, 'Unauthorized\n');
  });

  it('logs a malformed presentation only the first, second, fourth … time', async (test) => {
    const hub = await startHub(test, {}, { mounted: true });
    const headers = [['Authorization', 'Basic x']] as const;
    for (let each = 0; each < 10; each += 1) await hub.get('/.well-known/hub?match=a', { headers });
    const lines = hub.log.filter(({ fields }) => fields['check'] === 'presentation');
    assert.deepEqual(
      lines.map(({ fields }) => fields['times']),
      [undefined, 2, 4, 8],
    );
  });

  it('logs the reason for the operator but not for the client, without the token', async (test) => {
    const hub = await startHub(test);
    const token = await signToken(PUBLISHER_KEY, { iss: ISSUER, aud: 'https://other.example/hub' });
    await publish(hub, [['Authorization', `Bearer ${token}`]]);
    const line = hub.log.find(({ fields }) => fields['check'] === 'aud');
    assert.ok(line);
    assert.match(String(line.fields['expected']), new RegExp(hub.url));
    assert.match(String(line.fields['found']), /other\.example/);
    assert.ok(line.fields['fix']);
    assert.equal(JSON.stringify(hub.log).includes(token), false);
  });

  it('logs the topics of a refused update, in a line of limited length', async (test) => {
    const hub = await startHub(test, {}, { mounted: true });
    const header = await hub.publisher('a');
    const topics = ['b', 'long'.repeat(200), 'c'].map((topic) => `topic=${topic}`);
    for (const body of ['topic=b&topic=c', topics.join('&')]) {
      assert.equal((await publish(hub, [header], body)).status, 403);
    }
    const lines = hub.log.filter(({ fields }) => fields['check'] === 'authorization_details');
    const [short, long] = lines.map(({ fields }) => String(fields['expected']));
    assert.equal(short, 'a publish grant on each of ["b","c"]');
    assert.ok(long?.startsWith('a publish grant on each of ["b","longlong') && long.length < 300);
  });
});

describe('the audience of each request (seed §2.1)', () => {
  it('C-268 C-269: is the URL that the client contacted, including the port', async (test) => {
    const hub = await startHub(test);
    const port = new URL(hub.origin).port;
    const host = ['Host', `hub.example:${port}`] as const;
    const aud = `http://hub.example:${port}/.well-known/hub`;
    const token = await signToken(PUBLISHER_KEY, { iss: ISSUER, aud, ...everything('publish') });
    const header = ['Authorization', `Bearer ${token}`] as const;
    assert.equal((await publish(hub, [host, header])).status, 200);
    assert.equal((await publish(hub, [header])).status, 401);
    const written = `http://hub.example:80/.well-known/hub`;
    const explicit = await signToken(PUBLISHER_KEY, {
      iss: ISSUER,
      aud: written,
      ...everything('publish'),
    });
    const answer = await publish(hub, [
      ['Host', 'hub.example:80'],
      ['Authorization', `Bearer ${explicit}`],
    ]);
    assert.equal(answer.status, 200);
  });

  it('C-270: is the pinned resource identifier, whatever the host', async (test) => {
    const resourceIdentifier = 'https://hub.example/.well-known/hub';
    const hub = await startHub(test, { resourceIdentifier });
    const header = await hub.publisher();
    assert.equal((await publish(hub, [['Host', 'anything.example'], header])).status, 200);
    const derived = await signToken(PUBLISHER_KEY, {
      iss: ISSUER,
      aud: hub.url,
      ...everything('publish'),
    });
    assert.equal((await publish(hub, [['Authorization', `Bearer ${derived}`]])).status, 401);
  });

  it('C-271 F-424: a request without a Host has no identity and is refused as malformed', async (test) => {
    const hub = await startHub(test);
    const text = await raw(test, hub, 'GET /.well-known/hub?match=a HTTP/1.0\r\n\r\n');
    assert.match(text, /^HTTP\/1\.[01] 400 Bad Request\r\n/);
    assert.match(text, /Bad Request\n$/);
  });
});

describe('grants over HTTP (seed §5.4, §5.5)', () => {
  it('D-317 D-318 D-319 D-320 D-321: every topic of an update needs a publish grant, public or not', async (test) => {
    const hub = await startHub(test);
    const header = await hub.publisher('a', {
      match: 'https://example.com/:id',
      match_type: 'urlpattern',
    });
    const covered = 'topic=a&topic=https://example.com/1';
    assert.equal((await publish(hub, [header], covered)).status, 200);
    for (const body of ['topic=b', 'topic=a&topic=b', 'topic=b&private=on', 'topic=b&topic=a']) {
      const answer = await publish(hub, [header], body);
      assertChallenge(hub, answer, 403, 'insufficient_scope');
      assert.equal(answer.body, 'Forbidden\n');
    }
    const history = await hub.subscribe('match=*&last_event_id=earliest');
    const last = await publish(hub, [header], 'topic=a&id=last');
    assert.deepEqual(
      (await history.untilId(last.body)).length,
      2,
      'nothing refused was dispatched',
    );
  });

  it('D-330 D-331 D-332 D-338: both matchers and grants limit what is delivered', async (test) => {
    const hub = await startHub(test);
    const granted = await hub.subscribe('match=secret', {
      headers: [await hub.subscriber('secret')],
    });
    const elsewhere = await hub.subscribe('match=other', { headers: [await hub.subscriber('*')] });
    const broad = await hub.subscribe('match=*', { headers: [await hub.subscriber('other')] });
    const anonymous = await hub.subscribe('match=*');
    await hub.post('topic=secret&private=on&id=private');
    await hub.post('topic=secret&topic=other&id=end');
    assert.deepEqual(await granted.untilId('end'), ['private', 'end']);
    for (const stream of [elsewhere, broad, anonymous]) {
      assert.deepEqual(await stream.untilId('end'), ['end']);
    }
  });

  it('D-336 D-337 G-426: an alternate topic selects an update; a publish grant does not allow reading', async (test) => {
    const hub = await startHub(test);
    const stream = await hub.subscribe('match=alternate');
    const details = {
      type: 'urn:hub:authorization-detail',
      actions: ['publish'],
      topics: [{ match: '*' }],
    };
    const token = await signToken(SUBSCRIBER_KEY, {
      iss: ISSUER,
      aud: hub.url,
      authorization_details: [details],
    });
    const publisher = await hub.subscribe('match=*', {
      headers: [['Authorization', `Bearer ${token}`]],
    });
    await hub.post('topic=canonical&topic=alternate&private=on&id=hidden');
    await hub.post('topic=canonical&topic=alternate&id=shown');
    assert.deepEqual(await stream.untilId('shown'), ['shown']);
    assert.deepEqual(await publisher.untilId('shown'), ['shown']);
  });

  it('D-339 D-347: subscription events are private; each subscription has its own payload', async (test) => {
    const hub = await startHub(test, { subscriptions: true });
    const watcher = await hub.subscribe('match=*', { headers: [await hub.subscriber('*')] });
    const anonymous = await hub.subscribe('match=*');
    const entry = (match: string, payload: unknown) => ({
      type: 'urn:hub:authorization-detail',
      actions: ['subscribe'],
      topics: [{ match }],
      payload,
    });
    const token = await signToken(SUBSCRIBER_KEY, {
      iss: ISSUER,
      aud: hub.url,
      authorization_details: [entry('a', { n: 1 }), entry('b', 'two')],
    });
    await hub.subscribe('match=a&match=b', { headers: [['Authorization', `Bearer ${token}`]] });
    await hub.post('topic=x&id=end');
    await watcher.untilId('end');
    const records = [...watcher.text.matchAll(/^data: (\{.*\})$/gm)].map(([, data = '']) =>
      JSON.parse(data),
    );
    const payloads = records.filter(({ match }) => match !== '*').map(({ payload }) => payload);
    assert.deepEqual(payloads, [{ n: 1 }, 'two']);
    assert.deepEqual(await anonymous.untilId('end'), ['end']);
  });
});

function publish(
  hub: TestHub,
  headers: NonNullable<RawRequest['headers']>,
  body = 'topic=a',
): Promise<Answer> {
  return hub.post(body, { headers: [FORM, ...headers] });
}

function everything(action: string): object {
  return {
    authorization_details: [
      { type: 'urn:hub:authorization-detail', actions: [action], topics: [{ match: '*' }] },
    ],
  };
}

function assertChallenge(hub: TestHub, answer: Answer, status: number, code: string): void {
  assert.equal(answer.status, status);
  assert.match(String(answer.headers['x-request-id']), /./, 'the id of its log lines');
  const metadata = `${hub.origin}/.well-known/oauth-protected-resource/.well-known/hub`;
  assert.equal(
    answer.headers['www-authenticate'],
    `Bearer error="${code}", resource_metadata="${metadata}"`,
  );
}

function assertBareChallenge(hub: TestHub, answer: Answer): void {
  assert.equal(answer.status, 401);
  const metadata = `${hub.origin}/.well-known/oauth-protected-resource/.well-known/hub`;
  assert.equal(answer.headers['www-authenticate'], `Bearer resource_metadata="${metadata}"`);
}

/** Sends bytes and reads until the other side ends. */
async function raw(test: TestContext, hub: TestHub, text: string): Promise<string> {
  const socket = connect(Number(new URL(hub.origin).port), '127.0.0.1');
  test.after(() => socket.destroy());
  socket.end(text);
  let received = '';
  for await (const chunk of socket) received += chunk;
  return received;
}
