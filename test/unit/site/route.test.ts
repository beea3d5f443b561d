import assert from 'node:assert/strict';
import { EventEmitter, once } from 'node:events';
import { describe, it } from 'node:test';
import type { HandlerConfig } from '../../../src/config/routes.ts';
import { answer } from '../../../src/http/answer.ts';
import { HeaderList } from '../../../src/http/header-list.ts';
import { defaultRequestBody } from '../../../src/directives/request-body.ts';
import { TestClock } from '../../support/test-clock.ts';
import { ask1, PROTOCOLS } from '../http/exchange-server.ts';
import { ANY_RESPONSE } from '../../../src/config/shape-routes.ts';
import { freePort } from '../../support/free-port.ts';
import { origin, proxyConfig } from '../proxy/gateway.ts';
import { on, path, respond, serveSite } from './site-server.ts';

const plainHeader = { kind: 'header', isDeferred: false, match: ANY_RESPONSE } as const;

describe('routes', () => {
  it('run in order until one responds; otherwise the response is 404', async () => {
    await using site = await serveSite([
      on({ ...plainHeader, operations: [{ kind: 'set', name: 'X-A', value: '{path}' }] }),
      on(respond('one'), path('/one')),
      on(respond('two'), path('/one', '/two')),
    ]);
    const one = await ask1(site.http1, { path: '/one' });
    assert.equal(one.body, 'one');
    assert.equal(one.headers['x-a'], '/one');
    assert.equal((await ask1(site.http1, { path: '/two' })).body, 'two');
    const none = await ask1(site.http1, { path: '/three' });
    assert.equal(none.status, 404);
    assert.equal(none.headers['x-a'], '/three');
  });

  it('see the rewrites of earlier routes', async () => {
    await using site = await serveSite([
      on({ kind: 'rewrite', group: 0, to: '/new?from={path}' }, path('/old')),
      on(respond('{uri}'), path('/new')),
    ]);
    assert.equal((await ask1(site.http1, { path: '/old' })).body, '/new?from=%2Fold');
  });

  it('of one handle group exclude each other; those of another group still run', async () => {
    const handle = (group: number, body: string | null, only: string): ReturnType<typeof on> =>
      on(
        { kind: 'handle', group, routes: body === null ? [] : [on(respond(body))] },
        only === '' ? null : path(only),
      );
    await using site = await serveSite([
      handle(1, null, '/a*'),
      handle(1, 'second', '/ab'),
      handle(1, 'last', ''),
      handle(2, 'other group', ''),
    ]);
    assert.equal((await ask1(site.http1, { path: '/ab' })).body, 'other group');
    assert.equal((await ask1(site.http1, { path: '/x' })).body, 'last');
  });

  it('pass hub requests to the hub and continue with the rest', async () => {
    await using site = await serveSite([on({ kind: 'hub', name: null }), on(respond('app'))], {
      hub: (exchange, next) => {
        if (exchange.target !== '/hub') return next();
        answer(exchange, 200, {}, 'hub');
        return undefined;
      },
    });
    assert.equal((await ask1(site.http1, { path: '/hub' })).body, 'hub');
    assert.equal((await ask1(site.http1, { path: '/' })).body, 'app');
  });

  for (const [change, target, expected] of [
    [{ kind: 'strip_prefix', text: '/api' }, '/api/x?y=1', '/x?y=1'],
    [{ kind: 'strip_prefix', text: '/api' }, '/%41pi/x', '/x'],
    [{ kind: 'strip_prefix', text: '/api' }, '/api', '/'],
    [{ kind: 'strip_prefix', text: '/api' }, '/other', '/other'],
    [{ kind: 'strip_prefix', text: '/É b' }, '/%C3%89%20B/x', '/x'],
    [{ kind: 'strip_prefix', text: '/é' }, '/%C3%89/x', '/x'],
    [{ kind: 'strip_suffix', text: '.html' }, '/a.html?q', '/a?q'],
    [{ kind: 'strip_suffix', text: '.html' }, '/%C3%A9.%48TML', '/%C3%A9'],
    [{ kind: 'strip_suffix', text: '/É b' }, '/a%2F%c3%a9%20B', '/a'],
    [{ kind: 'strip_suffix', text: '/é' }, '/a/%C3%A9x', '/a/%C3%A9x'],
    [{ kind: 'replace', text: '/a', replacement: '/b', limit: 1 }, '/a/a', '/b/a'],
    [{ kind: 'replace', text: '/a', replacement: '/b', limit: 0 }, '/a/a', '/b/b'],
  ] as const) {
    it(`uri ${change.kind} ${change.text} makes ${target} ${expected}`, async () => {
      const handler: HandlerConfig = { kind: 'uri', change };
      await using site = await serveSite([on(handler), on(respond('{uri}'))]);
      assert.equal((await ask1(site.http1, { path: target })).body, expected);
    });
  }

  for (const [to, target, expected] of [
    ['/index.php', '/a?x=1', '/index.php?x=1'],
    ['/index.php?p={path}', '/a?x=1', '/index.php?p=%2Fa'],
    ['?only=query', '/a?x=1', '/a?only=query'],
    ['/index.php?', '/a?x=1', '/index.php'],
    ['/index.php?p={path.0}&{query}', '/a%26b?x=1&y=%20', '/index.php?p=a%26b&x=1&y=%20'],
    ['/index.php?p={query.x}&{query.y}&z', '/a?x=1%262+3', '/index.php?p=1%262+3&z'],
    ['/new{?query}', '/a?x=1', '/new?x=1'],
    ['/app{uri}', '/a?x=1', '/app/a?x=1'],
    ['/{query.name}', '/?name=%0d%0aé', '/%0D%0A%C3%A9?name=%0d%0a%C3%A9'],
  ] as const) {
    it(`rewrite ${to} makes ${target} ${expected}`, async () => {
      await using site = await serveSite([
        on({ kind: 'rewrite', group: 0, to }),
        on(respond('{uri}')),
      ]);
      assert.equal(
        (await ask1(site.http1, { path: encodeURI(target).replaceAll('%25', '%') })).body,
        expected,
      );
    });
  }

  it('refuses a NUL that a rewrite brings into the path, as in the path of the client', async () => {
    await using site = await serveSite([
      on({ kind: 'rewrite', group: 0, to: '/x/{query.q}' }),
      on(respond('{uri}')),
    ]);
    assert.equal((await ask1(site.http1, { path: '/?q=%00' })).status, 400);
    assert.equal((await ask1(site.http1, { path: '/?q=%2500' })).status, 400);
  });

  it('redir redirects, but never to another host that the client chose', async () => {
    await using site = await serveSite([
      on({ kind: 'redir', to: 'https://{host}{uri}', status: 308 }, path('/to-tls*')),
      on({ kind: 'redir', to: '{path}/', status: 302 }),
    ]);
    const tls = await ask1(site.http1, {
      path: '/to-tls?x=1',
      headers: { Host: 'site.example:80' },
    });
    assert.equal(tls.status, 308);
    assert.equal(tls.headers['location'], 'https://site.example/to-tls?x=1');
    const slashes = await ask1(site.http1, { path: '//evil.example' });
    assert.equal(slashes.headers['location'], '/evil.example/');
  });

  it('request_header and header change requests and responses', async () => {
    await using upstream = await origin((request, response) => {
      response.setHeader('Server', 'app');
      response.setHeader('X-Kept', '1');
      response.end(String(request.headers['x-added']));
    });
    await using site = await serveSite([
      on({
        kind: 'request_header',
        operations: [{ kind: 'set', name: 'X-Added', value: '{method}' }],
      }),
      on({
        ...plainHeader,
        isDeferred: true,
        operations: [
          { kind: 'delete', name: 'Server' },
          { kind: 'set', name: 'X-Copy', value: '{http.response.header.X-Kept}' },
        ],
      }),
      on(proxyConfig([upstream.url])),
    ]);
    const reply = await ask1(site.http1);
    assert.equal(reply.body, 'GET');
    assert.equal(reply.headers['server'], undefined);
    assert.equal(reply.headers['x-copy'], '1');
  });

  it('abort closes the connection without a response', async () => {
    await using site = await serveSite([on({ kind: 'abort' })]);
    await assert.rejects(ask1(site.http1), { code: 'ECONNRESET' });
    assert.deepEqual(site.faults, []);
  });

  for (const { name, ask, port } of PROTOCOLS) {
    it(`request_body refuses larger bodies with 413, declared or not, over ${name}`, async () => {
      let reached = 0;
      await using upstream = await origin((request, response) => {
        request.on('data', () => {});
        request.on('end', () => {
          reached += 1;
          response.end('ok');
        });
      });
      await using site = await serveSite([
        on({ kind: 'request_body', ...defaultRequestBody, maxSize: 10 }),
        on(proxyConfig([upstream.url])),
      ]);
      const post = (body: string, chunked: boolean) =>
        ask(port(site), {
          method: 'POST',
          body,
          chunked,
          headers: chunked ? {} : { 'content-length': String(body.length) },
        });
      assert.equal((await post('0123456789', true)).body, 'ok');
      assert.equal((await post('0123456789', false)).body, 'ok');
      assert.equal((await post('0123456789x', false)).status, 413);
      assert.equal((await post('0123456789x', true)).status, 413);
      assert.equal(reached, 2);
    });

    it(`request_body answers a body that takes too long with 408, over ${name}`, async () => {
      const clock = new TestClock();
      const reading = new EventEmitter();
      const begun = once(reading, 'begun');
      await using site = await serveSite(
        [
          on({ kind: 'request_body', ...defaultRequestBody, readTimeoutMs: 1000 }),
          on({ kind: 'hub', name: null }),
        ],
        {
          clock,
          hub: async (exchange) => {
            reading.emit('begun');
            for await (const _ of exchange.body);
            answer(exchange, 200, {}, 'whole');
          },
        },
      );
      const slow = ask(port(site), { method: 'POST', body: 'a', chunked: true, unended: true });
      await begun;
      clock.advance(999);
      assert.equal(clock.waiting, 1);
      clock.advance(1);
      assert.equal((await slow).status, 408);
      const quick = await ask(port(site), { method: 'POST', body: 'a', chunked: true });
      assert.equal(quick.body, 'whole');
      assert.equal(clock.waiting, 0);
      assert.deepEqual(site.faults, []);
    });

    it(`request_body aborts a response that takes too long, over ${name}`, async () => {
      const clock = new TestClock();
      const waiting = new EventEmitter();
      const reached = once(waiting, 'reached');
      await using site = await serveSite(
        [
          on({ kind: 'request_body', ...defaultRequestBody, writeTimeoutMs: 1000 }),
          on({ kind: 'hub', name: null }),
        ],
        {
          clock,
          hub: async (exchange) => {
            if (exchange.target === '/quick') {
              answer(exchange, 200, {}, 'whole');
              return;
            }
            exchange
              .begin({ status: 200, headers: new HeaderList(), source: 'gateway' })
              .write('a');
            waiting.emit('reached');
            await new Promise<void>((resolve) => exchange.onAbandoned(resolve));
          },
        },
      );
      assert.equal((await ask(port(site), { path: '/quick' })).body, 'whole');
      assert.equal(clock.waiting, 0);
      const slow = ask(port(site)).then(
        ({ broken }) => broken,
        () => true,
      );
      await reached;
      clock.advance(1000);
      assert.equal(await slow, true);
      assert.deepEqual(site.faults, []);
    });
  }
});

describe('an error thrown by a handler', () => {
  it('is answered with its phrase and the request id, without detail', async () => {
    const gone = `http://127.0.0.1:${await freePort()}`;
    await using site = await serveSite([on(proxyConfig([gone]))]);
    const reply = await ask1(site.http1);
    assert.equal(reply.status, 502);
    assert.equal(reply.body, 'Bad Gateway\n');
    assert.match(String(reply.headers['x-request-id']), /^[\da-f-]{36}$/);
  });

  it('is answered by the error routes, which see the status and an unread body', async () => {
    await using upstream = await origin((request, response) => {
      response.end(`page ${request.url} ${request.method} ${request.headers['content-length']}`);
    });
    const gone = `http://127.0.0.1:${await freePort()}`;
    await using site = await serveSite([on(proxyConfig([gone]))], {
      errorRoutes: [
        on({ kind: 'rewrite', group: 0, to: '/{err.status_code}.html' }),
        on(proxyConfig([upstream.url])),
      ],
    });
    const reply = await ask1(site.http1, { method: 'POST', body: 'x' });
    assert.equal(reply.body, 'page /502.html POST 1');
  });

  it('keeps its status on the error page, unless the page sets another', async () => {
    const page = (status: number | null): HandlerConfig => {
      return { kind: 'respond', status, body: 'sorry', close: false };
    };
    for (const [written, status] of [
      [null, 418],
      [200, 200],
    ] as const) {
      await using site = await serveSite([on({ kind: 'error', status: 418, message: '' })], {
        errorRoutes: [on(page(written))],
      });
      const reply = await ask1(site.http1);
      assert.deepEqual([reply.status, reply.body], [status, 'sorry']);
    }
    await using site = await serveSite([on(page(null))]);
    assert.equal((await ask1(site.http1)).status, 200);
  });

  it('gets a plain response when the error routes fail or do not respond', async () => {
    await using failing = await serveSite([on({ kind: 'error', status: 503, message: '' })], {
      errorRoutes: [on({ kind: 'error', status: 500, message: '' })],
    });
    assert.equal((await ask1(failing.http1)).status, 503);
    await using silent = await serveSite([on({ kind: 'error', status: 503, message: '' })], {
      errorRoutes: [on(respond('never'), path('/never'))],
    });
    assert.equal((await ask1(silent.http1)).status, 503);
  });

  it('is 500 without detail when it is not an HttpError', async () => {
    await using site = await serveSite([on({ kind: 'hub', name: null })], {
      hub: () => {
        throw new TypeError('secret');
      },
    });
    const reply = await ask1(site.http1);
    assert.equal(reply.status, 500);
    assert.doesNotMatch(reply.body, /secret/);
  });
});

describe('forward_auth', () => {
  const auth = (url: string): HandlerConfig => ({
    kind: 'forward_auth',
    proxy: proxyConfig([url]),
    uri: '/verify?x=1',
    copyHeaders: [
      { from: 'Remote-User', to: 'Remote-User' },
      { from: 'Remote-Groups', to: 'X-Groups' },
    ],
  });

  it('removes fields that an app treating _ as - would mistake for a field of the service (RFC 3875 §4.1.18)', async () => {
    await using service = await origin((_, response) => {
      response.writeHead(200, { 'Remote-User': 'zoe' }).end();
    });
    let seen: string[] = [];
    await using app = await origin((request, response) => {
      seen = request.rawHeaders.filter((name) => /user|groups/i.test(name));
      response.end();
    });
    await using site = await serveSite([on(auth(service.url)), on(proxyConfig([app.url]))]);
    const headers = { Remote_User: 'admin', X_Groups: 'admins', 'Remote-User': 'admin' };
    assert.equal((await ask1(site.http1, { headers })).status, 200);
    assert.deepEqual(seen, ['Remote-User']);
  });

  for (const { name, ask, port } of PROTOCOLS) {
    it(`sends a GET, and passes allowed requests on with the named fields, over ${name}`, async () => {
      let asked: unknown;
      await using service = await origin((request, response) => {
        const { headers } = request;
        asked = [
          request.method,
          request.url,
          headers['x-forwarded-method'],
          headers['x-forwarded-uri'],
          headers['content-length'],
        ];
        response.writeHead(200, { 'Remote-User': 'zoe' }).end('granted');
      });
      await using app = await origin((request, response) => {
        const { headers } = request;
        response.writeHead(200, {
          'X-Seen': `${String(headers['remote-user'])} ${String(headers['x-groups'])}`,
        });
        request.pipe(response);
      });
      await using site = await serveSite([on(auth(service.url)), on(proxyConfig([app.url]))]);
      const reply = await ask(port(site), {
        method: 'POST',
        path: '/page?y=2',
        body: 'the body',
        headers: { 'remote-user': 'admin', 'x-groups': 'admins' },
      });
      assert.deepEqual(asked, ['GET', '/verify?x=1', 'POST', '/page?y=2', undefined]);
      assert.equal(reply.headers['x-seen'], 'zoe undefined');
      assert.equal(reply.body, 'the body');
    });

    it(`responds with the refusal of the service, over ${name}`, async () => {
      let reached = false;
      await using service = await origin((_, response) =>
        response.writeHead(302, { Location: '/login', 'Set-Cookie': ['a=1', 'b=2'] }).end('go'),
      );
      await using app = await origin((_, response) => {
        reached = true;
        response.end();
      });
      await using site = await serveSite([on(auth(service.url)), on(proxyConfig([app.url]))]);
      const reply = await ask(port(site));
      assert.equal(reply.status, 302);
      assert.equal(reply.headers['location'], '/login');
      assert.deepEqual(reply.headers['set-cookie'], ['a=1', 'b=2']);
      assert.equal(reply.body, 'go');
      assert.equal(reached, false);
    });
  }

  it('lets no request pass when the service cannot be reached', async () => {
    let reached = false;
    await using app = await origin((_, response) => {
      reached = true;
      response.end();
    });
    await using site = await serveSite([
      on(auth(`http://127.0.0.1:${await freePort()}`)),
      on(proxyConfig([app.url])),
    ]);
    assert.equal((await ask1(site.http1)).status, 502);
    assert.equal(reached, false);
  });
});
