import assert from 'node:assert/strict';
import { once } from 'node:events';
import http from 'node:http';
import { text } from 'node:stream/consumers';
import { describe, it } from 'node:test';
import type { HandlerConfig, RouteConfig } from '../../../src/config/routes.ts';
import { ANY_RESPONSE } from '../../../src/config/shape-routes.ts';
import { openTunnel, tunnelOrigin } from '../../support/raw-tunnel.ts';
import { origin, proxyConfig, rawOrigin, until } from '../proxy/gateway.ts';
import { TestClock } from '../../support/test-clock.ts';
import { PROTOCOLS } from '../http/exchange-server.ts';
import { HeaderList } from '../../../src/http/header-list.ts';
import { on, path, respond, serveSite } from './site-server.ts';

const field: HandlerConfig = {
  kind: 'header',
  operations: [{ kind: 'set', name: 'X-Set', value: 'z' }],
  isDeferred: false,
  match: ANY_RESPONSE,
};
/** A field for every response, and another response for `/no`. */
const intercept: HandlerConfig = {
  kind: 'intercept',
  handleResponse: [
    {
      ...ANY_RESPONSE,
      replaceStatus: null,
      routes: [on(field), on(respond('no', 403), path('/no'))],
    },
  ],
};

async function serve(app: http.RequestListener) {
  const upstream = await origin(app);
  const site = await serveSite([on(intercept), on(proxyConfig([upstream.url]))]);
  return {
    port: site.http1,
    faults: site.faults,
    [Symbol.asyncDispose]: async () => {
      await site[Symbol.asyncDispose]();
      await upstream[Symbol.asyncDispose]();
    },
  };
}

async function responseOf(port: number, target = '/'): Promise<http.IncomingMessage> {
  const request = http.get({ host: '127.0.0.1', port, path: target, agent: false });
  const [response]: http.IncomingMessage[] = await once(request, 'response');
  assert.ok(response);
  return response;
}

async function textOf(response: http.IncomingMessage): Promise<string> {
  let text = '';
  for await (const chunk of response.setEncoding('latin1')) text += chunk;
  return text;
}

describe('intercept with routes that leave a response to the app', () => {
  it('passes the body on while it arrives', async () => {
    let more = (): void => {};
    await using site = await serve((_request, response) => {
      response.write('first');
      more = () => void response.end('second');
    });
    const response = await responseOf(site.port);
    let text = '';
    for await (const chunk of response.setEncoding('latin1')) {
      // The app sends the rest when the beginning has arrived.
      if (text === '') more();
      text += chunk;
    }
    assert.deepEqual([response.headers['x-set'], text], ['z', 'firstsecond']);
  });

  it('passes a large body and its trailer fields on', async () => {
    const body = 'a line\n'.repeat(300_000);
    await using site = await serve((_request, response) => {
      response.setHeader('Trailer', 'X-Sum');
      response.write(body);
      response.addTrailers({ 'X-Sum': '7' });
      response.end();
    });
    const response = await responseOf(site.port);
    assert.equal(await textOf(response), body);
    assert.equal(response.trailers['x-sum'], '7');
  });

  it('passes the trailer fields of a short response on', async () => {
    await using site = await serve((_request, response) => {
      response.setHeader('Trailer', 'X-Sum');
      response.addTrailers({ 'X-Sum': '7' });
      response.end('short');
    });
    const response = await responseOf(site.port);
    assert.equal(await textOf(response), 'short');
    assert.equal(response.trailers['x-sum'], '7');
  });

  it('drops the body if the routes respond, however large it is', async () => {
    await using site = await serve((_request, response) => {
      response.end('a line\n'.repeat(300_000));
    });
    const response = await responseOf(site.port, '/no');
    assert.deepEqual([response.statusCode, await textOf(response)], [403, 'no']);
    assert.deepEqual(site.faults, []);
  });

  it('sees no WebSocket that the app has opened, over HTTP/1.1 or HTTP/2', async () => {
    await using upstream = await tunnelOrigin((end) => end.end('tunnelled'));
    await using site = await serveSite([on(intercept), on(proxyConfig([upstream.url]))]);
    for (const isHttp2 of [false, true]) {
      const port = isHttp2 ? site.http2 : site.http1;
      const tunnel = await openTunnel(port, '/no', { isTls: false, isHttp2 });
      assert.equal(await text(tunnel), 'tunnelled');
      tunnel.destroy();
    }
    assert.deepEqual(site.faults, []);
  });

  it('cuts the client off if the app breaks off', async () => {
    await using site = await serve((_request, response) => {
      response.setHeader('Content-Length', '100');
      response.write('first', () => response.destroy());
    });
    const response = await responseOf(site.port);
    assert.equal(response.statusCode, 200);
    await assert.rejects(textOf(response), { code: 'ECONNRESET' });
  });

  const half = 'HTTP/1.1 500 Oops\r\nX-First: 1\r\nContent-Length: 100\r\n\r\nhalf';
  const garbled = 'HTTP/1.1 500 Oops\r\nTransfer-Encoding: chunked\r\n\r\nno chunk\r\n';
  for (const [name, bytes] of [
    ['while they run', half],
    ['at once', garbled],
  ] as const) {
    it(`asks no other upstream if one breaks off ${name}`, async () => {
      let breakOff = (): void => {};
      await using first = await rawOrigin((socket) => {
        socket.write(bytes);
        breakOff = () => socket.destroy();
      });
      let asked = 0;
      await using second = await origin((_request, response) => {
        asked += 1;
        response.end('second');
      });
      /** Ends its response when the first upstream has failed once more. */
      let failures = 0;
      const failed = async (): Promise<void> => {
        breakOff();
        failures += 1;
        const upstreams = site.registry.upstreams();
        const upstream = upstreams.find(({ address }) => address.port === first.port);
        await until(
          () => upstream?.measures.failures === failures,
          'the first upstream has failed',
        );
      };
      await using slow = await origin((_request, response) => {
        response.write('one ');
        void failed().then(() => response.end('two'));
      });
      const passing = proxyConfig([slow.url], {
        handleResponse: [{ ...ANY_RESPONSE, replaceStatus: null, routes: [] }],
      });
      const policy = { kind: 'first' } as const;
      const loadBalancing = { tryDurationMs: 0, tryIntervalMs: 1, retries: 1, retryMatch: null };
      await using site = await serveSite([
        on({
          kind: 'intercept',
          handleResponse: [
            {
              ...ANY_RESPONSE,
              status: ['5xx'],
              replaceStatus: null,
              routes: [
                on(proxyConfig([slow.url]), path('/own')),
                on(passing, path('/none', '/no')),
                on(respond('no', 403), path('/no')),
              ],
            },
          ],
        }),
        on(proxyConfig([first.url, second.url], { loadBalancing: { policy, ...loadBalancing } })),
      ]);
      for (const [target, ...expected] of [
        ['/none', 502, null],
        ['/no', 403, 'no'],
        ['/own', 200, 'one two'],
      ] as const) {
        const response = await responseOf(site.http1, target);
        const body = await textOf(response);
        assert.deepEqual([response.statusCode, expected[1] && body], expected, target);
      }
      assert.equal(asked, 0);
      assert.deepEqual(site.faults, []);
    });
  }
});

/** Only a 404, which the app may store. */
function rulesFor(...routes: RouteConfig[]) {
  return [{ ...ANY_RESPONSE, status: ['404'], replaceStatus: null, routes }];
}

const hub: HandlerConfig = { kind: 'hub', name: null };
const cache: HandlerConfig = {
  kind: 'cache',
  ttlMs: 60_000,
  staleMs: 0,
  maxSize: 1_000_000,
  maxBody: 500_000,
  varyOn: [],
};
const intercepting: HandlerConfig = { kind: 'intercept', handleResponse: rulesFor(on(hub)) };
/** The directives before the app, with the hub as a route that decides. */
const STACKS: Record<string, (app: string) => RouteConfig[]> = {
  intercept: (app) => [on(intercepting), on(proxyConfig([app]))],
  'intercept and response buffers': (app) => [
    on(intercepting),
    on(proxyConfig([app], { responseBuffers: 3 })),
  ],
  'intercept and cache': (app) => [on(intercepting), on(cache), on(proxyConfig([app]))],
  'two intercepts': (app) => [
    on({ kind: 'intercept', handleResponse: rulesFor() }),
    on(intercepting),
    on(proxyConfig([app])),
  ],
  'an intercept around one that passes': (app) => [
    on(intercepting),
    on({ kind: 'intercept', handleResponse: rulesFor() }),
    on(proxyConfig([app])),
  ],
  handle_response: (app) => [
    on(
      proxyConfig([app], {
        handleResponse: rulesFor(on(hub), on({ kind: 'copy_response', status: null })),
      }),
    ),
  ],
  'handle_response in intercept': (app) => [
    on({ kind: 'intercept', handleResponse: rulesFor() }),
    on(
      proxyConfig([app], {
        handleResponse: rulesFor(on(hub), on({ kind: 'copy_response', status: null })),
      }),
    ),
  ],
};

const HEAD = 'HTTP/1.1 404 No\r\nCache-Control: max-age=60\r\n';

describe('routes for a response that the app breaks off', () => {
  for (const [stack, routesTo] of Object.entries(STACKS)) {
    for (const { name, ask, port } of PROTOCOLS) {
      it(`send their own response completely: ${stack}, over ${name}`, async () => {
        let breakOff = (): void => {};
        await using app = await rawOrigin((socket) => {
          socket.write(`${HEAD}Content-Length: 100000\r\n\r\nhalf`);
          breakOff = () => socket.destroy();
        });
        let failures = 0;
        await using site = await serveSite(routesTo(app.url), {
          hub: async (exchange, next) => {
            const begin = () =>
              exchange.begin({ status: 404, headers: new HeaderList(), source: 'gateway' });
            const begun = exchange.target === '/begun' ? begin() : null;
            begun?.write('one ');
            breakOff();
            failures += 1;
            const failed = () => site.registry.upstreams()[0]?.measures.failures === failures;
            await until(failed, 'the app has failed');
            for (let turn = 0; turn < 5; turn += 1) await new Promise((done) => setImmediate(done));
            if (begun !== null) begun.end('two');
            else if (exchange.target === '/late') begin().end('one two');
            else await next();
          },
        });
        for (const [target, ...expected] of [
          ['/begun', 404, 'one two', false],
          ['/late', 404, 'one two', false],
          ['/none', 502, null, false],
        ] as const) {
          const { status, body, broken } = await ask(port(site), { path: target });
          assert.deepEqual([status, expected[1] && body, broken], expected, target);
        }
        assert.deepEqual(site.faults, []);
      });
    }
  }
});

describe('routes that replace an endless response', () => {
  for (const [stack, routesTo] of Object.entries(STACKS)) {
    for (const [what, more] of [
      ['silent', ''],
      ['large', 'x'.repeat(1_000_000)],
    ] as const) {
      it(`tell the app to stop: ${stack}, a ${what} one`, async () => {
        const clock = new TestClock();
        await using app = await rawOrigin((socket) => {
          socket.write(`${HEAD}Content-Length: 100000000\r\n\r\nhalf`);
          socket.write(more);
        });
        await using site = await serveSite(routesTo(app.url), {
          clock,
          hub: (exchange) => {
            exchange
              .begin({ status: 404, headers: new HeaderList(), source: 'gateway' })
              .end('other');
          },
        });
        const response = await responseOf(site.http1);
        assert.equal(await textOf(response), 'other');
        await until(() => {
          if (what === 'silent') clock.advance(1000);
          return app.open() === 0;
        }, 'the app is told to stop');
        assert.deepEqual(site.faults, []);
      });
    }
  }

  it('answer after a short rest, which keeps the connection to the app', async () => {
    await using app = await rawOrigin((socket) => {
      socket.write(`${HEAD}Content-Length: 8\r\n\r\nhalf`);
      setImmediate(() => socket.write('half'));
    });
    await using site = await serveSite([
      on({ kind: 'intercept', handleResponse: rulesFor(on(respond('other', 403))) }),
      on(proxyConfig([app.url])),
    ]);
    for (let round = 0; round < 2; round += 1) {
      const response = await responseOf(site.http1);
      assert.deepEqual([response.statusCode, await textOf(response)], [403, 'other']);
      const [upstream] = site.registry.upstreams();
      await until(() => upstream?.inFlight === 0, 'the response of the app has ended');
    }
    assert.equal(app.connections(), 1);
  });

  it('get all of the body of the request, or none, whenever it and the response of the app arrive', async () => {
    await using backup = await origin((request, response) => void request.pipe(response));
    // Where nothing is sent early, the head waits for 20 ms, and the rest arrives just after the response of the app.
    const cases = [20, 22, 24, 26, 28, 40].flatMap((wait) =>
      ['', 'half'].flatMap((rest) => ['', '01234'].map((early) => [wait, early, rest] as const)),
    );
    for (const [wait, early, rest] of cases) {
      await using app = await rawOrigin((socket) => {
        socket.write(`${HEAD}Content-Length: ${4 + rest.length}\r\n\r\nhalf`);
        setTimeout(() => socket.write(rest), 20);
      });
      const routes = rulesFor(on(proxyConfig([backup.url])));
      await using site = await serveSite([
        on({ kind: 'intercept', handleResponse: routes }),
        on(proxyConfig([app.url])),
      ]);
      const request = http.request({ host: '127.0.0.1', port: site.http1, method: 'POST' });
      request.flushHeaders();
      if (early !== '') request.write(early);
      setTimeout(() => request.end('56789'), wait);
      const [response]: http.IncomingMessage[] = await once(request, 'response');
      assert.ok(response);
      const body = await textOf(response);
      if (response.statusCode === 200) assert.equal(body, `${early}56789`);
      else assert.equal(response.statusCode, 502);
    }
  });

  it('slow the client down if their upstream does not read, also when the response of the app has ended', async () => {
    let isAsked = false;
    let hasBegun = false;
    await using backup = await origin((request) => {
      isAsked = true;
      request.once('data', () => {
        request.pause();
        hasBegun = true;
      });
    });
    await using app = await rawOrigin((socket) => {
      socket.write(`${HEAD}Content-Length: 8\r\n\r\nhalf`);
      void until(() => hasBegun, 'the backup reads').then(() => socket.write('half'));
    });
    await using site = await serveSite([
      on({
        kind: 'intercept',
        handleResponse: rulesFor(on(proxyConfig([backup.url]), path('/upload'))),
      }),
      on(proxyConfig([app.url])),
    ]);
    const request = http.request({
      ...{ host: '127.0.0.1', port: site.http1, path: '/upload', method: 'POST', agent: false },
    });
    request.on('error', () => {});
    request.flushHeaders();
    await until(() => isAsked, 'the backup waits for the body');
    const piece = Buffer.alloc(1024 * 1024);
    let sent = 0;
    let waits = false;
    while (!waits && sent < 200) {
      sent += 1;
      if (request.write(piece)) continue;
      waits = await Promise.race([
        once(request, 'drain').then(() => false),
        new Promise<true>((resolve) => setTimeout(() => resolve(true), 500)),
      ]);
    }
    request.destroy();
    assert.ok(sent < 200, `${sent} MiB`);
  });

  it('have responded, although routes further out may replace that too', async () => {
    await using app = await rawOrigin((socket) => {
      socket.write(`${HEAD}Content-Length: 3\r\n\r\napp`);
    });
    let runs = 0;
    await using site = await serveSite(
      [on(intercepting), on(intercepting), on(proxyConfig([app.url]))],
      {
        hub: async (exchange, next) => {
          runs += 1;
          if (runs === 2) {
            // The routes further out decide later.
            for (let turn = 0; turn < 5; turn += 1) await new Promise((done) => setImmediate(done));
            return next();
          }
          const head = { status: 404, headers: new HeaderList(), source: 'gateway' } as const;
          exchange.begin(head).end('other');
          return new Promise((turn) => setImmediate(turn));
        },
      },
    );
    const response = await responseOf(site.http1);
    assert.equal(await textOf(response), 'other');
    assert.deepEqual(site.faults, []);
  });

  it('may take longer than a client may stall', async () => {
    const clock = new TestClock();
    await using app = await rawOrigin((socket) => {
      socket.write(`${HEAD}Content-Length: 100000000\r\n\r\n${'x'.repeat(2_000_000)}`);
    });
    let isOver = false;
    const handled = STACKS['handle_response']?.(app.url) ?? [];
    await using site = await serveSite(handled, {
      clock,
      hub: async (exchange) => {
        const head = { status: 404, headers: new HeaderList(), source: 'gateway' } as const;
        const body = exchange.begin(head);
        body.write('one ');
        await until(() => {
          clock.advance(120_000);
          return app.open() === 0;
        }, 'the app has waited for too long');
        isOver = true;
        body.end('two');
      },
    });
    const response = await responseOf(site.http1);
    assert.equal(await textOf(response), 'one two');
    assert.ok(isOver);
  });
});

describe('fields that a message has only once, where another app responds instead', () => {
  const ofFirst = { 'Content-Type': 'text/plain', Location: '/first', 'Retry-After': '1' };
  const ofOther = { 'Content-Type': 'application/json', Location: '/other' };
  const set = (name: string, value: string): HandlerConfig => ({
    kind: 'header',
    operations: [{ kind: 'set', name, value }],
    isDeferred: false,
    match: ANY_RESPONSE,
  });

  /** The values of these fields, when the first app's 404 is replaced by the response of the other app. */
  async function fieldsOf(
    inside: readonly HandlerConfig[],
    {
      before = [],
      by = 'intercept',
    }: { before?: HandlerConfig[]; by?: 'intercept' | 'proxy' } = {},
  ): Promise<Record<string, string>> {
    await using first = await origin((_, response) => void response.writeHead(404, ofFirst).end());
    await using other = await origin((_, response) => void response.writeHead(200, ofOther).end());
    const routes = [...inside, proxyConfig([other.url])].map((one) => on(one));
    const handleResponse = [{ ...ANY_RESPONSE, status: ['404'], replaceStatus: null, routes }];
    const proxy = proxyConfig([first.url]);
    const handlers: HandlerConfig[] =
      by === 'intercept'
        ? [{ kind: 'intercept', handleResponse }, proxy]
        : [{ ...proxy, handleResponse }];
    await using site = await serveSite([...before, ...handlers].map((one) => on(one)));
    const response = await responseOf(site.http1);
    response.resume();
    const names = ['content-type', 'location', 'retry-after'];
    const all = names.map((name) => [name, response.headersDistinct[name]?.join(' | ') ?? '']);
    return Object.fromEntries(all);
  }

  it('are those of the response that is sent', async () => {
    assert.deepEqual(await fieldsOf([]), {
      'content-type': 'application/json',
      location: '/other',
      'retry-after': '1',
    });
  });

  it('are what the routes have set', async () => {
    const fields = await fieldsOf([set('Location', '/set')]);
    assert.equal(fields['location'], '/set');
    assert.equal(fields['content-type'], 'application/json');
  });

  it('are what was set in front', async () => {
    const before = [set('Content-Type', 'text/plain'), set('Retry-After', '9')];
    assert.deepEqual(await fieldsOf([], { before }), {
      'content-type': 'text/plain',
      location: '/other',
      'retry-after': '9',
    });
  });

  it('are those of the response that is sent, if the others were copied', async () => {
    const copy: HandlerConfig = { kind: 'copy_response_headers', include: [], exclude: [] };
    assert.deepEqual(await fieldsOf([copy], { by: 'proxy' }), {
      'content-type': 'application/json',
      location: '/other',
      'retry-after': '1',
    });
  });

  it('are those of the response to an error in the routes', async () => {
    await using first = await origin((_, response) => void response.writeHead(404, ofFirst).end());
    await using other = await origin((_, response) => void response.writeHead(200, ofOther).end());
    const routes = [on({ kind: 'error', status: 503, message: '' })];
    const handleResponse = [{ ...ANY_RESPONSE, replaceStatus: null, routes }];
    await using site = await serveSite(
      [on({ kind: 'intercept', handleResponse }), on(proxyConfig([first.url]))],
      { errorRoutes: [on(proxyConfig([other.url]))] },
    );
    const response = await responseOf(site.http1);
    response.resume();
    assert.deepEqual(response.headersDistinct['content-type'], ['application/json']);
  });
});
