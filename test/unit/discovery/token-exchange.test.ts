import assert from 'node:assert/strict';
import type { IncomingMessage, RequestListener, ServerResponse } from 'node:http';
import { describe, it, type TestContext } from 'node:test';
import { TokenCache } from '../../../src/discovery/token-mint.ts';
import { createTokenExchange } from '../../../src/discovery/token-exchange.ts';
import type { TokenSource } from '../../../src/discovery/token-source.ts';
import type { TokenExchangeConfig } from '../../../src/config/config.ts';
import { defaultTokenExchange } from '../../../src/config/shape-hub.ts';
import { HeaderList } from '../../../src/http/header-list.ts';
import { type Clock, systemClock } from '../../../src/kernel/clock.ts';
import { type LogFields, silentLogger } from '../../../src/kernel/log.ts';
import { Secret } from '../../../src/kernel/secret.ts';
import { expandIdentity } from '../../../src/site/identity-placeholders.ts';
import { expandPlaceholders } from '../../../src/site/placeholders.ts';
import { signToken } from '../../support/hub-server.ts';
import { TestClock } from '../../support/test-clock.ts';
import { fakeExchange } from '../http/fake-exchange.ts';
import { deferred, listen } from './site.ts';

const CLIENT_SECRET = 's3cret & more';
const SESSION = 'the user’s own session token';
const HOUR = 3_600_000;

interface Asked {
  readonly form: URLSearchParams;
  readonly authorization: string | undefined;
}

/** A token endpoint (RFC 6749 §3.2) whose answers the test gives. */
async function startEndpoint(
  test: TestContext,
  reply: (asked: Asked, response: ServerResponse) => void | Promise<void>,
): Promise<{ readonly url: string; readonly asked: readonly Asked[] }> {
  const asked: Asked[] = [];
  const app: RequestListener = (request: IncomingMessage, response) => {
    void (async () => {
      let text = '';
      for await (const chunk of request) text += String(chunk);
      const one = { form: new URLSearchParams(text), authorization: request.headers.authorization };
      asked.push(one);
      await reply(one, response);
    })();
  };
  return { url: `http://localhost:${await listen(test, app)}/token`, asked };
}

const jwt = (clock: Clock, more: Record<string, unknown> = {}): Promise<string> =>
  signToken('k'.repeat(32), { exp: Math.floor((clock.now() + HOUR) / 1000), ...more });

const grant =
  (clock: Clock, more: Record<string, unknown> = {}) =>
  async (_: Asked, response: ServerResponse): Promise<void> => {
    response.setHeader('Content-Type', 'application/json');
    const token = await jwt(clock, { jti: String(Math.random()) });
    response.end(
      JSON.stringify({ access_token: token, token_type: 'Bearer', expires_in: 3600, ...more }),
    );
  };

interface Source {
  readonly source: TokenSource;
  readonly log: { readonly message: string; readonly fields: LogFields | undefined }[];
  /** @param host by which the client contacts the site, and so the hub */
  ask(session?: string, host?: string, clientAddress?: string): Promise<string | null>;
}

function makeSource(endpoint: string, config: Partial<TokenExchangeConfig>, clock: Clock): Source {
  const log: { message: string; fields: LogFields | undefined }[] = [];
  const source = createTokenExchange(
    {
      ...defaultTokenExchange,
      endpoint,
      clientId: 'the gateway',
      clientSecret: new Secret(CLIENT_SECRET),
      ...config,
    },
    {
      audience: ({ host }) => `https://${host}/.well-known/hub`,
      detailType: 'urn:hub:authorization-detail',
      expand: expandPlaceholders,
      expandIdentity,
      clock,
      cache: new TokenCache(clock),
      fetch,
    },
  );
  const logger = {
    ...silentLogger,
    warn: (message: string, fields?: LogFields) => log.push({ message, fields }),
  };
  return {
    source,
    log,
    async ask(session = SESSION, host = 'example.com', clientAddress = '127.0.0.1') {
      const headers = new HeaderList();
      for (const name of ['X-Session', 'Authorization']) {
        headers.append(name, Buffer.from(session).toString('latin1'));
      }
      const exchange = fakeExchange({ headers, host, clientAddress, log: logger });
      const outcome = await source.tokenFor(exchange, HeaderList.of({ 'X-User': 'a/b' }));
      return outcome.kind === 'token' ? outcome.token : null;
    },
  };
}

const bySession: Partial<TokenExchangeConfig> = { subjectToken: '{header.X-Session}' };

describe('discovery: token exchange (RFC 8693)', () => {
  it('exchanges the subject token, unchanged, for a token for the hub', async (test) => {
    const endpoint = await startEndpoint(test, grant(systemClock));
    const { ask } = makeSource(endpoint.url, bySession, systemClock);
    assert.match((await ask()) ?? '', /^[\w-]+\.[\w-]+\.[\w-]+$/);
    const [{ form, authorization } = assert.fail('nobody asked')] = endpoint.asked;
    assert.deepEqual(Object.fromEntries(form), {
      grant_type: 'urn:ietf:params:oauth:grant-type:token-exchange',
      subject_token: SESSION,
      subject_token_type: 'urn:ietf:params:oauth:token-type:access_token',
      requested_token_type: 'urn:ietf:params:oauth:token-type:access_token',
      resource: 'https://example.com/.well-known/hub',
    });
    const [scheme, credentials = ''] = (authorization ?? '').split(' ');
    assert.equal(scheme, 'Basic');
    assert.equal(
      Buffer.from(credentials, 'base64').toString(),
      'the+gateway:s3cret+%26+more',
      'RFC 6749 §2.3.1',
    );
  });

  it('uses client credentials with authorization details (RFC 9396) if there is no subject token', async (test) => {
    const endpoint = await startEndpoint(test, grant(systemClock));
    const details: Partial<TokenExchangeConfig> = {
      subscribeUrlPattern: ['https://example.com/users/{http.response.header.X-User}/*'],
      payload: '{"user":"{http.response.header.X-User}"}',
    };
    const { ask } = makeSource(endpoint.url, details, systemClock);
    assert.ok(await ask());
    const [{ form } = assert.fail('nobody asked')] = endpoint.asked;
    assert.equal(form.get('grant_type'), 'client_credentials');
    assert.equal(form.has('subject_token'), false);
    assert.deepEqual(JSON.parse(form.get('authorization_details') ?? ''), [
      {
        type: 'urn:hub:authorization-detail',
        actions: ['subscribe'],
        topics: [{ match: 'https://example.com/users/a%2Fb/*', match_type: 'urlpattern' }],
        payload: { user: 'a/b' },
      },
    ]);
  });

  it('takes the token out of {header.Authorization}, and sends no other credentials', async (test) => {
    const endpoint = await startEndpoint(test, grant(systemClock));
    for (const subjectToken of ['{header.Authorization}', '{http.request.header.authorization}']) {
      const { ask } = makeSource(endpoint.url, { subjectToken }, systemClock);
      for (const field of ['Bearer eyJ.e30.sig', 'bearer  eyJ.e30.sig', 'eyJ.e30.sig']) {
        assert.ok(await ask(field), field);
      }
      assert.equal(await ask('Basic YWxpY2U6cHc='), null);
    }
    const subjects = endpoint.asked.map(({ form }) => form.get('subject_token'));
    assert.deepEqual(subjects, ['eyJ.e30.sig', 'eyJ.e30.sig']);
  });

  it('sends no request for a user without a session', async (test) => {
    const endpoint = await startEndpoint(test, grant(systemClock));
    const { ask, log } = makeSource(endpoint.url, bySession, systemClock);
    assert.equal(await ask(''), null);
    assert.deepEqual([endpoint.asked, log], [[], []]);
  });

  it('sends one request for simultaneous clients, and another after half of the token lifetime', async (test) => {
    const clock = new TestClock();
    const release = deferred();
    const endpoint = await startEndpoint(test, async (asked, response) => {
      await release.promise;
      await grant(clock)(asked, response);
    });
    const { ask } = makeSource(endpoint.url, bySession, clock);
    const together = [ask(), ask(), ask(), ask('another')];
    release.resolve();
    const [first, second, third, other] = await Promise.all(together);
    assert.deepEqual([second, third], [first, first]);
    assert.notEqual(other, first);
    assert.equal(endpoint.asked.length, 2);
    clock.advance(HOUR / 2 - 1000);
    assert.equal(await ask(), first);
    clock.advance(2000);
    assert.notEqual(await ask(), first);
    assert.equal(endpoint.asked.length, 3);
  });

  it('keeps the tokens of each hub apart (RFC 8707)', async (test) => {
    const endpoint = await startEndpoint(test, grant(systemClock));
    const { ask } = makeSource(endpoint.url, bySession, systemClock);
    await ask(SESSION, 'a.example.com');
    await ask(SESSION, 'b.example.com');
    await ask(SESSION, 'a.example.com');
    assert.deepEqual(
      endpoint.asked.map(({ form }) => form.get('resource')),
      ['https://a.example.com/.well-known/hub', 'https://b.example.com/.well-known/hub'],
    );
  });

  it('trusts the expiry in the token itself, not expires_in', async (test) => {
    const clock = new TestClock();
    for (const [lifetime, more] of [
      [10, HOUR / 2 - 2_000],
      [86_400, HOUR / 2 - 2_000],
    ] as const) {
      const endpoint = await startEndpoint(test, grant(clock, { expires_in: lifetime }));
      const { ask } = makeSource(endpoint.url, bySession, clock);
      const first = await ask();
      clock.advance(more);
      assert.equal(await ask(), first, 'half of its life is not over');
      clock.advance(4_000);
      assert.notEqual(await ask(), first);
      assert.equal(endpoint.asked.length, 2);
    }
  });

  it('uses expires_in if the token has no expiry, and reuses no token if both are missing', async (test) => {
    const clock = new TestClock();
    const eternal = { access_token: await jwt(clock, { exp: undefined }) };
    const stated = await startEndpoint(test, grant(clock, eternal));
    const withLifetime = makeSource(stated.url, bySession, clock);
    await withLifetime.ask();
    await withLifetime.ask();
    assert.equal(stated.asked.length, 1);
    const unstated = await startEndpoint(test, grant(clock, { ...eternal, expires_in: undefined }));
    const without = makeSource(unstated.url, bySession, clock);
    await without.ask();
    await without.ask();
    assert.equal(unstated.asked.length, 2);
  });
});

describe('discovery: a failed token exchange never fails the page', () => {
  it('waits 5 s at most, and pauses requests to the server for 10 s after three timeouts', async (test) => {
    const clock = new TestClock();
    const endpoint = await startEndpoint(test, () => {});
    const { ask, log } = makeSource(endpoint.url, bySession, clock);
    const asked = async (count: number): Promise<void> => {
      while (endpoint.asked.length < count) {
        await new Promise((resolve) => setImmediate(resolve));
      }
    };
    const waiting = ['one', 'two', 'three'].map((session) => ask(session));
    await asked(3);
    clock.advance(5_000);
    assert.deepEqual(await Promise.all(waiting), [null, null, null]);
    assert.match(String(log[0]?.fields?.['reason']), /no answer within 5000 ms/);
    clock.advance(9_999);
    assert.equal(await ask('another'), null, 'nobody waits for a server that is away');
    assert.equal(endpoint.asked.length, 3);
    clock.advance(1);
    const again = ask();
    await asked(4);
    clock.advance(5_000);
    assert.equal(await again, null);
  });

  const refusals: readonly [string, number, string, RegExp][] = [
    ['a refusal', 400, '{"error":"invalid_grant"}', /400: "invalid_grant"/],
    ['a refusal of the client', 401, '', /401: no error code/],
    ['a server error', 503, 'down', /503/],
    ['a redirect', 302, '', /redirect/],
    ['an answer without a token', 200, '{}', /its answer has no access_token/],
    ['an opaque token', 200, '{"access_token":"opaque"}', /not a JWT, which the hub needs/],
    ['no JSON', 200, '<html>', /not a JSON object/],
    ['a flood', 200, 'x'.repeat(200_000), /larger than 131072 bytes/],
  ];
  for (const [name, status, body, reason] of refusals) {
    it(`leaves the cookie out on ${name}, and logs it without a secret`, async (test) => {
      const endpoint = await startEndpoint(test, (_, response) => {
        response.writeHead(status, { location: '/elsewhere' }).end(body);
      });
      const { ask, log } = makeSource(endpoint.url, bySession, systemClock);
      assert.equal(await ask(), null);
      assert.equal(await ask(), null);
      assert.equal(endpoint.asked.length, 1, 'what failed is not asked again at once');
      assert.equal(log.length, 1, 'nor logged again');
      assert.match(String(log[0]?.fields?.['reason']), reason);
      const said = JSON.stringify(log);
      assert.ok(!said.includes(CLIENT_SECRET) && !said.includes(SESSION));
    });
  }

  it('sends at most 10 requests at a time for subjects from one network', async (test) => {
    const release = deferred();
    const endpoint = await startEndpoint(test, async (asked, response) => {
      await release.promise;
      await grant(systemClock)(asked, response);
    });
    const { ask } = makeSource(endpoint.url, bySession, systemClock);
    const questions = Array.from({ length: 30 }, (_, index) => ask(`session ${index}`));
    const other = ask('another', 'example.com', '192.0.2.1');
    while (endpoint.asked.length < 11) await new Promise((resolve) => setImmediate(resolve));
    const brought = endpoint.asked.map(({ form }) => form.get('subject_token'));
    assert.equal(brought.filter((one) => one?.startsWith('session')).length, 10);
    assert.ok(brought.includes('another'));
    release.resolve();
    const answers = await Promise.all([...questions, other]);
    assert.ok(answers.every((answer) => answer !== null));
  });

  it('is not starved by junk tokens: neither known users nor those from other networks wait', async (test) => {
    const clock = new TestClock();
    const endpoint = await startEndpoint(test, async (asked, response) => {
      const subject = asked.form.get('subject_token') ?? '';
      // The server chokes on junk.
      if (!subject.startsWith('junk')) await grant(clock)(asked, response);
      else if (subject.startsWith('junk 5xx')) response.writeHead(500).end();
    });
    const { ask } = makeSource(endpoint.url, bySession, clock);
    assert.ok(await ask('known'));
    for (let at = 0; at < 3; at += 1) assert.equal(await ask(`junk 5xx ${at}`), null);
    assert.equal(await ask('a neighbour'), null, 'its network is spared for a while');
    const junk = Array.from({ length: 600 }, (_, at) =>
      ask(`junk ${at}`, 'example.com', `10.0.${at % 4}.1`),
    );
    assert.ok(await ask('known', 'other.example.com'), 'another question of the same subject');
    assert.ok(await ask('new', 'example.com', '192.0.2.1'));
    clock.advance(5_000);
    for (const answer of await Promise.all(junk)) assert.equal(answer, null);
  });

  for (const [name, status, body] of [
    ['with a redirect', 302, ''],
    ['by an error of its own', 500, '{}'],
    ['with too much', 200, 'x'.repeat(200_000)],
  ] as const) {
    it(`continues for all others when the server responds to one subject ${name}, until several fail`, async (test) => {
      const endpoint = await startEndpoint(test, async (asked, response) => {
        if (asked.form.get('subject_token')?.startsWith('odd') !== true) {
          await grant(systemClock)(asked, response);
        } else response.writeHead(status, { location: '/elsewhere' }).end(body);
      });
      const { ask } = makeSource(endpoint.url, bySession, systemClock);
      assert.equal(await ask('odd 1'), null);
      assert.equal(await ask('odd 2'), null);
      assert.ok(await ask('good 1'), 'the server answers as one should');
      assert.equal(await ask('odd 3'), null);
      assert.equal(await ask('odd 4'), null);
      assert.ok(await ask('good 2'));
      const before = endpoint.asked.length;
      for (const odd of ['odd 5', 'odd 6', 'odd 7']) assert.equal(await ask(odd), null);
      assert.equal(await ask('good 3'), null, 'three in a row: it is spared');
      assert.ok(await ask('good 2'), 'what is remembered is still handed out');
      assert.equal(endpoint.asked.length, before + 3);
    });
  }

  it('logs why the server refused, without the credentials that it repeats', async (test) => {
    const endpoint = await startEndpoint(test, ({ authorization }, response) => {
      const error_description = `${authorization} means ${CLIENT_SECRET}`;
      response.writeHead(401).end(JSON.stringify({ error: 'invalid_client', error_description }));
    });
    const { ask, log } = makeSource(endpoint.url, bySession, systemClock);
    assert.equal(await ask(), null);
    assert.equal(
      log[0]?.fields?.['reason'],
      'it answered 401: "invalid_client", "Basic [redacted] means [redacted]"',
    );
  });

  it('logs why the server refused, without the subject token (RFC 6749 §5.2)', async (test) => {
    const endpoint = await startEndpoint(test, (_, response) => {
      // The wording of Keycloak 26 for a token that does not name the gateway as an audience.
      const description = `Client is not within the token audience: ${SESSION}`;
      const answer = { error: 'access_denied', error_description: description };
      response.writeHead(403).end(JSON.stringify(answer));
    });
    const { ask, log } = makeSource(endpoint.url, bySession, systemClock);
    assert.equal(await ask(), null);
    assert.equal(
      log[0]?.fields?.['reason'],
      'it answered 403: "access_denied", "Client is not within the token audience: [redacted]"',
    );
  });

  it('warns if the token lacks the requested authorization details (RFC 9396 §7)', async (test) => {
    const detail = { type: 'urn:hub:authorization-detail', actions: ['subscribe'], topics: [] };
    for (const [details, warnings] of [
      [undefined, 1],
      [[{ ...detail, type: 'of another service' }], 1],
      [[detail], 0],
    ] as const) {
      const endpoint = await startEndpoint(test, async (_, response) => {
        const token = await jwt(systemClock, { authorization_details: details });
        response.end(JSON.stringify({ access_token: token }));
      });
      const grants = { ...bySession, subscribe: ['https://example.com/news'] };
      const { ask, log } = makeSource(endpoint.url, grants, systemClock);
      assert.ok(await ask(), 'it still allows public updates');
      assert.ok(await ask());
      assert.equal(log.length, warnings, 'once for each token');
      if (warnings > 0) assert.match(log[0]?.message ?? '', /without the authorization_details/);
      const bare = makeSource(endpoint.url, bySession, systemClock);
      assert.ok(await bare.ask());
      assert.deepEqual(bare.log, [], 'the server decides alone what a user may read');
    }
  });

  it('does not delay clients because the subject of another was refused', async (test) => {
    const endpoint = await startEndpoint(test, async (asked, response) => {
      if (asked.form.get('subject_token') === 'bad') response.writeHead(400).end('{}');
      else await grant(systemClock)(asked, response);
    });
    const { ask } = makeSource(endpoint.url, bySession, systemClock);
    assert.equal(await ask('bad'), null);
    assert.ok(await ask('good'));
  });
});
