import assert from 'node:assert/strict';
import { createServer, type IncomingMessage, type RequestListener } from 'node:http';
import type { AddressInfo } from 'node:net';
import { text } from 'node:stream/consumers';
import { describe, it, type TestContext } from 'node:test';
import { startCaddy } from '../support/caddy.ts';
import { freePort } from '../support/free-port.ts';
import { startGateway } from '../support/gateway.ts';
import { type Answer, type RawRequest, send } from '../support/http.ts';
import { runCommand } from '../support/process.ts';

async function listen(test: TestContext, listener: RequestListener): Promise<number> {
  const server = createServer(listener);
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  test.after(() => {
    server.closeAllConnections();
    server.close();
  });
  // A TCP server that listens has an address object.
  return (server.address() as AddressInfo).port;
}

/** What a server was asked. */
interface Asked {
  readonly method: string;
  readonly url: string;
  readonly headers: IncomingMessage['headers'];
  readonly body: string;
}

function recording(asked: Asked[], answer: RequestListener): RequestListener {
  return (request, response) => {
    void text(request).then((body) => {
      const { method = '', url = '', headers } = request;
      asked.push({ method, url, headers, body });
      answer(request, response);
    });
  };
}

interface World {
  readonly auth: Asked[];
  readonly app: Asked[];
  readonly ports: { readonly auth: number; readonly app: number };
}

/** A service that knows users by a cookie, and answers others as the query says; and an app. */
async function world(test: TestContext): Promise<World> {
  const auth: Asked[] = [];
  const app: Asked[] = [];
  const service = recording(auth, (request, response) => {
    const { searchParams } = new URL(String(request.headers['x-forwarded-uri']), 'http://app');
    const user = /session=(\w+)/.exec(request.headers.cookie ?? '')?.[1];
    if (user !== undefined) {
      response.writeHead(Number(searchParams.get('pass') ?? '200'), {
        'Remote-User': user,
        'Remote-Groups': ['staff', 'admins'],
        'X-Uncopied': 'x',
      });
    } else {
      const fields = { Location: '/login', 'Set-Cookie': 'asked=1', 'X-Reason': 'no session' };
      response.writeHead(Number(searchParams.get('deny') ?? '401'), fields);
    }
    response.end('the service');
  });
  const ports = {
    auth: await listen(test, service),
    app: await listen(
      test,
      recording(app, (_request, response) => void response.end('the app')),
    ),
  };
  return { auth, app, ports };
}

const directives = ({ ports }: World): string => `
	forward_auth /guarded/* 127.0.0.1:${ports.auth} {
		uri /check?as=service
		copy_headers Remote-User Remote-Groups>X-Groups X-Absent
		header_up X-Asked-By gateway
	}
	reverse_proxy 127.0.0.1:${ports.app}
`;

async function serve(test: TestContext, lines: string): Promise<string> {
  const origin = `http://127.0.0.1:${await freePort()}`;
  await startGateway(test, `${origin} {${lines}}\n`);
  return origin;
}

const BOB = ['Cookie', 'session=bob'] as const;
const ALICE = ['Authorization', 'Basic YWxpY2U6eA=='] as const;
const LIES = [
  ['Remote-User', 'alice'],
  ['X-Groups', 'root'],
  ['X-Absent', 'alice'],
] as const;

/** What tells of an answer or a request, beside what every server writes in its own way. */
const seen = ({ status, body, headers }: Answer): object => ({
  status,
  body,
  location: headers.location,
  cookie: headers['set-cookie'],
  reason: headers['x-reason'],
});
const told = ({ method, url, headers, body }: Asked): object => ({
  method,
  url,
  body,
  user: headers['remote-user'],
  groups: headers['x-groups'],
  absent: headers['x-absent'],
  uncopied: headers['x-uncopied'],
  forwardedMethod: headers['x-forwarded-method'],
  forwardedUri: headers['x-forwarded-uri'],
  askedBy: headers['x-asked-by'],
  length: headers['content-length'],
});

describe('forward_auth', () => {
  it('sends its own GET request, which describes the original request', async (test) => {
    const all = await world(test);
    const origin = await serve(test, directives(all));
    const answer = await send(`${origin}/guarded/a?x=1`, {
      method: 'POST',
      headers: [BOB, ...LIES, ['Content-Length', '4']],
      body: 'form',
    });
    assert.equal(answer.body, 'the app');
    const [asked] = all.auth;
    assert.deepEqual(told(asked ?? assert.fail('nobody was asked')), {
      method: 'GET',
      url: '/check?as=service',
      body: '',
      user: undefined,
      groups: undefined,
      absent: undefined,
      uncopied: undefined,
      forwardedMethod: 'POST',
      forwardedUri: '/guarded/a?x=1',
      askedBy: 'gateway',
      length: undefined,
    });
    assert.equal(asked?.headers.cookie, 'session=bob');
  });

  it('passes the request on after a 2xx, with the named response headers in place of the client’s', async (test) => {
    const all = await world(test);
    const origin = await serve(test, directives(all));
    for (const status of [200, 204, 299]) {
      all.app.length = 0;
      const answer = await send(`${origin}/guarded/a?pass=${status}`, {
        method: 'PUT',
        headers: [BOB, ...LIES, ['Content-Length', '4']],
        body: 'form',
      });
      assert.deepEqual([answer.status, answer.body], [200, 'the app'], String(status));
      const [{ headers, ...request } = assert.fail('the app was not asked')] = all.app;
      assert.deepEqual(request, { method: 'PUT', url: `/guarded/a?pass=${status}`, body: 'form' });
      assert.equal(headers['remote-user'], 'bob');
      assert.equal(headers['x-groups'], 'staff, admins');
      assert.equal(headers['x-absent'], undefined);
      assert.equal(headers['x-uncopied'], undefined);
      assert.equal(headers['x-forwarded-method'], undefined);
      assert.equal(headers['x-asked-by'], undefined);
    }
  });

  it('sends any other response to the client, and does not contact the app', async (test) => {
    const all = await world(test);
    const origin = await serve(test, directives(all));
    for (const status of [300, 302, 401, 403, 404, 500]) {
      const answer = await send(`${origin}/guarded/a?deny=${status}`, { headers: LIES });
      assert.deepEqual(seen(answer), {
        status,
        body: 'the service',
        location: '/login',
        cookie: ['asked=1'],
        reason: 'no session',
      });
    }
    assert.deepEqual(all.app, []);
  });

  it('leaves requests that it does not match unchanged, except for headers that only it may set', async (test) => {
    const all = await world(test);
    const origin = await serve(test, directives(all));
    const answer = await send(`${origin}/open`, { headers: LIES });
    assert.equal(answer.body, 'the app');
    assert.deepEqual(all.auth, []);
    const [asked] = all.app;
    assert.equal(asked?.headers['remote-user'], undefined);
    assert.equal(asked?.headers['x-groups'], undefined);
  });

  it('lets no request pass while the service is down or does not respond', async (test) => {
    const all = await world(test);
    const dead = { ...all, ports: { ...all.ports, auth: await freePort() } };
    const broken = await listen(test, (request) => void request.socket.destroy());
    for (const auth of [dead.ports.auth, broken]) {
      const origin = await serve(test, directives({ ...all, ports: { ...all.ports, auth } }));
      const answer = await send(`${origin}/guarded/a`, { headers: [BOB] });
      assert.equal(answer.status, 502);
    }
    assert.deepEqual(all.app, []);
  });

  it('does not wait for the body of a service that allows a request', async (test) => {
    const all = await world(test);
    let closed = 0;
    const endless = await listen(test, (request, response) => {
      request.socket.once('close', () => {
        closed += 1;
      });
      const more = (): void => {
        if (!response.destroyed) response.write('x'.repeat(16_384), () => setImmediate(more));
      };
      response.writeHead(200, { 'Remote-User': 'bob' }).flushHeaders();
      if (String(request.headers['x-forwarded-uri']).endsWith('/much')) more();
    });
    const origin = await serve(
      test,
      directives({ ...all, ports: { ...all.ports, auth: endless } }),
    );
    for (const path of ['much', 'silent']) {
      const answer = await send(`${origin}/guarded/${path}`);
      assert.deepEqual([answer.status, answer.body], [200, 'the app'], path);
    }
    assert.deepEqual(
      [all.app.map(({ headers }) => headers['remote-user']), closed],
      [['bob', 'bob'], 2],
    );
  });

  it('guards every kind of request: HEAD, OPTIONS, upgrades', async (test) => {
    const all = await world(test);
    const origin = await serve(test, directives(all));
    for (const method of ['HEAD', 'OPTIONS', 'DELETE', 'PROPFIND']) {
      const answer = await send(`${origin}/guarded/a`, { method, headers: LIES });
      assert.equal(answer.status, 401, method);
    }
    const upgrade: RawRequest['headers'] = [
      ['Connection', 'Upgrade'],
      ['Upgrade', 'websocket'],
      ['Sec-WebSocket-Key', 'dGhlIHNhbXBsZSBub25jZQ=='],
      ['Sec-WebSocket-Version', '13'],
    ];
    const refused = await send(`${origin}/guarded/a`, { headers: upgrade });
    assert.equal(refused.status, 401);
    assert.deepEqual(all.app, []);
    // The service is asked by an ordinary request, and the app gets the upgrade.
    await send(`${origin}/guarded/a`, { headers: [...upgrade, BOB] });
    const upgrades = (asked: readonly Asked[]): unknown => asked.at(-1)?.headers.upgrade;
    assert.deepEqual([upgrades(all.auth), upgrades(all.app)], [undefined, 'websocket']);
  });

  it('gives the hub a token for a cookie, and no page of another origin publishes with it', async (test) => {
    const key = 'a-key-of-the-hub-with-enough-bytes';
    let token = '';
    const auth = await listen(test, ({ headers }, response) => {
      const isKnown = headers.cookie === 'session=bob' || headers.authorization === 'Bearer opaque';
      response.writeHead(isKnown ? 200 : 401, isKnown ? { Authorization: `Bearer ${token}` } : {});
      response.end();
    });
    const origin = await serve(
      test,
      `
	forward_auth 127.0.0.1:${auth} {
		uri /check
		copy_headers Authorization
	}
	hub {
		issuer https://i.example {
			publisher {
				jwt "${key}"
			}
		}
		anonymous
		cookie_name hub_token
		publish_origins https://page.example
		transport memory
	}
`,
    );
    const hub = `${origin}/.well-known/hub`;
    const { stdout } = await runCommand([
      ...['token', '--iss', 'https://i.example', '--aud', hub, '--key', key, '--publish', 'a'],
    ]);
    token = stdout.trim();
    const form = ['Content-Type', 'application/x-www-form-urlencoded'] as const;
    const publish = async (...fields: readonly (readonly [string, string])[]): Promise<number> => {
      const headers = [form, ...fields];
      return (await send(hub, { method: 'POST', headers, body: 'topic=a' })).status;
    };
    const foreign = ['Origin', 'https://other.example'] as const;
    const OPAQUE = ['Authorization', 'Bearer opaque'] as const;
    assert.equal(await publish(), 401);
    assert.equal(await publish(BOB), 200, 'a program');
    assert.equal(await publish(BOB, ['Origin', origin]), 200);
    assert.equal(await publish(BOB, ['Origin', 'https://page.example']), 200);
    assert.equal(await publish(BOB, foreign), 400);
    assert.equal(await publish(BOB, ['Origin', 'null']), 400);
    assert.equal(await publish(BOB, ALICE, foreign), 400, 'a password that the browser adds');
    // Nobody knows which of the two credentials has decided.
    assert.equal(await publish(BOB, OPAQUE, foreign), 400);
    assert.equal(await publish(BOB, ['Authorization', 'x'], foreign), 400);
    assert.equal(await publish(OPAQUE), 200, 'a program');
    assert.equal(await publish(OPAQUE, ['Origin', 'https://page.example']), 200);
  });

  it('behaves as in Caddy', async (test) => {
    const mine = await world(test);
    const theirs = await world(test);
    const caddy = await startCaddy(test, directives(theirs));
    if (caddy === null) return;
    const origin = await serve(test, directives(mine));
    const requests: readonly (readonly [string, RawRequest])[] = [
      ['/guarded/a?x=1', { headers: [BOB] }],
      ['/guarded/a', { method: 'POST', headers: [BOB, ['Content-Length', '1']], body: 'x' }],
      ['/guarded/a?pass=204', { headers: [BOB] }],
      ['/guarded/a?deny=302', {}],
      ['/guarded/a?deny=403', {}],
      ['/open', { headers: [BOB] }],
    ];
    for (const [path, request] of requests) {
      const own = await send(origin + path, request);
      const other = await send(caddy + path, request);
      assert.deepEqual(seen(own), seen(other), path);
    }
    // Caddy makes one field of several, and of one that is not there an empty one.
    const common = (one: Asked): object => ({ ...told(one), groups: null, absent: null });
    assert.deepEqual(mine.auth.map(common), theirs.auth.map(common));
    assert.deepEqual(mine.app.map(common), theirs.app.map(common));
  });

  it('runs the routes for its responses as Caddy does, and admits nobody whom the service refuses', async (test) => {
    const cases: readonly (readonly [options: string, path: string, request?: RawRequest])[] = [
      ['@bad status 401\nhandle_response @bad {\nrespond "please log in"\n}', '/guarded/a'],
      ['@bad status 401\nhandle_response @bad {\ncopy_response 200\n}', '/guarded/a'],
      ['@bad status 401\nreplace_status @bad 200', '/guarded/a'],
      ['handle_response {\nrespond "x" 203\n}', '/guarded/a'],
      ['handle_response {\nrespond "denied" 403\n}', '/guarded/a', { headers: [BOB] }],
      ['replace_status 403', '/guarded/a', { headers: [BOB] }],
      [
        '@bad status 401\nhandle_response @bad {\nrespond "log in for {uri}" 403\n}',
        '/guarded/a?x=1',
      ],
      ['header_up X-Asked-By {uri}', '/guarded/a?x=1'],
      ['@bad status 401\nhandle_response @bad {\nrequest_header X-Absent yes\n}', '/guarded/a'],
      ['copy_headers Remote-User>Cookie', '/guarded/a', { headers: [BOB] }],
      ['copy_headers Remote-User>Authorization', '/guarded/a', { headers: [BOB, ALICE] }],
      [
        'copy_headers Remote-User\nheader_down Remote-User changed',
        '/guarded/a',
        { headers: [BOB] },
      ],
      ['method HEAD', '/guarded/a', { headers: [BOB] }],
      [
        '@bad status 401\nhandle_response @bad {\nreverse_proxy 127.0.0.1:APP\n}',
        '/guarded/a?y=1',
        { method: 'POST', headers: [['Content-Length', '4']], body: 'form' },
      ],
    ];
    for (const [options, path, request = {}] of cases) {
      const [mine, theirs] = [await world(test), await world(test)];
      const lines = ({ ports }: World): string => `
        route {
          forward_auth 127.0.0.1:${ports.auth} {
            uri /check
            ${options.replace('APP', String(ports.app))}
          }
          reverse_proxy 127.0.0.1:${ports.app}
        }
      `;
      const origin = await serve(test, lines(mine));
      const own = await send(origin + path, request);
      const caddy = await startCaddy(test, lines(theirs));
      if (caddy === null) return;
      const other = await send(caddy + path, request);
      assert.deepEqual(seen(own), seen(other), options);
      const facts = (one: Asked): object => ({
        ...{ ...told(one), groups: null, absent: one.headers['x-absent'] ?? '' },
        cookie: one.headers.cookie,
        authorization: one.headers.authorization ?? '',
      });
      assert.deepEqual(mine.auth.map(facts), theirs.auth.map(facts), options);
      assert.deepEqual(mine.app.map(facts), theirs.app.map(facts), options);
    }
  });
});
