import assert from 'node:assert/strict';
import { once } from 'node:events';
import http2 from 'node:http2';
import net from 'node:net';
import { finished } from 'node:stream/promises';
import { describe, it } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import { HeaderList, utf8Field } from '../../../src/http/header-list.ts';
import type { Exchange, Handler } from '../../../src/http/exchange.ts';
import { deferred } from '../discovery/site.ts';
import { ask1, ask2, PROTOCOLS, serveExchanges, serveMounted } from './exchange-server.ts';

const respond =
  (status: number, fields: Record<string, string | string[]>, body = ''): Handler =>
  (exchange) => {
    exchange.begin({ status, headers: HeaderList.of(fields), source: 'gateway' }).end(body);
  };

describe('the head of a response', () => {
  it('is sent over HTTP/1.1 before any byte of the body, with bytes beyond ASCII unchanged', async () => {
    let finish: (() => void) | undefined;
    await using server = await serveExchanges((exchange) => {
      const headers = HeaderList.of({ 'X-Name': utf8Field('Zoë ✓') });
      const body = exchange.begin({ status: 200, headers, source: 'gateway' });
      finish = () => body.end();
    });
    const socket = net.connect(server.http1, '127.0.0.1');
    socket.write('GET / HTTP/1.1\r\nHost: a\r\n\r\n');
    let received = Buffer.alloc(0);
    while (!received.includes('\r\n\r\n')) {
      const [chunk]: Buffer[] = await once(socket, 'data');
      received = Buffer.concat([received, chunk ?? Buffer.alloc(0)]);
    }
    assert.ok(received.includes(Buffer.from('X-Name: Zoë ✓\r\n', 'utf8')), received.toString());
    assert.ok(received.toString().endsWith('\r\n\r\n'), 'the head alone');
    finish?.();
    socket.destroy();
  });

  it('is sent over HTTP/2 before any byte of the body, with bytes beyond ASCII unchanged', async () => {
    let finish: (() => void) | undefined;
    await using server = await serveExchanges((exchange) => {
      const headers = HeaderList.of({ 'X-Name': utf8Field('Zoë ✓') });
      const body = exchange.begin({ status: 200, headers, source: 'gateway' });
      finish = () => body.end();
    });
    const session = http2.connect(`http://127.0.0.1:${server.http2}`);
    const stream = session.request({ ':path': '/' });
    const [headers] = await once(stream, 'response');
    assert.equal(Buffer.from(String(headers['x-name']), 'latin1').toString('utf8'), 'Zoë ✓');
    finish?.();
    stream.resume();
    await once(stream, 'close');
    session.close();
  });
});

describe('the abort signal', () => {
  const waiting = (): { handler: Handler; aborted: Promise<void> } => {
    let done: () => void = () => {};
    const aborted = new Promise<void>((resolve) => {
      done = resolve;
    });
    return {
      aborted,
      handler: (exchange: Exchange) => {
        const body = exchange.begin({ status: 200, headers: new HeaderList(), source: 'gateway' });
        body.write('x');
        exchange.signal.addEventListener('abort', () => done());
      },
    };
  };

  it('aborts when an HTTP/1.1 client disconnects', async () => {
    const { handler, aborted } = waiting();
    await using server = await serveExchanges(handler);
    const socket = net.connect(server.http1, '127.0.0.1');
    socket.write('GET / HTTP/1.1\r\nHost: a\r\n\r\n');
    await once(socket, 'data');
    socket.destroy();
    await aborted;
  });

  for (const code of [http2.constants.NGHTTP2_CANCEL, http2.constants.NGHTTP2_NO_ERROR]) {
    it(`aborts when an HTTP/2 client resets its stream with code ${code}`, async () => {
      const { handler, aborted } = waiting();
      await using server = await serveExchanges(handler);
      const session = http2.connect(`http://127.0.0.1:${server.http2}`);
      const stream = session.request({ ':path': '/' });
      await once(stream, 'data');
      stream.close(code);
      await aborted;
      session.close();
    });
  }

  for (const [where, serve] of [
    ['of the gateway', serveExchanges],
    ['mounted in a server', serveMounted],
  ] as const) {
    it(`aborts pipelined requests that still wait for their turn, ${where}`, async () => {
      const paths = ['/first', '/second', '/third'];
      const told: string[] = [];
      let all: () => void = () => {};
      const aborted = new Promise<void>((resolve) => {
        all = resolve;
      });
      const closed: string[] = [];
      let allClosed: () => void = () => {};
      const bodiesClosed = new Promise<void>((resolve) => {
        allClosed = resolve;
      });
      let came = 0;
      let allCame: () => void = () => {};
      const here = new Promise<void>((resolve) => {
        allCame = resolve;
      });
      await using server = await serve((exchange) => {
        exchange.onAbandoned(() => {
          assert.equal(exchange.abandoned, true);
          if (told.push(exchange.target) === paths.length) all();
        });
        const body = exchange.begin({ status: 200, headers: new HeaderList(), source: 'gateway' });
        finished(body).catch(() => {
          if (closed.push(exchange.target) === paths.length) allClosed();
        });
        came += 1;
        if (came === paths.length) allCame();
        return new Promise(() => {});
      });
      const socket = net.connect(server.http1, '127.0.0.1');
      socket.write(paths.map((path) => `GET ${path} HTTP/1.1\r\nHost: a\r\n\r\n`).join(''));
      await here;
      socket.resetAndDestroy();
      await Promise.all([aborted, bodiesClosed]);
      assert.deepEqual([...told].sort(), paths);
    });
  }

  for (const [where, serve] of [
    ['of the gateway', serveExchanges],
    ['mounted in a server', serveMounted],
  ] as const) {
    for (const protocol of ['HTTP/1.1', 'HTTP/2']) {
      it(`leaves a body that still closes if it begins later, over ${protocol} ${where}`, async () => {
        const [came, closed] = [deferred(), deferred()];
        await using server = await serve(async (exchange) => {
          came.resolve();
          while (!exchange.abandoned) await turn();
          // Everything that the end of the connection causes is over.
          for (let count = 0; count < 10; count += 1) await turn();
          const body = exchange.begin({
            status: 200,
            headers: new HeaderList(),
            source: 'gateway',
          });
          body.once('close', closed.resolve);
          body.write('x');
        });
        if (protocol === 'HTTP/1.1') {
          const socket = net.connect(server.http1, '127.0.0.1');
          socket.write('GET / HTTP/1.1\r\nHost: a\r\n\r\n');
          await came.promise;
          socket.destroy();
        } else {
          const session = http2.connect(`http://127.0.0.1:${server.http2}`);
          session.request({ ':path': '/' }).on('error', () => {});
          await came.promise;
          session.destroy();
        }
        await closed.promise;
        assert.deepEqual(server.faults, []);
      });
    }
  }

  it('aborts when an HTTP/2 client closes its connection', async () => {
    const { handler, aborted } = waiting();
    await using server = await serveExchanges(handler);
    const session = http2.connect(`http://127.0.0.1:${server.http2}`);
    const stream = session.request({ ':path': '/' });
    stream.on('error', () => {});
    await once(stream, 'data');
    session.destroy();
    await aborted;
  });

  for (const { name, ask, port } of PROTOCOLS) {
    it(`is not triggered when the response is complete over ${name}`, async () => {
      const aborted: boolean[] = [];
      await using server = await serveExchanges((exchange) => {
        exchange.signal.addEventListener('abort', () => aborted.push(true));
        return respond(200, {}, 'x')(exchange, () => Promise.resolve());
      });
      await ask(port(server));
      await ask(port(server));
      assert.deepEqual(aborted, []);
    });
  }
});

describe('a request', () => {
  const seen = async (send: (ports: { http1: number; http2: number }) => Promise<unknown>) => {
    const exchanges: Exchange[] = [];
    await using server = await serveExchanges((exchange, next) => {
      exchanges.push(exchange);
      return respond(200, {}, 'x')(exchange, next);
    });
    await send(server);
    assert.equal(exchanges.length, 1);
    const [exchange] = exchanges;
    assert.ok(exchange);
    return exchange;
  };

  it('has its cookie crumbs joined and pseudo-header fields omitted over HTTP/2 (RFC 9113 §8.2.3)', async () => {
    const exchange = await seen(({ http2: port }) =>
      ask2(port, { headers: { cookie: ['a=1', 'b=2'] } }),
    );
    assert.deepEqual(exchange.headers.getAll('cookie'), ['a=1; b=2']);
    assert.ok([...exchange.headers].every(([name]) => !name.startsWith(':')));
  });

  it('is one of at most 251 in progress on an HTTP/1.1 connection: others are read once those have been answered', async () => {
    const held: (() => void)[] = [];
    let full: () => void = () => {};
    const isFull = new Promise<void>((resolve) => {
      full = resolve;
    });
    let taken = 0;
    await using server = await serveExchanges((exchange, next) => {
      taken += 1;
      const answer = respond(200, { 'content-length': '0' });
      if (taken > 251) return answer(exchange, next);
      held.push(() => void answer(exchange, next));
      if (taken === 251) full();
      return undefined;
    });
    const socket = net.connect(server.http1, '127.0.0.1');
    let received = '';
    socket.on('data', (chunk: Buffer) => {
      received += chunk.toString('latin1');
    });
    const close = 'GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n';
    socket.write('GET / HTTP/1.1\r\nHost: a\r\n\r\n'.repeat(399) + close);
    await isFull;
    for (let turns = 0; turns < 20; turns += 1) await turn();
    assert.equal(taken, 251, 'no more is read');
    // In another order than they came.
    for (const answer of held.reverse()) answer();
    await once(socket, 'close');
    assert.equal(taken, 400);
    assert.equal(received.match(/ 200 OK/g)?.length, 400);
  });

  it('may follow any number of others, as long as they are answered', async () => {
    await using server = await serveExchanges(respond(200, { 'content-length': '0' }));
    const socket = net.connect(server.http1, '127.0.0.1');
    let received = '';
    socket.on('data', (chunk: Buffer) => {
      received += chunk.toString('latin1');
    });
    const close = 'GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n';
    socket.write('GET / HTTP/1.1\r\nHost: a\r\n\r\n'.repeat(999) + close);
    await once(socket, 'close');
    assert.equal(received.match(/ 200 OK/g)?.length, 1000);
  });

  it('uses authority and path of an absolute-form target (RFC 9112 §3.2.2)', async () => {
    const exchange = await seen(({ http1: port }) =>
      ask1(port, { path: 'http://right.example?x=1', headers: { Host: 'wrong.example' } }),
    );
    assert.equal(exchange.host, 'right.example');
    assert.equal(exchange.target, '/?x=1');
    assert.deepEqual(exchange.headers.getAll('host'), ['right.example']);
  });

  it('indicates whether there is a body', async () => {
    const hasBody = async (send: Parameters<typeof seen>[0]): Promise<boolean> =>
      (await seen(send)).hasBody;
    assert.equal(await hasBody(({ http1: port }) => ask1(port)), false);
    assert.equal(
      await hasBody(({ http1: port }) => ask1(port, { method: 'POST', body: 'x' })),
      true,
    );
    assert.equal(
      await hasBody(({ http1: port }) =>
        ask1(port, { method: 'DELETE', chunked: true, body: 'x' }),
      ),
      true,
    );
    assert.equal(await hasBody(({ http2: port }) => ask2(port)), false);
    assert.equal(
      await hasBody(({ http2: port }) => ask2(port, { method: 'GET', body: 'x' })),
      true,
    );
  });
});
