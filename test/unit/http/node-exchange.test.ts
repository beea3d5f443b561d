import assert from 'node:assert/strict';
import { once } from 'node:events';
import http2 from 'node:http2';
import net from 'node:net';
import { describe, it } from 'node:test';
import { HeaderList, utf8Field } from '../../../src/http/header-list.ts';
import type { Exchange, Handler } from '../../../src/http/exchange.ts';
import { ask1, ask2, PROTOCOLS, serveExchanges } from './exchange-server.ts';

const respond =
  (status: number, fields: Record<string, string | string[]>, body = ''): Handler =>
  (exchange) => {
    exchange.begin({ status, headers: HeaderList.of(fields), source: 'gateway' }).end(body);
  };

for (const { name, ask, port } of PROTOCOLS) {
  describe(`an exchange over ${name}`, () => {
    it('keeps several Set-Cookie fields apart', async () => {
      await using server = await serveExchanges(
        respond(200, { 'Set-Cookie': ['a=1; Expires=Wed, 01 Jan 2031 00:00:00 GMT', 'b=2'] }, 'x'),
      );
      const answer = await ask(port(server));
      assert.deepEqual(answer.headers['set-cookie'], [
        'a=1; Expires=Wed, 01 Jan 2031 00:00:00 GMT',
        'b=2',
      ]);
    });

    it('joins other fields that occur twice, where the protocol wants one (RFC 9110 §5.3)', async () => {
      await using server = await serveExchanges(
        respond(200, { 'Content-Type': 'text/plain', Age: ['1', '1'], 'X-Two': ['1', '2'] }, 'x'),
      );
      const answer = await ask(port(server));
      assert.equal(answer.headers['x-two'], '1, 2');
      assert.equal(answer.status, 200);
      assert.deepEqual(server.faults, []);
    });

    it('never throws for fields that HTTP/2 forbids (RFC 9113 §8.2.2)', async () => {
      await using server = await serveExchanges((exchange) => {
        const headers = HeaderList.of({
          'X-Ok': 'yes',
          'Keep-Alive': 'timeout=9',
          'Proxy-Connection': 'keep-alive',
          'HTTP2-Settings': 'AAMAAABk',
          TE: 'gzip',
          Trailer: 'X-Sum',
          'Content-Length': '1',
        });
        if (exchange.httpVersion === '2.0') {
          headers.append('Connection', 'Upgrade');
          headers.append('Upgrade', 'h2c');
          headers.append('Transfer-Encoding', 'chunked');
        }
        exchange.begin({ status: 200, headers, source: 'upstream' }).end('x');
      });
      const answer = await ask(port(server));
      assert.deepEqual(server.faults, []);
      assert.equal(answer.status, 200);
      assert.equal(answer.headers['x-ok'], 'yes');
      assert.equal(answer.body, 'x');
    });

    for (const status of [204, 205, 304]) {
      it(`discards the body of a ${status} (RFC 9110 §15)`, async () => {
        await using server = await serveExchanges(respond(status, { ETag: '"1"' }, 'forbidden'));
        const answer = await ask(port(server));
        assert.equal(answer.status, status);
        assert.equal(answer.body, '');
        assert.equal(answer.broken, false);
      });
    }

    it('keeps Content-Length and discards the body in answers to HEAD (RFC 9110 §9.3.2)', async () => {
      await using server = await serveExchanges(
        respond(200, { 'Content-Length': '9' }, 'forbidden'),
      );
      const answer = await ask(port(server), { method: 'HEAD' });
      assert.equal(answer.headers['content-length'], '9');
      assert.equal(answer.body, '');
      assert.equal(answer.broken, false);
    });

    it('sends 103 before the response, whatever its Link looks like (RFC 8297)', async () => {
      await using server = await serveExchanges((exchange) => {
        exchange.inform(103, HeaderList.of({ Link: '</a.css>; rel=preload' }));
        exchange.inform(103, HeaderList.of({ Link: 'not a link at all' }));
        return respond(200, {}, 'x')(exchange, () => Promise.resolve());
      });
      const answer = await ask(port(server));
      assert.deepEqual(server.faults, []);
      assert.deepEqual(answer.informational[0], { status: 103, link: '</a.css>; rel=preload' });
      assert.equal(answer.body, 'x');
    });

    it('sends trailer fields after a body of unknown length', async () => {
      await using server = await serveExchanges((exchange) => {
        const body = exchange.begin({ status: 200, headers: new HeaderList(), source: 'gateway' });
        body.write('x');
        exchange.end(body, HeaderList.of({ 'X-Sum': '42', Connection: 'x' }));
      });
      const answer = await ask(port(server));
      assert.equal(answer.trailers['x-sum'], '42');
      assert.equal(answer.body, 'x');
    });

    it('lets the client see an aborted response as broken', async () => {
      await using server = await serveExchanges((exchange) => {
        const body = exchange.begin({ status: 200, headers: new HeaderList(), source: 'gateway' });
        body.write('half', () => exchange.abort());
      });
      const answer = await ask(port(server));
      assert.equal(answer.status, 200);
      assert.equal(answer.broken, true);
    });

    it('runs head transforms once, the last registered first, and applies their wrappers', async () => {
      const order: string[] = [];
      await using server = await serveExchanges((exchange) => {
        for (const one of ['first', 'second']) {
          exchange.onHead((head) => {
            order.push(one);
            head.headers.append('X-Seen', one);
            return undefined;
          });
        }
        return respond(200, {}, 'x')(exchange, () => Promise.resolve());
      });
      const answer = await ask(port(server));
      assert.deepEqual(order, ['second', 'first']);
      assert.equal(answer.headers['x-seen'], 'second, first');
    });

    it('refuses a second head with the code response-begun', async () => {
      await using server = await serveExchanges((exchange) => {
        const head = { status: 200, headers: new HeaderList(), source: 'gateway' } as const;
        exchange.begin(head).end();
        assert.throws(() => exchange.begin(head), { code: 'response-begun' });
      });
      assert.equal((await ask(port(server))).status, 200);
      assert.deepEqual(server.faults, []);
    });

    it('answers a status beyond 599 without throwing (RFC 9110 §15)', async () => {
      await using server = await serveExchanges(respond(999, {}, 'x'));
      const answer = await ask(port(server));
      assert.ok(answer.status === 999 || answer.status === 500, String(answer.status));
      assert.deepEqual(server.faults, []);
    });
  });
}

describe('the head of a response', () => {
  it('leaves over HTTP/1.1 before any byte of the body, bytes beyond ASCII unharmed', async () => {
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

  it('leaves over HTTP/2 before any byte of the body, bytes beyond ASCII unharmed', async () => {
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

describe('signal', () => {
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

  it('aborts when an HTTP/1.1 client leaves', async () => {
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
    it(`stays quiet when the response is complete over ${name}`, async () => {
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

describe('the request', () => {
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

  it('joins cookie crumbs and leaves pseudo fields out over HTTP/2 (RFC 9113 §8.2.3)', async () => {
    const exchange = await seen(({ http2: port }) =>
      ask2(port, { headers: { cookie: ['a=1', 'b=2'] } }),
    );
    assert.deepEqual(exchange.headers.getAll('cookie'), ['a=1; b=2']);
    assert.ok([...exchange.headers].every(([name]) => !name.startsWith(':')));
  });

  it('takes authority and path of an absolute-form target (RFC 9112 §3.2.2)', async () => {
    const exchange = await seen(({ http1: port }) =>
      ask1(port, { path: 'http://right.example?x=1', headers: { Host: 'wrong.example' } }),
    );
    assert.equal(exchange.host, 'right.example');
    assert.equal(exchange.target, '/?x=1');
    assert.deepEqual(exchange.headers.getAll('host'), ['right.example']);
  });

  it('tells whether there is a body', async () => {
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
