import assert from 'node:assert/strict';
import { generateKeyPairSync } from 'node:crypto';
import { request as httpRequest, type RequestListener } from 'node:http';
import { describe, it, type TestContext } from 'node:test';
import fc from 'fast-check';
import {
  compileGrants,
  grantValue,
  type TokenOutcome,
} from '../../../src/discovery/token-source.ts';
import { TokenCache, createTokenMint } from '../../../src/discovery/token-mint.ts';
import type { TokenMintConfig } from '../../../src/config/config.ts';
import { defaultTokenMint } from '../../../src/config/shape-hub.ts';
import { HeaderList } from '../../../src/http/header-list.ts';
import { compileMatcher, matches } from '../../../src/hub/matcher.ts';
import { hubBase, parseTopic } from '../../../src/hub/topic.ts';
import { Secret } from '../../../src/kernel/secret.ts';
import { expandIdentity } from '../../../src/site/identity-placeholders.ts';
import { TestClock } from '../../support/test-clock.ts';
import { fakeExchange } from '../http/fake-exchange.ts';
import {
  claimsOf,
  COOKIE,
  cookieHeader,
  cookies,
  fields,
  HUB,
  ISSUER,
  type Site,
  startSite,
  SUBSCRIBER_KEY,
} from './site.ts';

const PATTERN = 'https://example.com/users/{http.response.header.X-User-Id}/*';
const HOUR = 3_600_000;

/** The app names its user in a header of its answers. */
const app: RequestListener = (request, response) => {
  const query = new URL(request.url ?? '/', 'http://app').searchParams;
  const user = query.get('user');
  if (user !== null) response.setHeader('X-User-Id', user);
  if (query.has('token')) response.setHeader('Hub-Access-Token', query.get('token') ?? '');
  if (request.headers['if-none-match'] !== undefined) response.statusCode = 304;
  else response.statusCode = Number(query.get('status') ?? '200');
  response.setHeader('ETag', '"1"');
  response.end();
};

const mintSite = (test: TestContext, lines = ''): Promise<Site> =>
  startSite(test, app, {
    site: `discovery {
		token mint {
			issuer ${ISSUER}
			key "${SUBSCRIBER_KEY}"
			subscribe_urlpattern ${PATTERN}
			payload \`{"user": "{http.response.header.X-User-Id}"}\`
			${lines}
		}
	}`,
  });

describe('discovery: token mint (hubfile §3)', () => {
  it('mints a token that the hub accepts, for exactly the user that the app names', async (test) => {
    const site = await mintSite(test);
    const answer = await site.get('/?user=42');
    const token = cookies(answer).get(COOKIE)?.get('value') ?? assert.fail('no cookie');
    const { iss, aud, iat, exp, jti, authorization_details: details } = claimsOf(token);
    assert.equal(iss, ISSUER);
    assert.equal(aud, site.hub);
    assert.equal(Number(exp) - Number(iat), 900);
    assert.match(String(jti), /^urn:uuid:/);
    assert.deepEqual(details, [
      {
        type: 'urn:hub:authorization-detail',
        actions: ['subscribe'],
        topics: [{ match: 'https://example.com/users/42/*', match_type: 'urlpattern' }],
        payload: { user: '42' },
      },
    ]);
    assert.equal(answer.headers['cache-control'], 'private');

    const stream = await site.stream('match=*', { headers: [cookieHeader(answer)] });
    await site.publish({ topic: 'https://example.com/users/41/a', private: 'on', id: 'other' });
    await site.publish({ topic: 'https://example.com/users/42/a', private: 'on', id: 'mine' });
    assert.deepEqual(await stream.untilId('mine'), ['mine']);
  });

  it('mints it for the host that the client has contacted, whatever Host the app gets', async (test) => {
    const discovery = `discovery {
		cookie {
			domain example.com
		}
		token mint {
			issuer ${ISSUER}
			key "${SUBSCRIBER_KEY}"
			subscribe_urlpattern ${PATTERN}
		}
	}`;
    for (const lines of [
      'request_header Host app.internal\n\treverse_proxy localhost:{app}',
      'handle {\n\t\trequest_header Host app.internal\n\t\treverse_proxy localhost:{app}\n\t}',
    ]) {
      const hubfile = `http://app.example.com:{port} {${HUB}
		cookie_name ${COOKIE}
		anonymous
	}
	${discovery}
	${lines}
}
`;
      const site = await startSite(test, app, { hubfile });
      const { port } = new URL(site.origin);
      const host = ['Host', `app.example.com:${port}`] as const;
      const answer = await site.get('/?user=42', { headers: [host] });
      const cookie = cookies(answer).get(COOKIE);
      assert.equal(cookie?.get('domain'), 'example.com', lines);
      const { aud } = claimsOf(cookie?.get('value') ?? '');
      assert.equal(aud, `http://app.example.com:${port}/.well-known/hub`);
      const stream = await site.stream('match=*', { headers: [host, cookieHeader(answer)] });
      assert.equal(stream.status, 200, lines);
    }
  });

  it('withholds the token when a placeholder is empty', async (test) => {
    const site = await mintSite(test);
    assert.deepEqual(fields(await site.get('/'), 'set-cookie'), []);
    assert.equal((await site.get('/')).headers['cache-control'], undefined);
  });

  it('mints only for documents and fetches with a status below 400 (Fetch Metadata §2.1)', async (test) => {
    const site = await mintSite(test);
    const mints = async (destination: string | null, status = 200): Promise<boolean> => {
      const headers = destination === null ? [] : [['Sec-Fetch-Dest', destination] as const];
      const answer = await site.get(`/?user=1&status=${status}`, { headers });
      return cookies(answer).has(COOKIE);
    };
    for (const destination of [null, 'document', 'iframe', 'empty', 'Document']) {
      assert.equal(await mints(destination), true, String(destination));
    }
    for (const destination of ['image', 'script', 'style', 'font', 'worker', '']) {
      assert.equal(await mints(destination), false, destination);
    }
    assert.equal(await mints(null, 302), true);
    assert.equal(await mints(null, 400), false);
    assert.equal(await mints(null, 500), false);
  });

  it('gives precedence to the app’s own header, even to an empty one', async (test) => {
    const site = await mintSite(test);
    const own = await site.token();
    const answer = await site.get(`/?user=1&token=${own}`);
    assert.equal(cookies(answer).get(COOKIE)?.get('value'), own);
    const logout = await site.get('/?user=1&token=');
    assert.equal(cookies(logout).get(COOKIE)?.get('max-age'), '0');
  });

  it('makes the app respond in full, since a 304 could not renew the cookie', async (test) => {
    const site = await mintSite(test);
    const conditional = { headers: [['If-None-Match', '"1"']] } as const;
    const page = await site.get('/?user=1', conditional);
    assert.equal(page.status, 200);
    assert.ok(cookies(page).has(COOKIE));
    const image = { headers: [...conditional.headers, ['Sec-Fetch-Dest', 'image'] as const] };
    assert.equal((await site.get('/?user=1', image)).status, 304);
  });

  it('sets Vary to the client’s fields if a cache may store the response without a token', async (test) => {
    const site = await mintSite(test);
    const decides = ['Sec-Fetch-Dest'];
    assert.deepEqual(fields(await site.get('/a'), 'vary'), decides);
    // What an image may be given must not be given to a document, which would get a cookie.
    const image = { headers: [['Sec-Fetch-Dest', 'image']] } as const;
    assert.deepEqual(fields(await site.get('/a', image), 'vary'), decides);
    const due = await site.get('/a?user=1');
    assert.ok(cookies(due).has(COOKIE));
    assert.deepEqual(fields(due, 'vary'), []);
  });

  it('hides the fields by which the app names its user from clients', async (test) => {
    const site = await mintSite(test);
    for (const target of ['/?user=42', '/?user=42&status=404', '/?user=42&token=']) {
      assert.deepEqual(fields(await site.get(target), 'x-user-id'), [], target);
    }
    const image = { headers: [['Sec-Fetch-Dest', 'image']] } as const;
    assert.deepEqual(fields(await site.get('/?user=42', image), 'x-user-id'), []);
    const keeping = await mintSite(test, 'keep_fields');
    const answer = await keeping.get('/?user=42');
    assert.deepEqual(fields(answer, 'x-user-id'), ['42']);
    assert.ok(cookies(answer).has(COOKIE));
  });

  it('hides them from clients in trailers and informational responses too', async (test) => {
    const telling: RequestListener = (_request, response) => {
      response.writeEarlyHints({ link: '</a.css>; rel=preload', 'x-user-id': '42' });
      response.writeHead(200, { Trailer: 'X-User-Id, X-Sum', 'X-User-Id': '42' });
      response.write('a page');
      response.addTrailers({ 'X-User-Id': '42', 'X-Sum': '1' });
      response.end();
    };
    const site = await startSite(test, telling, {
      site: `discovery {
		token mint {
			issuer ${ISSUER}
			key "${SUBSCRIBER_KEY}"
			subscribe https://example.com/{http.response.header.X-User-Id}
		}
	}`,
    });
    const hints: string[] = [];
    const trailers = await new Promise<unknown>((resolve, reject) => {
      const request = httpRequest(site.origin, (response) => {
        response.resume();
        response.once('end', () => resolve(response.trailers));
      });
      request.on('information', ({ headers }) => hints.push(...Object.keys(headers)));
      request.once('error', reject);
      request.end();
    });
    assert.deepEqual(trailers, { 'x-sum': '1' });
    assert.ok(hints.includes('link') && !hints.includes('x-user-id'), String(hints));
  });

  it('serves a sibling site, with the audience of its hub', async (test) => {
    const site = await startSite(test, app, {
      hubfile: `http://hub.example.com:{port} {${HUB}
		anonymous
	}
}
http://app.example.com:{port} {
	discovery {
		hub hub.example.com
		cookie {
			domain example.com
		}
		token mint {
			issuer ${ISSUER}
			key "${SUBSCRIBER_KEY}"
			subscribe_urlpattern ${PATTERN}
		}
	}
	reverse_proxy localhost:{app}
}
`,
    });
    const { port } = new URL(site.origin);
    const answer = await site.get('/?user=1', { headers: [['Host', `app.example.com:${port}`]] });
    const token = cookies(answer).get(COOKIE)?.get('value') ?? assert.fail('no cookie');
    assert.equal(claimsOf(token)['aud'], `http://hub.example.com:${port}/.well-known/hub`);
  });

  for (const [algorithm, keys] of [
    ['RS256', generateKeyPairSync('rsa', { modulusLength: 2048 })],
    ['ES256', generateKeyPairSync('ec', { namedCurve: 'P-256' })],
    ['EdDSA', generateKeyPairSync('ed25519')],
  ] as const) {
    it(`mints with a private key: ${algorithm}`, async (test) => {
      const pem = (key: typeof keys.publicKey, type: 'spki' | 'pkcs8') =>
        String(key.export({ format: 'pem', type }));
      const site = await startSite(test, app, {
        hubfile: `http://localhost:{port} {
	hub {
		issuer ${ISSUER} {
			publisher {
				jwt "a publisher key of more than 32 bytes, for tests"
			}
			subscriber {
				jwt "${pem(keys.publicKey, 'spki')}" ${algorithm}
			}
		}
		cookie_name ${COOKIE}
		transport memory
	}
	discovery {
		token mint {
			issuer ${ISSUER}
			key "${pem(keys.privateKey, 'pkcs8')}"
			alg ${algorithm}
			kid one
			subscribe https://example.com/{http.response.header.X-User-Id}
		}
	}
	reverse_proxy localhost:{app}
}
`,
      });
      const answer = await site.get('/?user=1');
      const stream = await site.stream('match=*', { headers: [cookieHeader(answer)] });
      assert.equal(stream.status, 200);
    });
  }
});

describe('discovery: tokens are reused until half of their lifetime is over', () => {
  const config: TokenMintConfig = {
    ...defaultTokenMint,
    issuer: ISSUER,
    key: new Secret(SUBSCRIBER_KEY),
    ttlMs: HOUR,
    subscribe: ['https://example.com/{http.response.header.X-User-Id}'],
  };
  const source = (clock: TestClock) =>
    createTokenMint(config, {
      audience: ({ host }) => `https://${host}/`,
      detailType: 'd',
      expandIdentity,
      clock,
      cache: new TokenCache(clock),
    });
  const user = (id: string): HeaderList => HeaderList.of({ 'X-User-Id': id });
  const tokenOf = async (outcome: Promise<TokenOutcome>): Promise<string> => {
    const given = await outcome;
    return given.kind === 'token' ? given.token : assert.fail(given.kind);
  };

  it('signs once per user and half-lifetime', async () => {
    const clock = new TestClock();
    const mint = source(clock);
    const at = (id: string, host = 'a') => tokenOf(mint.tokenFor(fakeExchange({ host }), user(id)));
    const [first, same] = await Promise.all([at('1'), at('1')]);
    assert.equal(first, same);
    assert.notEqual(await at('2'), first);
    assert.notEqual(await at('1', 'b'), first, 'another audience');
    clock.advance(HOUR / 2 - 1);
    assert.equal(await at('1'), first);
    clock.advance(1);
    const second = await at('1');
    assert.notEqual(second, first);
    assert.equal(await at('1'), second);
  });

  it('remembers 10,000 tokens and forgets the least recently used', async () => {
    const clock = new TestClock();
    const mint = source(clock);
    const at = (id: string) => tokenOf(mint.tokenFor(fakeExchange({}), user(id)));
    const [first, second] = [await at('first'), await at('second')];
    for (let id = 0; id < 9_998; id += 1) await at(String(id));
    assert.equal(await at('first'), first);
    await at('one more');
    assert.equal(await at('first'), first);
    assert.notEqual(await at('second'), second);
  });
});

describe('discovery: placeholders cannot widen a grant', () => {
  const base = hubBase(null, '/.well-known/hub');

  it('encodes all but A–Z a–z 0–9 - . _ ~', () => {
    assert.equal(grantValue('Az09-._~'), 'Az09-._~');
    assert.equal(
      grantValue("a*b(c):d/e?f{g}h'i!j%2e"),
      'a%2Ab%28c%29%3Ad%2Fe%3Ff%7Bg%7Dh%27i%21j%252e',
    );
    assert.equal(grantValue('é😀'), '%C3%A9%F0%9F%98%80');
    assert.equal(grantValue('\ud800'), '%EF%BF%BD');
  });

  it('withholds the token for empty values, dots that URL parsing removes, control characters and very long values', () => {
    for (const value of ['', '.', '..', 'a\n', '\0', 'a\x7f', '\x85', 'x'.repeat(1025)]) {
      assert.equal(grantValue(value), null, JSON.stringify(value));
    }
    assert.equal(grantValue('...'), '...');
    assert.equal(grantValue('x'.repeat(1024)), 'x'.repeat(1024));
  });

  it('grants one user’s namespace only, whatever the name of the user', () => {
    const others = ['alice', 'bob', 'x', '*', '.', 'a/b'];
    const hostile = fc.oneof(
      fc.string({ maxLength: 20 }),
      fc.string({ unit: fc.constantFrom(...'.*/(){}:?+\\|%2eEaA#@;&='.split('')), maxLength: 12 }),
      fc.constantFrom('..', '%2e%2e', '*', ':id', '(.*)', '{*}?', 'a/../bob', '\\', '.%2e/bob'),
    );
    fc.assert(
      fc.property(hostile, fc.constantFrom(...others), (value, other) => {
        const encoded = grantValue(value);
        if (encoded === null || value === other) return;
        const match = `https://example.com/users/${encoded}/*`;
        const matcher = compileMatcher({ match, matchType: 'urlpattern' }, base, null);
        const topic = `https://example.com/users/${grantValue(other) ?? 'none'}/secret`;
        assert.equal(matches(matcher, parseTopic(topic, base)), false, `${value} read ${topic}`);
        for (const outside of ['https://example.com/', 'https://example.com/users/', 'x']) {
          assert.equal(matches(matcher, parseTopic(outside, base)), false, outside);
        }
      }),
      { numRuns: 2_000 },
    );
  });

  it('fills a payload as data: no value can add a member', () => {
    const fill = compileGrants({
      ...defaultTokenMint,
      payload: '{"user": "{a}", "list": ["{a}", 1, null], "n": {"deep": "x{a}y"}}',
    });
    const hostile = '", "admin": true, "x": "*/..';
    const grants = fill((template, encode) => template.replaceAll('{a}', () => encode(hostile)));
    assert.ok(typeof grants === 'object');
    assert.deepEqual(grants.payload, {
      user: hostile,
      list: [hostile, 1, null],
      n: { deep: `x${hostile}y` },
    });
    assert.equal(
      fill((template, encode) => template.replaceAll('{a}', () => encode(''))),
      'withheld',
    );
  });

  it('refuses a payload that is not JSON, or too deeply nested', () => {
    for (const payload of ['{', '{"a": {x}}', `${'['.repeat(40)}${']'.repeat(40)}`]) {
      assert.throws(() => compileGrants({ ...defaultTokenMint, payload }), {
        code: 'invalid-payload',
      });
    }
  });
});
