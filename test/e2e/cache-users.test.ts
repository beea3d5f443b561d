import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { connect } from 'node:http2';
import type { AddressInfo } from 'node:net';
import { describe, it, type TestContext } from 'node:test';
import { gunzipSync } from 'node:zlib';
import { freePort } from '../support/free-port.ts';
import { startGateway } from '../support/gateway.ts';
import { send } from '../support/http.ts';

type Fields = readonly (readonly [name: string, value: string])[];

interface Got {
  readonly status: number;
  readonly headers: Readonly<Record<string, unknown>>;
  readonly body: Buffer;
}

type Ask = (path: string, fields: Fields, method?: string) => Promise<Got>;

/** Whoever the app takes the client for. */
function userOf({ headers }: IncomingMessage): string {
  const key = headers['x-api-key']?.toString();
  return headers.authorization ?? headers.cookie ?? key ?? 'nobody';
}

/** What the app answers to each path, of whoever asks; none of it says that it is for others. */
const KINDS: Readonly<Record<string, Readonly<Record<string, string>>>> = {
  '/silent': {},
  '/fresh': { 'Cache-Control': 'max-age=60' },
  '/must-revalidate': { 'Cache-Control': 'max-age=60, must-revalidate' },
  '/expires': { Expires: new Date(Date.now() + 60_000).toUTCString() },
  '/no-cache': { 'Cache-Control': 'no-cache' },
  '/private': { 'Cache-Control': 'private, max-age=60' },
  '/no-store': { 'Cache-Control': 'no-store' },
  '/vary': { 'Cache-Control': 'public, max-age=60', Vary: 'Cookie, Authorization, X-Api-Key' },
  '/sets': { 'Cache-Control': 'public, max-age=60', 'Set-Cookie': 'own=1' },
  '/account/style.css': { 'Cache-Control': 'max-age=60', 'Content-Type': 'text/css' },
};

function respond(request: IncomingMessage, response: ServerResponse): void {
  const user = userOf(request);
  const path = request.url ?? '';
  const etag = `"${Buffer.from(user).toString('hex')}"`;
  const fields = {
    'Content-Type': 'text/html',
    ETag: etag,
    ...(path === '/token' && user !== 'nobody'
      ? { 'Cache-Control': 'public, max-age=60', 'Hub-Access-Token': `token-of-${user}` }
      : KINDS[path]),
  };
  if (request.headers['if-none-match'] === etag) {
    response.writeHead(304, fields).end();
    return;
  }
  const body = `<!doctype html><html><body>page of ${user};${'.'.repeat(1000)}</body></html>`;
  response.writeHead(200, { ...fields, 'X-User': user }).end(body);
}

async function startApp(test: TestContext): Promise<number> {
  const app = createServer(respond);
  app.listen(0, '127.0.0.1');
  await once(app, 'listening');
  test.after(() => {
    app.closeAllConnections();
    app.close();
  });
  return (app.address() as AddressInfo).port;
}

async function start(test: TestContext): Promise<{ readonly http: Ask; readonly http2: Ask }> {
  const app = await startApp(test);
  const [plain, secure] = [await freePort(), await freePort()];
  const lines = `	bind 127.0.0.1
	hub {
		anonymous
		cookie_name hub
	}
	discovery {
		changes public
		live
	}
	cache {
		ttl 1m
		stale 1m
	}
	encode gzip
	reverse_proxy 127.0.0.1:${app}
`;
  await startGateway(
    test,
    `http://localhost:${plain} {\n${lines}}\nhttps://localhost:${secure} {\n\ttls internal\n${lines}}\n`,
  );
  const session = connect(`https://localhost:${secure}`, { rejectUnauthorized: false });
  test.after(() => session.destroy());
  const http2: Ask = async (path, fields, method = 'GET') => {
    const headers = Object.fromEntries(fields.map(([name, value]) => [name.toLowerCase(), value]));
    const stream = session.request({ ':path': path, ':method': method, ...headers });
    const [head] = await once(stream, 'response');
    const chunks: Buffer[] = [];
    for await (const chunk of stream) chunks.push(chunk);
    return { status: Number(head[':status']), headers: head, body: Buffer.concat(chunks) };
  };
  const http: Ask = async (path, fields, method = 'GET') => {
    const response = await fetch(`http://localhost:${plain}${path}`, {
      method,
      headers: fields.map(([name, value]) => [name, value]),
    });
    const headers = Object.fromEntries(response.headers);
    return { status: response.status, headers, body: Buffer.from(await response.arrayBuffer()) };
  };
  return { http, http2 };
}

const USERS: readonly { readonly name: string; readonly fields: Fields }[] = [
  { name: 'session=alice', fields: [['Cookie', 'session=alice']] },
  { name: 'session=bob', fields: [['Cookie', 'session=bob']] },
  { name: 'Bearer alice', fields: [['Authorization', 'Bearer alice']] },
  { name: 'Bearer bob', fields: [['Authorization', 'Bearer bob']] },
  { name: 'key of alice', fields: [['X-Api-Key', 'key of alice']] },
  { name: 'key of bob', fields: [['X-Api-Key', 'key of bob']] },
  { name: 'nobody', fields: [] },
];

/** Ways to ask; of a part or a head nobody else's may be seen either. */
const WAYS: readonly { readonly method: string; readonly fields: Fields }[] = [
  { method: 'GET', fields: [] },
  { method: 'GET', fields: [['Accept-Encoding', 'gzip']] },
  { method: 'HEAD', fields: [] },
  { method: 'GET', fields: [['Range', 'bytes=0-60']] },
  { method: 'GET', fields: [['If-None-Match', '"other"']] },
  { method: 'GET', fields: [['Hub-Live', 'urn:x']] },
];

function textOf({ body }: Got): string {
  // Some clients decode it themselves.
  return (body[0] === 0x1f ? gunzipSync(body) : body).toString();
}

/** Nothing of an answer is another user's; that of nobody may be given to users where the app allows it. */
function assertOwn(got: Got, name: string, about: string): void {
  const text = textOf(got);
  const seen = /page of ([^;]*);/.exec(text)?.[1] ?? got.headers['x-user'];
  for (const { name: other } of USERS) {
    if (other === name || other === 'nobody') continue;
    assert.ok(!text.includes(other), `${about}: the page of ${other}`);
    assert.notEqual(seen, other, about);
    const whole = JSON.stringify(got.headers);
    assert.ok(!whole.includes(`token-of-${other}`), `${about}: the token of ${other}`);
    assert.ok(
      !whole.includes(Buffer.from(other).toString('hex')),
      `${about}: the validator of ${other}`,
    );
  }
}

describe('cache, with signed-in users', () => {
  for (const protocol of ['http', 'http2'] as const) {
    it(`never serves one user’s response to another, over ${protocol}`, async (test) => {
      const ask = (await start(test))[protocol];
      for (const path of [...Object.keys(KINDS), '/token']) {
        for (const { method, fields } of WAYS) {
          for (let round = 0; round < 2; round += 1) {
            // One after the other, then all at the same time.
            for (const { name, fields: own } of USERS) {
              const got = await ask(path, [...own, ...fields], method);
              assertOwn(got, name, `${method} ${path} as ${name}`);
            }
            await Promise.all(
              USERS.map(async ({ name, fields: own }) => {
                const got = await ask(path, [...own, ...fields], method);
                assertOwn(got, name, `${method} ${path} as ${name}, among others`);
              }),
            );
          }
        }
      }
    });
  }

  it('does not let a request header poison the responses that others get', async (test) => {
    const app = createServer((request, response) => {
      const { headers, method, url } = request;
      response.writeHead(200, {
        'Cache-Control': 'public, max-age=60',
        ...(headers.origin === undefined ? {} : { 'Access-Control-Allow-Origin': headers.origin }),
      });
      // An app that goes by what it should not.
      response.end(JSON.stringify({ method, url, headers }));
    });
    app.listen(0, '127.0.0.1');
    await once(app, 'listening');
    test.after(() => {
      app.closeAllConnections();
      app.close();
    });
    const { port: appPort } = app.address() as AddressInfo;
    const port = await freePort();
    await startGateway(
      test,
      `http://127.0.0.1:${port} {\n\tcache\n\treverse_proxy 127.0.0.1:${appPort}\n}\n`,
    );
    const evil = 'evil.example';
    const attacks: Fields = [
      ['X-Forwarded-Host', evil],
      ['X-Forwarded-Proto', evil],
      ['X-Forwarded-Prefix', evil],
      ['Forwarded', `host=${evil}`],
      ['X-Original-URL', `/${evil}`],
      ['X-Rewrite-URL', `/${evil}`],
      ['X-HTTP-Method-Override', evil],
      ['X-Method-Override', evil],
      ['X-Host', evil],
      ['X-Original-URI', `/${evil}`],
      ['X-Override-URL', `/${evil}`],
      ['X-Envoy-Original-Path', `/${evil}`],
      ['X-HTTP-Path', `/${evil}`],
      ['X-URL-Scheme', evil],
      ['Front-End-Https', evil],
      ['X-Middleware-Prefetch', evil],
      ['X-Middleware-Rewrite', evil],
      ['X-Middleware-Subrequest', evil],
      ['X-Invoke-Path', `/${evil}`],
      ['X-Invoke-Status', evil],
      ['X-Invoke-Query', evil],
      ['X-Matched-Path', `/${evil}`],
      ['X-Now-Route-Matches', evil],
      ['X-React-Router-SPA-Mode', evil],
      ['X-React-Router-Prerender-Data', evil],
      ['Accept-Encoding', `${evil},${'x'.repeat(300)}`],
    ];
    for (const [index, [name, value]] of attacks.entries()) {
      const url = `http://127.0.0.1:${port}/${index}`;
      await send(url, { headers: [[name, value]] });
      const { body } = await send(url);
      assert.ok(!body.includes(evil), `${name}: ${body}`);
    }
    // An app that answers by Origin and Accept-Encoding, and says so nowhere.
    const own = `http://127.0.0.1:${port}/reflected`;
    await send(own, {
      headers: [
        ['Origin', `https://${evil}`],
        ['Accept-Encoding', 'gzip'],
      ],
    });
    const other = await send(own);
    assert.ok(!JSON.stringify(other.headers).includes(evil));
    // RFC 9110 §9.3.1: content of a GET means nothing, but an app may read it.
    const url = `http://127.0.0.1:${port}/body`;
    await send(url, { headers: [['Content-Length', '4']], body: 'evil' });
    const { headers } = await send(url);
    assert.match(String(headers['cache-status']), /fwd=uri-miss/);
  });

  it('does not give the response to a similar origin to the pages of an allowed origin', async (test) => {
    const allowed = 'https://app.example';
    const app = createServer(({ headers: { origin } }, response) => {
      response.writeHead(200, {
        'Cache-Control': 'public, max-age=60',
        Vary: 'Origin',
        ...(origin === allowed ? { 'Access-Control-Allow-Origin': allowed } : {}),
      });
      response.end();
    });
    app.listen(0, '127.0.0.1');
    await once(app, 'listening');
    test.after(() => {
      app.closeAllConnections();
      app.close();
    });
    const { port: appPort } = app.address() as AddressInfo;
    const port = await freePort();
    await startGateway(
      test,
      `http://127.0.0.1:${port} {\n\tcache\n\treverse_proxy 127.0.0.1:${appPort}\n}\n`,
    );
    const similar = [',x', 'x,', '"x', 'x"', ',"x', 'x\u00a0'].map((x) => x.replace('x', allowed));
    for (const [index, origin] of similar.entries()) {
      const url = `http://127.0.0.1:${port}/${index}`;
      const first = await send(url, { headers: [['Origin', origin]] });
      assert.match(String(first.headers['cache-status']), /stored/, origin);
      const { headers } = await send(url, { headers: [['Origin', allowed]] });
      assert.equal(headers['access-control-allow-origin'], allowed, JSON.stringify(origin));
    }
  });

  it('does not let placeholders after it bring one client’s fields into the responses of others', async (test) => {
    const app = createServer(({ url }, response) => {
      response.writeHead(200, { 'Cache-Control': 'public, max-age=60' });
      response.end(`page at ${url}`);
    });
    app.listen(0, '127.0.0.1');
    await once(app, 'listening');
    test.after(() => {
      app.closeAllConnections();
      app.close();
    });
    const { port: appPort } = app.address() as AddressInfo;
    const port = await freePort();
    const toApp = `reverse_proxy 127.0.0.1:${appPort}`;
    const routes = [
      `header X-A {header.X-Field}\n${toApp}`,
      `header X-A {cookie.field}\n${toApp}`,
      'redir https://example.com/{header.X-Field} 301',
      `rewrite * /{header.X-Field}\n${toApp}`,
      `rewrite * /{cookie.field}\n${toApp}`,
      `uri replace /5 /{header.X-Field}\n${toApp}`,
      `map {header.X-Field} {who} {\nevil evil\ndefault good\n}\nrewrite * /{who}\n${toApp}`,
      `vars who {header.X-Field}\nrewrite * /{vars.who}\n${toApp}`,
      `rewrite * /{vars.before}\n${toApp}`,
      `rewrite * /{re.field.1}\n${toApp}`,
      `${toApp} {\nheader_down X-A {re.variable.1}\n}`,
      `@evil vars_regexp before evil\nrespond @evil evil\nrespond good`,
      `${toApp} {\nheader_down X-A {header.X-Field}\n}`,
      `${toApp} {\nrewrite /{header.X-Field}\n}`,
      '@evil expression `{header.X-Field} == "evil"`\nrespond @evil evil\nrespond good',
    ];
    const before = [
      'vars before {header.X-Field}',
      '@field header_regexp field X-Field ^(.*)$',
      '@variable vars_regexp variable before ^(.*)$',
      'header @field X-Seen yes',
      'header @variable X-Seen yes\n',
    ].join('\n');
    const lines = routes.map(
      (route, index) =>
        `handle /${index}* {\nroute {\n${before}cache {\nttl 1m\n}\n${route}\n}\n}\n`,
    );
    await startGateway(test, `http://127.0.0.1:${port} {\n${lines.join('')}}\n`);
    for (const [index, route] of routes.entries()) {
      const url = `http://127.0.0.1:${port}/${index}`;
      const evil = await send(url, {
        headers: [
          ['X-Field', 'evil'],
          ...(route.includes('cookie') ? [['Cookie', 'field=evil'] as const] : []),
        ],
      });
      assert.match(JSON.stringify([evil.body, evil.headers]), /evil/, route);
      const { body, headers } = await send(url);
      assert.doesNotMatch(JSON.stringify([body, headers]), /evil/, route);
    }
  });

  it('shares the responses of an app that gets the address of the client', async (test) => {
    const seen: unknown[] = [];
    const app = createServer(({ headers }, response) => {
      seen.push(headers['x-real-ip']);
      response.writeHead(200, { 'Cache-Control': 'public, max-age=60' });
      response.end('page');
    });
    app.listen(0, '127.0.0.1');
    await once(app, 'listening');
    test.after(() => {
      app.closeAllConnections();
      app.close();
    });
    const { port: appPort } = app.address() as AddressInfo;
    const port = await freePort();
    const proxy = `reverse_proxy 127.0.0.1:${appPort} {\nheader_up X-Real-IP {remote_host}\n}`;
    await startGateway(test, `http://127.0.0.1:${port} {\ncache\n${proxy}\n}\n`);
    for (const status of [/stored/, /hit/]) {
      const { headers } = await send(`http://127.0.0.1:${port}/`);
      assert.match(String(headers['cache-status']), status);
    }
    assert.deepEqual(seen, ['127.0.0.1']);
  });
});
