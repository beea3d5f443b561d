import { registry } from '../../../src/directives/registry.ts';
import assert from 'node:assert/strict';
import { mkdtemp } from 'node:fs/promises';
import type { RequestListener } from 'node:http';
import http2 from 'node:http2';
import { request as httpsRequest } from 'node:https';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, it, type TestContext } from 'node:test';
import type { Config } from '../../../src/config/config.ts';
import { decodeEncoded, encodeConfig } from '../../../src/config/serialize.ts';
import { createGateway } from '../../../src/runtime/gateway.ts';
import { parseHubfile } from '../../../src/parse-hubfile.ts';
import { freePort } from '../../support/free-port.ts';
import { removeWith } from '../../support/temporary-directory.ts';
import { claimsOf, COOKIE, HUB, ISSUER, listen, SUBSCRIBER_KEY } from './site.ts';

/** Names a user by the session cookie, and lets all others pass as nobody. */
const auth: RequestListener = (request, response) => {
  const user = /\bsession=(\w+)/.exec(request.headers.cookie ?? '')?.[1];
  if (user !== undefined) response.setHeader('X-User-Id', user);
  response.end();
};

/** What the app has read of each request: the user, however the field is spelt. */
interface Seen {
  readonly users: string[];
  readonly trailers: string[];
  readonly credentials: string[];
}

interface Ask {
  readonly method?: string;
  readonly headers?: Record<string, string>;
  readonly body?: string;
  readonly trailers?: Record<string, string>;
}

type Send = (port: number, path: string, ask: Ask) => Promise<readonly string[]>;

/** The cookies that an answer sets. */
const overHttp1: Send = (port, path, { method = 'GET', headers = {}, body, trailers }) =>
  new Promise((resolve, reject) => {
    const request = httpsRequest(
      { host: 'localhost', port, path, method, headers, rejectUnauthorized: false },
      (response) => {
        response.resume();
        response.once('end', () => resolve(response.headers['set-cookie'] ?? []));
      },
    ).once('error', reject);
    if (trailers !== undefined) request.addTrailers(trailers);
    request.end(body);
  });

const overHttp2: Send = (port, path, { method = 'GET', headers = {}, body, trailers }) =>
  new Promise((resolve, reject) => {
    const session = http2.connect(`https://localhost:${port}`, { rejectUnauthorized: false });
    session.once('error', reject);
    const lower = Object.entries(headers).map(([name, value]) => [name.toLowerCase(), value]);
    const options = { endStream: body === undefined, waitForTrailers: trailers !== undefined };
    const head = { ':path': path, ':method': method, ...Object.fromEntries(lower) };
    const stream = session.request(head, options);
    let cookies: readonly string[] = [];
    stream.once('response', (fields) => (cookies = fields['set-cookie'] ?? []));
    stream.once('wantTrailers', () => stream.sendTrailers(trailers ?? {}));
    stream.once('error', reject);
    stream.once('end', () => {
      session.close();
      resolve(cookies);
    });
    stream.resume();
    if (body !== undefined) stream.end(body);
  });

interface Guarded {
  readonly seen: Seen;
  /** The user in the token that a request is answered with; null for none. */
  user(send: Send, path: string, ask?: Ask): Promise<string | null>;
}

interface GuardedSite {
  /** Lines of the site; `{auth}` and `{app}` are the ports of the service and the app. */
  readonly lines: string;
  readonly discovery?: string;
  readonly source?: string;
  /** Lines before the site. */
  readonly before?: string;
  readonly through?: (config: Config) => Config;
}

async function guarded(
  test: TestContext,
  { lines, discovery = '', source = '{header.X-User-Id}', before = '', through }: GuardedSite,
): Promise<Guarded> {
  const seen: Seen = { users: [], trailers: [], credentials: [] };
  const [authPort, appPort, port] = await Promise.all([
    listen(test, auth),
    listen(test, (request, response) => {
      request.resume();
      request.once('end', () => {
        const named = Object.keys(request.headers).filter((key) => /^x.user.id$/.test(key));
        seen.users.push(named.map((key) => String(request.headers[key])).join() || 'nobody');
        const { authorization = '', cookie = '' } = request.headers;
        seen.credentials.push(`${authorization} ${cookie}`);
        seen.trailers.push(...Object.keys(request.trailers));
        response.end('a page');
      });
    }),
    freePort(),
  ]);
  const storage = await mkdtemp(join(tmpdir(), 'hubgate-identity-'));
  removeWith(test, storage);
  const text = `{
	storage ${storage}
	grace_period 100ms
	auto_https disable_redirects
}
${before}
https://localhost:${port} {${HUB}
		anonymous
		cookie_name ${COOKIE}
	}
	tls internal
	discovery ${discovery} {
		token mint {
			issuer ${ISSUER}
			key "${SUBSCRIBER_KEY}"
			subscribe https://example.com/users/${source}
		}
	}
	${lines}
}
`;
  const filled = text.replaceAll('{auth}', `${authPort}`).replaceAll('{app}', `${appPort}`);
  const config = parseHubfile(filled);
  const gateway = createGateway(through?.(config) ?? config);
  await gateway.start();
  test.after(() => gateway.stop());
  return {
    seen,
    async user(send, path, ask = {}) {
      const cookies = await send(port, path, ask);
      const token = cookies.map((one) => /^__Secure-hub_access_token=([^;]+)/.exec(one)?.[1]);
      const given = token.find((one) => one !== undefined);
      return given === undefined
        ? null
        : (/users\/([^"]*)/.exec(JSON.stringify(claimsOf(given)))?.[1] ?? '');
    },
  };
}

const GUARD = `forward_auth localhost:{auth} {
	uri /session
	copy_headers X-User-Id
}`;
const guard = (matcher: string): string => GUARD.replace('forward_auth', `forward_auth ${matcher}`);
const APP = 'reverse_proxy localhost:{app}';
const ERRORS = `handle_errors {\n${APP}\n}`;
const HASH = '$2a$04$/uaF/uaF/uaF/uaF/uaF/uVHyJ0TRj.IMxWmjm7GaId6KXSwJfXaO';
const LIAR = { 'X-User-Id': 'alice' };
const BOB = { ...LIAR, Cookie: 'session=bob' };
const PROTOCOLS = [
  ['HTTP/1.1', overHttp1],
  ['HTTP/2', overHttp2],
] as const;

describe('a token is minted without a user if an error occurs before forward_auth', () => {
  const many = Array.from({ length: 1_101 }, (_, at) => `p${at}=`).join('&');
  const CASES: readonly (readonly [string, string, string, Ask])[] = [
    ['request_body', 'request_body {\nmax_size 1\n}', '/', { method: 'POST', body: 'too long' }],
    ['uri query', 'uri query +a b', `/?${many}`, {}],
    [
      'rate_limit',
      'rate_limit {\nzone all {\nkey all\nevents 1\nwindow 1h\n}\n}',
      '/',
      { headers: BOB },
    ],
    ['basic_auth', `basic_auth {\nalice ${HASH}\n}`, '/', {}],
    ['error', 'route {\nerror 503\n}', '/', {}],
    ['try_files', 'try_files /none =404', '/', {}],
    ['a matcher', '@refused path_regexp a+b\nvars @refused x y', `/${'a'.repeat(9_000)}`, {}],
  ];
  for (const [title, lines, path, ask] of CASES) {
    it(title, async (test) => {
      const site = await guarded(test, { lines: `${lines}\n${GUARD}\n${APP}\n${ERRORS}` });
      if (title === 'rate_limit') assert.equal(await site.user(overHttp1, path, ask), 'bob');
      site.seen.users.length = 0;
      for (const [protocol, send] of PROTOCOLS) {
        const headers = { ...ask.headers, ...LIAR };
        assert.equal(await site.user(send, path, { ...ask, headers }), null, protocol);
      }
      assert.deepEqual(site.seen.users, ['nobody', 'nobody']);
    });
  }
});

describe('a token is minted without a user if forward_auth sees another path than discovery', () => {
  const REWRITES: readonly (readonly [string, string, string])[] = [
    ['rewrite', 'rewrite /app/* /other', '/app/x'],
    ['rewrite into discovery', 'rewrite /app/* /v1{uri}', '/app/x'],
    ['uri strip_prefix', 'uri strip_prefix /app', '/app/x'],
    ['uri replace', 'uri replace /app /x', '/app/x'],
    ['uri path_regexp', 'uri path_regexp ^/app /x', '/app/x'],
    ['try_files', 'try_files {path} /index.html', '/app/none'],
  ];
  for (const [title, lines, path] of REWRITES) {
    it(title, async (test) => {
      const rest = `${lines}\n${guard('/app/*')}\n${APP}\n${ERRORS}`;
      const site = await guarded(test, { lines: rest, discovery: '/app/*' });
      for (const [protocol, send] of PROTOCOLS) {
        assert.equal(await site.user(send, path, { headers: LIAR }), null, protocol);
      }
      assert.deepEqual(site.seen.users, ['nobody', 'nobody']);
    });
  }

  it('handle_path', async (test) => {
    const lines = `handle_path /app/* {\n${guard('/app/*')}\n${APP}\n}\nhandle {\n${APP}\n}`;
    const site = await guarded(test, { lines, discovery: '/app/*' });
    for (const [protocol, send] of PROTOCOLS) {
      assert.equal(await site.user(send, '/app/x', { headers: LIAR }), null, protocol);
    }
    assert.deepEqual(site.seen.users, ['nobody', 'nobody']);
  });
});

describe('a token is minted for the user that forward_auth names, wherever the directive stands', () => {
  const PLACES: readonly (readonly [string, string, string])[] = [
    ['the site', `${GUARD}\n${APP}`, ''],
    ['nested handles', `handle /a/* {\nhandle {\n${GUARD}\n${APP}\n}\n}\nhandle {\n${APP}\n}`, ''],
    ['a route', `route {\n${GUARD}\n${APP}\n}`, ''],
    ['a named route', 'invoke guarded', `&(guarded) {\n${GUARD}\n${APP}\n}`],
    ['handle_errors', `error /a/* 404\nhandle_errors {\n${GUARD}\n${APP}\n}`, ''],
    ['the way to an error', `route {\n${GUARD}\nerror 404\n}\n${ERRORS}`, ''],
  ];
  for (const [title, lines, before] of PLACES) {
    it(title, async (test) => {
      const site = await guarded(test, { lines, before });
      for (const [protocol, send] of PROTOCOLS) {
        assert.equal(await site.user(send, '/a/b', { headers: BOB }), 'bob', protocol);
        assert.equal(await site.user(send, '/a/b', { headers: LIAR }), null, protocol);
      }
      assert.deepEqual(site.seen.users, ['bob', 'nobody', 'bob', 'nobody']);
    });
  }

  it('and is minted without a user if a second service is asked in vain', async (test) => {
    const dead = await freePort();
    const second = GUARD.replace('{auth}', String(dead));
    const site = await guarded(test, { lines: `route {\n${GUARD}\n${second}\n}\n${ERRORS}` });
    assert.equal(await site.user(overHttp1, '/', { headers: BOB }), null);
    assert.deepEqual(site.seen.users, ['nobody']);
  });

  it('and in workers too, which read the configuration as JSON', async (test) => {
    const site = await guarded(test, {
      lines: `error /wrong 404\n${guard('/a/*')}\n${APP}\n${ERRORS}`,
      through: (config) =>
        decodeEncoded(
          JSON.parse(
            JSON.stringify(encodeConfig(config, registry, { showSecrets: true, brief: false })),
          ),
          registry,
        ),
    });
    assert.equal(await site.user(overHttp1, '/a/b', { headers: BOB }), 'bob');
    assert.equal(await site.user(overHttp1, '/b', { headers: BOB }), null);
    assert.equal(await site.user(overHttp1, '/wrong', { headers: LIAR }), null);
    assert.deepEqual(site.seen.users, ['bob', 'nobody', 'nobody']);
  });
});

describe('the user of basic_auth', () => {
  const lines = `route {\nerror /early 404\nbasic_auth /a/* {\nbob ${HASH}\n}\n${APP}\n}\n${ERRORS}`;
  const right = { Authorization: `Basic ${btoa('bob:right')}` };
  const wrong = { Authorization: `Basic ${btoa('bob:wrong')}` };

  it('is in the token only if the password was checked', async (test) => {
    const site = await guarded(test, { lines, source: '{http.auth.user.id}' });
    for (const [protocol, send] of PROTOCOLS) {
      assert.equal(await site.user(send, '/a/b', { headers: right }), 'bob', protocol);
      assert.equal(await site.user(send, '/a/b', { headers: wrong }), null, protocol);
      assert.equal(await site.user(send, '/b', { headers: right }), null, protocol);
      assert.equal(await site.user(send, '/early', { headers: right }), null, protocol);
    }
  });
});

describe('a field that names the user to the app', () => {
  it('is removed from client requests, whichever route sets it', async (test) => {
    for (const [writes, ask] of [
      [guard('/a/*'), {}],
      [`basic_auth /a/* {\nbob ${HASH}\n}\nrequest_header /a/* X-User-Id {http.auth.user.id}`, {}],
      [`reverse_proxy /a/* localhost:{app} {\nheader_up X-User-Id {http.auth.user.id}\n}`, {}],
    ] as const) {
      const site = await guarded(test, {
        lines: `error /wrong 404\n${writes}\n${APP}\n${ERRORS}`,
        source: 'news',
      });
      for (const [, send] of PROTOCOLS) {
        await site.user(send, '/wrong', { ...ask, headers: LIAR });
      }
      assert.deepEqual(site.seen.users, ['nobody', 'nobody'], writes);
    }
  });

  it('is removed from trailers', async (test) => {
    const site = await guarded(test, { lines: `${guard('/a/*')}\n${APP}` });
    for (const [, send] of PROTOCOLS) {
      await site
        .user(send, '/b', {
          method: 'POST',
          headers: { Trailer: 'X-User-Id, X-Sum', 'Transfer-Encoding': 'chunked' },
          body: 'a',
          trailers: { 'X-User-Id': 'alice', 'X-Sum': '1' },
        })
        .catch(() => null);
    }
    assert.ok(!site.seen.trailers.includes('x-user-id'), String(site.seen.trailers));
    assert.ok(site.seen.trailers.includes('x-sum'));
  });

  it('stays if it is a credential, which the service needs, or frames the message', async (test) => {
    const copied = guard('/a/*').replace('X-User-Id', 'Authorization Cookie Host X-User-Id');
    const site = await guarded(test, { lines: `${copied}\n${APP}` });
    const headers = { ...BOB, Authorization: 'Bearer x' };
    for (const [, send] of PROTOCOLS) await site.user(send, '/b', { headers });
    assert.deepEqual(site.seen.users, ['nobody', 'nobody']);
    assert.deepEqual(site.seen.credentials, ['Bearer x session=bob', 'Bearer x session=bob']);
  });
});
