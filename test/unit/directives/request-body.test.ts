import assert from 'node:assert/strict';
import { once } from 'node:events';
import http from 'node:http';
import http2 from 'node:http2';
import { connect, createServer } from 'node:net';
import type { Writable } from 'node:stream';
import { text } from 'node:stream/consumers';
import { describe, it } from 'node:test';
import { limitRequestBody } from '../../../src/directives/request-body.ts';
import { HttpError } from '../../../src/http/errors.ts';
import type { Exchange } from '../../../src/http/exchange.ts';
import { HeaderList } from '../../../src/http/header-list.ts';
import { systemClock } from '../../../src/kernel/clock.ts';
import { TestClock } from '../../support/test-clock.ts';
import { PROTOCOLS, portOf, serveExchanges } from '../http/exchange-server.ts';
import { origin, proxyConfig, until } from '../proxy/gateway.ts';
import { on, path, respond, serveSite } from '../site/site-server.ts';

const HANDLER = 'request_body';
const CRLF = Buffer.from('\r\n');

function answer(exchange: Exchange): void {
  exchange.begin({ status: 200, headers: new HeaderList(), source: 'gateway' }).end();
}

/** Reads some of the body as a proxy does whose upstream answers before it has read everything. */
async function readSome(exchange: Exchange): Promise<void> {
  const body = exchange.lendBody({ onWanted: () => {}, stall: null });
  assert.ok(body);
  await once(body, 'data');
  body.destroy();
}

/** Sends a whole POST with this body and then a GET; resolves to the statuses of the responses. */
async function statusesOf(port: number, framing: string, ...body: Buffer[]): Promise<string[]> {
  const socket = connect(port, '127.0.0.1');
  socket.write(`POST / HTTP/1.1\r\nHost: a\r\n${framing}\r\n\r\n`);
  for (const part of body) socket.write(part);
  // The gateway reads this request after the body.
  socket.write('GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n');
  let received = '';
  for await (const chunk of socket.setEncoding('latin1')) received += chunk;
  return Array.from(received.matchAll(/HTTP\/1\.1 (\d+)/g), ([, status]) => status ?? '');
}

const SILENCE = { limitMs: 60_000, clock: systemClock, over: () => new Error('silent') };

describe('max_size of request_body', () => {
  it('lets a client send the rest of a body that turns out to be too long', async () => {
    const limits = { maxSize: 100_000, readTimeoutMs: 0, writeTimeoutMs: 0 };
    const limit = limitRequestBody({ kind: HANDLER, ...limits }, { clock: systemClock });
    await using server = await serveExchanges(
      (exchange) =>
        limit(exchange, async () => {
          for await (const _ of exchange.body);
          answer(exchange);
        }),
      SILENCE,
    );
    const chunk = Buffer.concat([Buffer.from('10000\r\n'), Buffer.alloc(0x10000), CRLF]);
    const body = [...Array.from({ length: 16 }, () => chunk), Buffer.from('0\r\n\r\n')];
    const statuses = await statusesOf(server.http1, 'Transfer-Encoding: chunked', ...body);
    assert.deepEqual(statuses, ['413', '200']);
  });

  const handlers: Record<string, (exchange: Exchange) => void | Promise<void>> = {
    'answers without it': answer,
    'fails without it': () => {
      throw new HttpError(403, 'no');
    },
    'answers after a part of it': async (exchange) => {
      await readSome(exchange);
      answer(exchange);
    },
    'fails after a part of it': async (exchange) => {
      await readSome(exchange);
      throw new HttpError(502, 'gone');
    },
  };
  for (const [name, handle] of Object.entries(handlers)) {
    it(`lets a client send the rest of a body if a handler ${name}`, async () => {
      const limits = { maxSize: 10_000_000, readTimeoutMs: 0, writeTimeoutMs: 0 };
      const limit = limitRequestBody({ kind: HANDLER, ...limits }, { clock: systemClock });
      await using server = await serveExchanges(
        (exchange) => limit(exchange, () => (exchange.hasBody ? handle : answer)(exchange)),
        SILENCE,
      );
      const size = 1_000_000;
      const statuses = await statusesOf(
        server.http1,
        `Content-Length: ${size}`,
        Buffer.alloc(size),
      );
      assert.equal(statuses.length, 2);
      assert.deepEqual(server.faults, []);
    });
  }
});

/** A POST whose body is written later, and the response to it. */
interface LatePost {
  readonly body: Writable;
  readonly answer: Promise<{ readonly status: number; readonly text: string }>;
  close(): void;
}

const LATE_POSTS: Record<string, (ports: { http1: number; http2: number }) => LatePost> = {
  'HTTP/1.1': ({ http1 }) => {
    const body = http.request({ host: '127.0.0.1', port: http1, method: 'POST', agent: false });
    body.flushHeaders();
    const answer = once(body, 'response').then(async ([response]) => ({
      status: response.statusCode,
      text: await text(response),
    }));
    return { body, answer, close: () => body.destroy() };
  },
  'HTTP/2': ({ http2: port }) => {
    const session = http2.connect(`http://127.0.0.1:${port}`);
    const body = session.request({ ':method': 'POST', ':path': '/' });
    const answer = once(body, 'response').then(async ([head]) => ({
      status: head[':status'],
      text: await text(body),
    }));
    return { body, answer, close: () => session.destroy() };
  },
};

/**
 * Serves a site with these limits for bodies. Its app closes each connection, and its error route sends the body to
 * another app, once `goOn` has been called.
 */
async function serveErrorRoute(limits: { maxSize: number | null; readTimeoutMs: number }) {
  const clock = new TestClock();
  let goOn = (): void => {};
  const mayGoOn = new Promise<void>((resolve) => (goOn = resolve));
  let isInErrorRoute = false;
  const broken = createServer((socket) => socket.destroy()).listen(0, '127.0.0.1');
  await once(broken, 'listening');
  const second = await origin((request, response) => {
    text(request).then(
      (body) => response.end(`got ${body}`),
      () => {},
    );
  });
  const site = await serveSite(
    [
      on(respond('pong'), path('/ping')),
      on({ kind: 'request_body', ...limits, writeTimeoutMs: 0 }),
      on(proxyConfig([`http://127.0.0.1:${portOf(broken)}`])),
    ],
    {
      clock,
      hub: async (_exchange, next) => {
        isInErrorRoute = true;
        await mayGoOn;
        return next();
      },
      errorRoutes: [on({ kind: 'hub', name: null }), on(proxyConfig([second.url]))],
    },
  );
  return {
    clock,
    site,
    goOn,
    inErrorRoute: () => until(() => isInErrorRoute, 'the error route runs'),
    /** What has been sent to the gateway has arrived. */
    arrived: async () => {
      for (let i = 0; i < 3; i += 1)
        await (await fetch(`http://127.0.0.1:${site.http1}/ping`)).text();
    },
    [Symbol.asyncDispose]: async () => {
      await site[Symbol.asyncDispose]();
      await second[Symbol.asyncDispose]();
      broken.close();
    },
  };
}

describe('request_body in front of error routes', () => {
  it('keeps the connection if nothing reads the body', async () => {
    const broken = createServer((socket) => socket.destroy()).listen(0, '127.0.0.1');
    await once(broken, 'listening');
    await using site = await serveSite([
      on(respond('pong'), path('/ping')),
      on({ kind: 'request_body', maxSize: 2_000_000, readTimeoutMs: 0, writeTimeoutMs: 0 }),
      on(proxyConfig([`http://127.0.0.1:${portOf(broken)}`])),
    ]);
    const socket = connect(site.http1, '127.0.0.1').setEncoding('latin1');
    let received = '';
    socket.on('data', (chunk: string) => (received += chunk));
    const size = 1_000_000;
    socket.write(`POST / HTTP/1.1\r\nHost: a\r\nContent-Length: ${size}\r\n\r\n`);
    await until(() => received.includes(' 502 '), 'the error is answered');
    socket.write(Buffer.alloc(size));
    socket.write('GET /ping HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n');
    await once(socket, 'close');
    assert.match(received, /pong$/);
    broken.close();
  });

  for (const [name, post] of Object.entries(LATE_POSTS)) {
    it(`leaves them a body of which the app has received nothing, over ${name}`, async () => {
      await using served = await serveErrorRoute({ maxSize: 100, readTimeoutMs: 1000 });
      const { body, answer, close } = post(served.site);
      await served.inErrorRoute();
      body.write('01234');
      await served.arrived();
      served.goOn();
      body.end('56789');
      assert.deepEqual(await answer, { status: 200, text: 'got 0123456789' });
      close();
    });

    it(`keeps its size limit in them, over ${name}`, async () => {
      await using served = await serveErrorRoute({ maxSize: 9, readTimeoutMs: 0 });
      const { body, answer, close } = post(served.site);
      await served.inErrorRoute();
      served.goOn();
      body.end('0123456789');
      assert.equal((await answer).status, 502);
      close();
    });

    it(`keeps its time limit in them, over ${name}`, async () => {
      await using served = await serveErrorRoute({ maxSize: null, readTimeoutMs: 1000 });
      const { body, answer, close } = post(served.site);
      await served.inErrorRoute();
      served.clock.advance(1000);
      served.goOn();
      body.write('01234');
      assert.equal((await answer).status, 502);
      close();
    });
  }
});

describe('write_timeout of request_body', () => {
  for (const { name, ask, port } of PROTOCOLS) {
    it(`applies to a request whose body is limited and has arrived, over ${name}`, async () => {
      const clock = new TestClock();
      const limits = { maxSize: 100, readTimeoutMs: 0, writeTimeoutMs: 1000 };
      const handler = limitRequestBody({ kind: HANDLER, ...limits }, { clock });
      await using server = await serveExchanges((exchange) =>
        handler(exchange, async () => {
          for await (const _ of exchange.body);
          exchange.begin({ status: 200, headers: new HeaderList(), source: 'gateway' });
          // A turn later the body has closed as well.
          await new Promise((turn) => setImmediate(turn));
          const left = new Promise<void>((resolve) => exchange.onAbandoned(resolve));
          clock.advance(1000);
          await left;
        }),
      );
      const { status, broken } = await ask(port(server), { method: 'POST', body: 'short' });
      assert.deepEqual([status, broken], [200, true]);
    });
  }
});
