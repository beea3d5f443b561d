import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { after, describe, it, type TestContext } from 'node:test';
import { fileURLToPath } from 'node:url';
import { SignJWT } from 'jose';
import { readLegacyClaim } from '#legacy-claim';
import type { HubOptions } from '../../src/hub.ts';
import { openStream } from '../support/http.ts';
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
import { TYPESCRIPT } from '../support/process.ts';

/** A hub as a 0.x Hubfile makes it: keys, no issuer. */
const OPTIONS: Partial<HubOptions> = {
  issuers: [],
  legacy: { publisher: { key: PUBLISHER_KEY }, subscriber: { key: SUBSCRIBER_KEY } },
  protocolVersionCompatibility: 8,
  anonymous: false,
};

/** A 0.x token: no `typ`, `iss`, `aud` or `exp` unless the claims have them. */
function legacyToken(key: string, claims: Record<string, unknown>): Promise<string> {
  const jwt = new SignJWT(claims).setProtectedHeader({ alg: 'HS256' });
  return jwt.sign(new TextEncoder().encode(key));
}

const publisherToken = (publish: unknown, more = {}): Promise<string> =>
  legacyToken(PUBLISHER_KEY, { hub: { publish }, ...more });
const subscriberToken = (subscribe: unknown, more = {}): Promise<string> =>
  legacyToken(SUBSCRIBER_KEY, { hub: { subscribe }, ...more });
const bearer = (token: string): Header => ['Authorization', `Bearer ${token}`];
const FORMS = { strings: true, topics: true, templates: true };
const EVERYTHING = [{ match: '*' }];

/** What a hub does that speaks 1.0 only. */
function staysModern(numbers: string, options: Partial<HubOptions>): void {
  it(`${numbers}: ignores the claim, the query token and the old cookie`, async (test) => {
    const issuers = [
      { id: ISSUER, publisher: { key: PUBLISHER_KEY }, subscriber: { key: SUBSCRIBER_KEY } },
    ];
    const hub = await startHub(test, { ...options, issuers, publishOrigins: ['*'] });
    const publisher = await publisherToken(EVERYTHING);
    const refused = await hub.post('topic=a', { headers: [FORM, bearer(publisher)] });
    assert.equal(refused.status, 401);
    const modern = ((await hub.publisher())[1] ?? '').slice('Bearer '.length);
    const origin: Header = ['Origin', 'https://a.example'];
    const cookie: Header = ['Cookie', `hubAuthorization=${modern}`];
    const byCookie = await hub.post('topic=a', { headers: [FORM, origin, cookie] });
    assert.equal(byCookie.status, 401);
    assert.doesNotMatch(byCookie.headers['www-authenticate'] ?? '', /error=/);
    const byQuery = await hub.get(`/.well-known/hub?authorization=${modern}`, {
      method: 'POST',
      body: 'topic=a',
      headers: [FORM],
    });
    assert.equal(byQuery.status, 401);
    assert.equal((await hub.post('topic=a')).status, 200);
  });
}

describe('topic= of 0.x, enabled by name (J-571 J-572)', async () => {
  const options = { protocolVersionCompatibility: 8, legacyForms: FORMS } as const;
  const hub = await startHub({ after }, options);

  const idsOf = async (test: TestContext, query: string, place = hub): Promise<string[]> => {
    const stream = await openStream(test, `${place.url}?${query}`, {});
    for (const topic of ['urn:a', 'https://example.com/1', 'https://example.com/1/2', 'urn:end']) {
      assert.equal((await place.post({ topic, id: topic })).status, 200);
    }
    return stream.untilId('urn:end');
  };

  for (const [query, expected] of [
    ['topic=*', ['urn:a', 'https://example.com/1', 'https://example.com/1/2']],
    ['topic=urn:a&topic=urn:end', ['urn:a']],
    ['topic=https://example.com/{id}&topic=urn:end', ['https://example.com/1']],
    [
      'topic=https://example.com/{%2Bid}&match=urn:end',
      ['https://example.com/1', 'https://example.com/1/2'],
    ],
    ['topic=https://example.com/{&topic=urn:end', []],
    ['topic=&topic={x&topic=urn:end', []],
  ] as const) {
    it(`${query} gets ${expected.join(' ') || 'nothing else'}`, async (test) => {
      assert.deepEqual(await idsOf(test, query), [...expected, 'urn:end']);
    });
  }

  it('reads a template as plain text unless templates are enabled', async (test) => {
    const legacyForms = { ...FORMS, templates: false };
    const place = await startHub(test, { ...options, legacyForms });
    const query = 'topic=https://example.com/{id}&topic=urn:end';
    assert.deepEqual(await idsOf(test, query, place), ['urn:end']);
  });

  it('counts templates among the patterns of a subscription, and refuses those that are too large', async () => {
    for (const query of [
      'topic={a:9999}',
      `topic={${'x'.repeat(5000)}}`,
      'topic=a%00',
      'topic=%FF',
    ]) {
      assert.equal((await hub.get(`/.well-known/hub?${query}`)).status, 400, query.slice(0, 20));
    }
    const many = Array.from({ length: 90 }, (_, i) => `topic={${i}:100}`).join('&');
    const { status, body } = await hub.get(`/.well-known/hub?${many}`);
    assert.equal(status, 400);
    assert.match(body, /max_pattern_size/);
  });
});

if (readLegacyClaim === null) {
  describe('0.x tokens without the build option (J)', () => {
    staysModern('J-545', { protocolVersionCompatibility: 8 });

    it('J-546–J-577: pass with --conditions=deprecated_claim, in a separate process', () => {
      const conditions = ['hubgate-source', 'deprecated_claim'].map(
        (name) => `--conditions=${name}`,
      );
      // Told that it is a test of this one, the child would report in another format.
      const { NODE_TEST_CONTEXT: _context, ...env } = process.env;
      const { status, stdout, stderr } = spawnSync(
        process.execPath,
        [...conditions, ...TYPESCRIPT, '--test-reporter=tap', fileURLToPath(import.meta.url)],
        { encoding: 'utf8', env },
      );
      assert.equal(status, 0, stdout + stderr);
      assert.match(stdout, /^# pass [1-9]\d+$/m);
      assert.match(stdout, /^# skipped 0$/m);
    });
  });
} else {
  describe('0.x tokens (J)', async () => {
    const hub = await startHub({ after }, OPTIONS);
    const named = await startHub(
      { after },
      {
        issuers: [
          { id: ISSUER, publisher: { key: PUBLISHER_KEY }, subscriber: { key: SUBSCRIBER_KEY } },
        ],
        protocolVersionCompatibility: 8,
      },
    );

    const publish = async (token: string, topic = 'a', place = hub): Promise<number> =>
      (await place.post({ topic }, { headers: [FORM, bearer(token)] })).status;

    staysModern('J-546', {});

    it('J-547 J-564 J-570: accepts a bare claim, whichever iss it names', async () => {
      for (const claims of [{}, { iss: 'https://nobody.example' }, { aud: undefined }]) {
        assert.equal(await publish(await publisherToken([{ match: 'a' }], claims)), 200);
        const token = await publisherToken([{ match: 'a' }], claims);
        assert.equal(await publish(token, 'a', named), 200);
      }
    });

    it('J-570: the metadata does not list a 0.x issuer', async () => {
      const { body } = await hub.get('/.well-known/oauth-protected-resource/.well-known/hub');
      assert.equal('authorization_servers' in JSON.parse(body), false);
    });

    it('J-548: uses authorization_details if a token has both', async () => {
      const { url } = named;
      const type = 'urn:hub:authorization-detail';
      const details = [{ type, actions: ['publish'], topics: [{ match: 'modern' }] }];
      const token = await signToken(PUBLISHER_KEY, {
        iss: ISSUER,
        aud: url,
        authorization_details: details,
        hub: { publish: EVERYTHING },
      });
      assert.equal(await publish(token, 'modern', named), 200);
      assert.equal(await publish(token, 'legacy', named), 403);
      const timeless = await publisherToken(EVERYTHING, { authorization_details: details });
      assert.equal(await publish(timeless, 'modern', named), 401);
    });

    it('L44: never checks typ and aud, nor iss if there is only one issuer', async () => {
      const type = 'urn:hub:authorization-detail';
      const details = [{ type, actions: ['publish'], topics: [{ match: '*' }] }];
      const good = { iss: ISSUER, aud: named.url, exp: 4_102_444_800, typ: 'at+jwt' };
      const status = async (changes: object, place = named): Promise<number> => {
        const { typ, ...claims }: Record<string, unknown> = { ...good, ...changes };
        const jwt = new SignJWT({ ...claims, authorization_details: details });
        const header = { alg: 'HS256', ...(typeof typ === 'string' ? { typ } : {}) };
        const key = new TextEncoder().encode(PUBLISHER_KEY);
        return publish(await jwt.setProtectedHeader(header).sign(key), 'a', place);
      };
      for (const changes of [
        ...[{}, { typ: undefined }, { typ: 'other' }, { aud: undefined }, { aud: 'https://x/' }],
        ...[{ aud: ['x', 'y'] }, { iss: undefined }, { iss: 'https://nobody.example' }],
      ]) {
        assert.equal(await status(changes), 200, JSON.stringify(changes));
      }
      for (const changes of [
        { aud: 5 },
        { aud: [5] },
        { iss: 5 },
        { exp: undefined },
        { exp: 1 },
      ]) {
        assert.equal(await status(changes), 401, JSON.stringify(changes));
      }
    });

    it('L44: requires a token to name its issuer if there are several', async (test) => {
      const keys = { publisher: { key: PUBLISHER_KEY }, subscriber: { key: SUBSCRIBER_KEY } };
      const issuers = [ISSUER, 'https://other.example'].map((id) => ({ id, ...keys }));
      const place = await startHub(test, { issuers, protocolVersionCompatibility: 8 });
      const token = (iss: string): Promise<string> => publisherToken(EVERYTHING, { iss });
      assert.equal(await publish(await token(ISSUER), 'a', place), 200);
      assert.equal(await publish(await token('https://nobody.example'), 'a', place), 401);
    });

    describe('bare strings, enabled by name', async () => {
      const strings = await startHub({ after }, { ...OPTIONS, legacyForms: FORMS });
      const exact = { ...FORMS, templates: false };
      const withoutTemplates = await startHub({ after }, { ...OPTIONS, legacyForms: exact });

      it('"*" covers everything, any other string covers only that topic', async () => {
        assert.equal(await publish(await publisherToken(['*']), 'anything', strings), 200);
        const token = await publisherToken(['urn:a', { match: 'urn:b' }]);
        for (const [topic, status] of [
          ['urn:a', 200],
          ['urn:b', 200],
          ['urn:c', 403],
        ] as const) {
          assert.equal(await publish(token, topic, strings), status);
        }
      });

      it('a URI Template covers its expansions and itself, if templates are enabled', async () => {
        const token = await publisherToken(['https://example.com/books/{id}']);
        const [own, one] = ['https://example.com/books/{id}', 'https://example.com/books/1'];
        assert.equal(await publish(token, own, strings), 200);
        assert.equal(await publish(token, one, strings), 200);
        assert.equal(await publish(token, `${one}/2`, strings), 403);
        assert.equal(await publish(token, own, withoutTemplates), 200);
        assert.equal(await publish(token, one, withoutTemplates), 403);
      });

      for (const entries of [[5], [null], ['a\u0001'], ['{a:9999}'], ['x'.repeat(5000)]]) {
        it(`refuses ${JSON.stringify(entries).slice(0, 40)} with 401`, async () => {
          assert.equal(await publish(await publisherToken(entries), 'a', strings), 401);
        });
      }

      it('allow reading private updates, and provide their payload', async (test) => {
        const place = await startHub(test, { ...OPTIONS, legacyForms: FORMS });
        const token = await subscriberToken(['https://example.com/{id}']);
        const stream = await openStream(test, `${place.url}?match=*`, { headers: [bearer(token)] });
        const headers = [FORM, bearer(await publisherToken(['*']))];
        await place.post('topic=urn:x&private=on&id=hidden', { headers });
        await place.post('topic=https://example.com/1&private=on&id=shown', { headers });
        assert.deepEqual(await stream.untilId('shown'), ['shown']);
      });
    });

    it('counts the tokens that only this mode accepts, and logs the first', async (test) => {
      const issuers = [
        { id: ISSUER, publisher: { key: PUBLISHER_KEY }, subscriber: { key: SUBSCRIBER_KEY } },
      ];
      const place = await startHub(test, { issuers, protocolVersionCompatibility: 8 });
      const told = (): unknown[] =>
        place.log.filter(({ message }) => message.includes('0.x')).map(({ fields }) => fields);
      await place.post('topic=a');
      assert.deepEqual(told(), []);
      const token = await publisherToken([{ match: 'a' }]);
      for (let i = 0; i < 12; i += 1) assert.equal(await publish(token, 'a', place), 200);
      assert.deepEqual(
        told(),
        [1, 10].map((seen) => ({ site: '', seen })),
      );
    });

    it('J-549: does not know the namespaced claim (not in the seed)', async () => {
      const claims = { 'https://hub.example/': { publish: EVERYTHING } };
      assert.equal(await publish(await legacyToken(PUBLISHER_KEY, claims)), 403);
    });

    for (const [numbers, entry, covered, uncovered] of [
      ['J-550', { match: 'urn:exact' }, 'urn:exact', 'urn:exact2'],
      ['J-550', { match: 'urn:exact', matchType: 'Exact' }, 'urn:exact', 'urn:exact2'],
      [
        'J-550',
        { match: 'https://example.com/:id', matchType: 'URLPattern' },
        'https://example.com/1',
        'https://example.com/1/2',
      ],
      ['J-550 L28', { match: 'urn:a', match_type: 'exact' }, 'urn:a', 'urn:b'],
      ['J-554', { match: 'urn:(a|b)+', matchType: 'Regexp' }, 'urn:abba', 'xurn:abc'],
    ] as const) {
      it(`${numbers} J-556: ${JSON.stringify(entry)} covers ${covered}, not ${uncovered}`, async () => {
        const token = await publisherToken([entry]);
        assert.equal(await publish(token, covered), 200);
        assert.equal(await publish(token, uncovered), 403);
        const both = `topic=${encodeURIComponent(covered)}&topic=${encodeURIComponent(uncovered)}`;
        const answer = await hub.post(both, { headers: [FORM, bearer(token)] });
        assert.equal(answer.status, 403);
        assert.match(answer.headers['www-authenticate'] ?? '', /error="insufficient_scope"/);
      });
    }

    for (const [numbers, entries] of [
      ['J-551 L28', ['*']],
      ['J-551 L28', [{ match: 'a' }, 'a']],
      ['J-552', [null]],
      ['J-552', [{}]],
      ['J-552', [{ match: 'a', matchType: 'Template' }]],
      ['J-552', [{ match: 'a', matchType: 'urlPattern' }]],
      ['J-568', Array.from({ length: 1001 }, () => ({ match: 'a' }))],
    ] as const) {
      it(`${numbers} J-569: refuses ${JSON.stringify(entries).slice(0, 60)} with 401`, async () => {
        assert.equal(await publish(await publisherToken(entries)), 401);
        const answer = await hub.get('/.well-known/hub?match=a', {
          headers: [bearer(await subscriberToken(entries))],
        });
        assert.equal(answer.status, 401);
        assert.match(answer.headers['www-authenticate'] ?? '', /error="invalid_token"/);
      });
    }

    it('J-553: "*" covers everything, and there is no other wildcard', async () => {
      for (const topic of ['a', 'http://[::1', 'https://example.com/']) {
        assert.equal(await publish(await publisherToken(EVERYTHING), topic), 200);
        assert.equal(await publish(await publisherToken([{ match: '**' }]), topic), 403);
      }
    });

    it('J-555 J-569: answers 403 if publish is empty or missing', async () => {
      for (const claim of [{ publish: [] }, {}, { subscribe: EVERYTHING }]) {
        assert.equal(await publish(await legacyToken(PUBLISHER_KEY, { hub: claim })), 403);
      }
    });

    it('J-557: an empty or missing subscribe reads nothing private, "*" reads everything', async (test) => {
      const open = async (claim: object): Promise<ReturnType<typeof openStream>> => {
        const token = await legacyToken(SUBSCRIBER_KEY, { hub: claim });
        return openStream(test, `${hub.url}?match=t557`, { headers: [bearer(token)] });
      };
      const empty = await open({ subscribe: [] });
      const missing = await open({});
      const all = await open({ subscribe: EVERYTHING });
      const headers = [FORM, bearer(await publisherToken(EVERYTHING))];
      await hub.post('topic=t557&private=on&id=private', { headers });
      await hub.post('topic=t557&id=public', { headers });
      assert.deepEqual(await empty.untilId('public'), ['public']);
      assert.deepEqual(await missing.untilId('public'), ['public']);
      assert.deepEqual(await all.untilId('public'), ['private', 'public']);
    });

    it('J-558 J-559 L29: the payload comes from the first entry that matches, otherwise from the claim', async (test) => {
      const present = await startHub(test, { ...OPTIONS, subscriptions: true });
      const token = await legacyToken(SUBSCRIBER_KEY, {
        hub: {
          subscribe: [
            { match: 'a', payload: 'first' },
            { match: 'without' },
            { match: 'https://example.com/:id', matchType: 'URLPattern', payload: 'pattern' },
            { match: 'a', payload: 'second' },
          ],
          payload: 'common',
        },
      });
      const pattern = encodeURIComponent('https://example.com/:id');
      const search = `match=a&match=without&match=other&match=https://example.com/1&match_urlpattern=${pattern}`;
      await openStream(test, `${present.url}?${search}`, { headers: [bearer(token)] });
      const reader = await subscriberToken(EVERYTHING);
      const { body } = await present.get('/.well-known/hub/subscriptions', {
        headers: [bearer(reader)],
      });
      const payloads = JSON.parse(body).subscriptions.map(
        ({ payload }: { payload?: unknown }) => payload,
      );
      assert.deepEqual(payloads, ['first', undefined, 'common', 'pattern', 'pattern']);
    });

    it('J-560 J-561: prefers the header, then the query, then the cookies', async () => {
      const [good, bad] = [await subscriberToken(EVERYTHING), 'x'.repeat(60)];
      const configured = (value: string): Header => [
        'Cookie',
        `__Secure-hub_access_token=${value}`,
      ];
      const legacy = (value: string): Header => ['Cookie', `hubAuthorization=${value}`];
      const both = (one: string, other: string): Header => [
        'Cookie',
        `hubAuthorization=${other}; __Secure-hub_access_token=${one}`,
      ];
      for (const [query, headers, status] of [
        ['', [legacy(good)], 200],
        ['', [configured(good)], 200],
        ['', [both(good, bad)], 200],
        ['', [both(bad, good)], 401],
        [good, [both(bad, bad)], 200],
        [bad, [both(good, good)], 401],
        [bad, [bearer(good)], 200],
        [good, [bearer(bad)], 401],
        ['', [], 401],
      ] as const) {
        const search = query === '' ? '' : `&authorization=${query}`;
        const path = `/.well-known/hub?match=a${search}`;
        const answer = await hub.get(path, { method: 'HEAD', headers });
        assert.equal(answer.status, status, `${query} ${headers.join()}`);
      }
    });

    it('J-560: prefers the query to the old cookie, even if that is the configured one', async (test) => {
      const place = await startHub(test, { ...OPTIONS, cookieName: 'hubAuthorization' });
      const token = await subscriberToken(EVERYTHING);
      const answer = await place.get(`/.well-known/hub?match=a&authorization=${token}`, {
        method: 'HEAD',
        headers: [['Cookie', `hubAuthorization=${'x'.repeat(60)}`]],
      });
      assert.equal(answer.status, 200);
    });

    it('J-562: a query token given twice or shorter than 41 characters is ignored', async (test) => {
      const open = await startHub(test, { ...OPTIONS, anonymous: true });
      const token = await subscriberToken(EVERYTHING);
      const status = async (search: string): Promise<number> =>
        (await open.get(`/.well-known/hub?match=a&${search}`, { method: 'HEAD' })).status;
      assert.equal(await status(`authorization=${'x'.repeat(40)}`), 200);
      assert.equal(await status(`authorization=${'x'.repeat(41)}`), 401);
      assert.equal(await status(`authorization=${'x'.repeat(60)}&authorization=${token}`), 200);
    });

    it('J-563: publishing needs no origin with a query token, but does with a cookie', async () => {
      const token = await publisherToken(EVERYTHING);
      const post = { method: 'POST', body: 'topic=a' };
      const byQuery = await hub.get(`/.well-known/hub?authorization=${token}`, {
        ...post,
        headers: [FORM],
      });
      assert.equal(byQuery.status, 200);
      for (const name of ['hubAuthorization', '__Secure-hub_access_token']) {
        const headers: Header[] = [FORM, ['Cookie', `${name}=${token}`]];
        const byCookie = await hub.get('/.well-known/hub', { ...post, headers });
        assert.equal(byCookie.status, 400);
      }
    });

    it('J-565: without exp, a stream stays open indefinitely or until write_timeout', async (test) => {
      const alive = await livesFor(test, { writeTimeoutMs: 0 }, 365 * 24 * 3_600_000);
      assert.equal(alive, true);
      assert.equal(await livesFor(test, {}, 600_100), false);
    });

    it('J-565: with exp, a stream ends before the token expires', async (test) => {
      const clock = new TestClock();
      const exp = clock.now() / 1000 + 1000;
      assert.equal(await livesFor(test, { writeTimeoutMs: 0, clock }, 1_000_100, { exp }), false);
    });

    it('J-566 J-569: refuses an expired token, and asks for a token if it is missing', async () => {
      const expired = await publisherToken(EVERYTHING, { exp: 1_700_000_000 });
      assert.equal(await publish(expired), 401);
      assert.equal((await hub.post('topic=a', { headers: [FORM] })).status, 401);
    });

    it('J-567: accepts only the configured algorithm', async () => {
      const part = (value: object): string =>
        Buffer.from(JSON.stringify(value)).toString('base64url');
      const claims = part({ hub: { publish: EVERYTHING } });
      assert.equal(await publish(`${part({ alg: 'none' })}.${claims}.`), 401);
      const strong = new SignJWT({ hub: { publish: EVERYTHING } });
      const key = new TextEncoder().encode(PUBLISHER_KEY.repeat(2));
      assert.equal(await publish(await strong.setProtectedHeader({ alg: 'HS512' }).sign(key)), 401);
    });

    it('J-571 J-573 J-574 L28: refuses topic= until it is enabled, and always refuses its API', async (test) => {
      const present = await startHub(test, { ...OPTIONS, subscriptions: true });
      const headers = [bearer(await subscriberToken(EVERYTHING))];
      const answer = await present.get('/.well-known/hub?topic=a', { headers });
      assert.equal(answer.status, 400);
      assert.match(answer.body, /"match"/);
      const collection = '/.well-known/hub/subscriptions';
      assert.equal((await present.get(`${collection}/a`, { headers })).status, 404);
      assert.equal((await present.get(`${collection}/a/b`, { headers })).status, 400);
      assert.equal((await present.get(`${collection}/exact/x`, { headers })).status, 200);
    });

    it('J-575 J-576 L28: compatibility 7 behaves like 8 (the optional rules of 7 are not implemented)', async (test) => {
      const seven = await startHub(test, { ...OPTIONS, protocolVersionCompatibility: 7 });
      const token = await publisherToken([{ match: 'a' }]);
      assert.equal(await publish(token, 'a', seven), 200);
      assert.equal(await publish(token, 'b', seven), 403);
      const headers = [bearer(await subscriberToken(EVERYTHING))];
      const path = '/.well-known/hub?match=a&Last-Event-ID=earliest';
      const answer = await seven.get(path, { method: 'HEAD', headers });
      assert.equal(answer.headers['hub-last-event-id'], undefined);
    });

    it('J-577: the cursor header keeps its 1.0 name', async () => {
      const headers = [bearer(await subscriberToken(EVERYTHING))];
      const path = '/.well-known/hub?match=a&last_event_id=x';
      const answer = await hub.get(path, { method: 'HEAD', headers });
      assert.equal(answer.headers['hub-last-event-id'], 'earliest');
    });
  });
}

/** Whether the stream of a 0.x token is still open after that time. */
async function livesFor(
  test: TestContext,
  options: Partial<HubOptions> & { clock?: TestClock },
  milliseconds: number,
  claims = {},
): Promise<boolean> {
  const { clock = new TestClock() } = options;
  const place: TestHub = await startHub(test, { ...OPTIONS, heartbeatMs: 0, ...options, clock });
  const headers = [bearer(await subscriberToken(EVERYTHING, claims))];
  const stream = await openStream(test, `${place.url}?match=a`, { headers });
  clock.advance(milliseconds);
  const publisher = [FORM, bearer(await publisherToken(EVERYTHING))];
  await place.post('topic=a&id=end', { headers: publisher });
  await stream.until(({ ended, ids }) => ended || ids.includes('end'));
  return stream.ids.includes('end');
}
