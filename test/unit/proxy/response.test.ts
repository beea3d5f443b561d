import assert from 'node:assert/strict';
import { once } from 'node:events';
import http from 'node:http';
import http2 from 'node:http2';
import net from 'node:net';
import { describe, it } from 'node:test';
import type { Exchange } from '../../../src/http/exchange.ts';
import { HeaderList } from '../../../src/http/header-list.ts';
import { RECORD, streamRecords } from '../../../src/proxy/fastcgi/records.ts';
import { type Answer, ask1, ask2, PROTOCOLS } from '../http/exchange-server.ts';
import { freePort } from '../../support/free-port.ts';
import { origin, proxyTo, rawOrigin, until } from './gateway.ts';

const reply =
  (text: string) =>
  (socket: net.Socket, received: string): void => {
    if (received.endsWith('\r\n\r\n')) socket.write(text, 'latin1');
  };

describe('a proxied response without content', () => {
  /** A source whose content never ends, and how many of its responses have been closed. */
  const endless = async () => {
    const state = { closed: 0, send: (): void => {} };
    const upstream = await origin((request, response) => {
      if (request.url === '/late') {
        state.send = () => response.end('late');
        return;
      }
      if (request.url === '/short') {
        response.end('short');
        return;
      }
      const timer = setInterval(() => response.write('x'.repeat(20_000)), 20);
      response.on('close', () => {
        clearInterval(timer);
        state.closed += 1;
      });
    });
    return { upstream, state };
  };

  it('does not hold up the next request of its connection for ever', async () => {
    const { upstream, state } = await endless();
    await using _ = upstream;
    await using gateway = await proxyTo([upstream.url], { method: 'GET' });
    const socket = net.connect(gateway.http1, '127.0.0.1');
    let received = '';
    socket.on('data', (chunk: Buffer) => {
      received += chunk.toString();
    });
    const short = 'GET /short HTTP/1.1\r\nHost: a\r\n\r\n';
    const late = short.replace('/short', '/late');
    socket.write(`${late}HEAD / HTTP/1.1\r\nHost: a\r\n\r\n${short}`);
    // The source stops while its response still waits for its turn.
    await until(() => state.closed === 1, 'the source is told to stop');
    assert.equal(received, '');
    state.send();
    await until(() => received.endsWith('short'), 'the last request has its response');
    assert.equal(received.match(/HTTP\/1\.1 200 OK/g)?.length, 3);
    socket.destroy();
  });

  it('stops a script over FastCGI whose output does not end', async () => {
    let closed = 0;
    await using upstream = await rawOrigin((socket) => {
      const send = (text: string): void => {
        socket.write(streamRecords(RECORD.stdout, Buffer.from(text)));
      };
      send('Content-Type: text/plain\r\n\r\n');
      const timer = setInterval(() => send('x'.repeat(20_000)), 20);
      socket.once('close', () => {
        clearInterval(timer);
        closed += 1;
      });
    });
    const fastcgi = { root: '/srv', resolveRootSymlink: false, splitPath: ['.php'], env: [] };
    await using gateway = await proxyTo([upstream.url], { fastcgi });
    const { status, body } = await ask2(gateway.http2, { method: 'HEAD' });
    assert.deepEqual([status, body], [200, '']);
    await until(() => closed === 1, 'the script is told to stop');
    assert.deepEqual(gateway.faults, []);
  });

  it('stops its source over HTTP/2, where the stream of the client is already closed', async () => {
    const { upstream, state } = await endless();
    await using _ = upstream;
    await using gateway = await proxyTo([upstream.url], { method: 'GET' });
    const { status, body } = await ask2(gateway.http2, { method: 'HEAD' });
    assert.deepEqual([status, body], [200, '']);
    await until(() => state.closed === 1, 'the source is told to stop');
  });
});

for (const { name, ask, port } of PROTOCOLS) {
  describe(`a proxied response over ${name}`, () => {
    it('never fails because of hop-by-hop fields of the upstream and drops those that Connection names (RFC 9110 §7.6.1)', async () => {
      await using upstream = await rawOrigin(
        reply(
          'HTTP/1.1 200 OK\r\nUpgrade: h2,h2c\r\nConnection: Upgrade, X-Private, Keep-Alive\r\n' +
            'X-Private: 1\r\nKeep-Alive: timeout=77\r\nProxy-Connection: keep-alive\r\n' +
            'Proxy-Authenticate: Basic\r\nAlt-Svc: h3=":443"\r\nX-Public: 2\r\nContent-Length: 2\r\n\r\nok',
        ),
      );
      await using gateway = await proxyTo([upstream.url]);
      const answer = await ask(port(gateway));
      assert.deepEqual(gateway.faults, []);
      assert.equal(answer.status, 200);
      assert.equal(answer.body, 'ok');
      assert.equal(answer.headers['x-public'], '2');
      for (const field of [
        'upgrade',
        'x-private',
        'proxy-connection',
        'proxy-authenticate',
        'alt-svc',
      ]) {
        assert.equal(answer.headers[field], undefined, field);
      }
      assert.notEqual(answer.headers['keep-alive'], 'timeout=77');
      assert.equal(answer.headers['via'], '1.1 hubgate');
    });

    it('is empty for a client whose request was forwarded as HEAD', async () => {
      await using upstream = await rawOrigin(
        reply('HTTP/1.1 401 Unauthorized\r\nX-Reason: no\r\nContent-Length: 5\r\n\r\n'),
      );
      const asHead = (exchange: Exchange): void => {
        exchange.method = 'HEAD';
      };
      await using byOption = await proxyTo([upstream.url], { method: 'HEAD' });
      await using byRoute = await proxyTo([upstream.url], {}, { before: asHead });
      for (const gateway of [byOption, byRoute]) {
        const { status, headers, body } = await ask(port(gateway));
        assert.deepEqual([status, headers['x-reason'], body], [401, 'no', '']);
        const head = await ask(port(gateway), { method: 'HEAD' });
        assert.deepEqual([head.status, head.headers['content-length']], [401, '5']);
        assert.deepEqual(gateway.faults, []);
      }
    });

    it('keeps several Set-Cookie and Link fields', async () => {
      await using upstream = await rawOrigin(
        reply(
          'HTTP/1.1 200 OK\r\nSet-Cookie: a=1\r\nLink: </a>; rel=a\r\nSet-Cookie: b=2\r\n' +
            'Link: </b>; rel=b\r\nContent-Length: 0\r\n\r\n',
        ),
      );
      await using gateway = await proxyTo([upstream.url]);
      const answer = await ask(port(gateway));
      assert.deepEqual(answer.headers['set-cookie'], ['a=1', 'b=2']);
      assert.equal(answer.headers['link'], '</a>; rel=a, </b>; rel=b');
    });

    it('passes 103 Early Hints on (RFC 8297)', async () => {
      await using upstream = await rawOrigin(
        reply(
          'HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\n\r\n' +
            'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok',
        ),
      );
      await using gateway = await proxyTo([upstream.url]);
      const answer = await ask(port(gateway));
      assert.deepEqual(answer.informational, [{ status: 103, link: '</a.css>; rel=preload' }]);
      assert.equal(answer.body, 'ok');
    });

    it('passes trailer fields on', async () => {
      await using upstream = await rawOrigin(
        reply(
          'HTTP/1.1 200 OK\r\nTrailer: X-Sum\r\nTransfer-Encoding: chunked\r\n\r\n' +
            '2\r\nok\r\n0\r\nX-Sum: 42\r\n\r\n',
        ),
      );
      await using gateway = await proxyTo([upstream.url]);
      const answer = await ask(port(gateway));
      assert.equal(answer.body, 'ok');
      assert.equal(answer.trailers['x-sum'], '42');
    });

    it('flushes an event stream at once and is closed at the upstream when the client disconnects', async () => {
      let closed = false;
      await using upstream = await origin((_, response) => {
        response.writeHead(200, { 'content-type': 'text/event-stream' });
        response.write('data: 1\n\n');
        response.once('close', () => {
          closed = true;
        });
      });
      await using gateway = await proxyTo([upstream.url]);
      await leaveAfterFirstByte(name, port(gateway));
      await until(() => closed, 'the upstream sees the client leave');
    });

    it('starts with the head at once, before the upstream has sent any byte of the body', async () => {
      await using upstream = await origin((_, response) => response.flushHeaders());
      await using gateway = await proxyTo([upstream.url]);
      await leaveAfterHead(name, port(gateway));
    });

    for (const [framing, fields] of [
      ['chunks', 'Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n'],
      ['a length', 'Content-Length: 10\r\n\r\nhello'],
    ]) {
      it(`is aborted for the client when the upstream dies in the middle, with ${framing}`, async () => {
        await using upstream = await rawOrigin((socket) => {
          socket.write(`HTTP/1.1 200 OK\r\n${fields}`, () => socket.destroy());
        });
        await using gateway = await proxyTo([upstream.url]);
        const answer = await ask(port(gateway));
        assert.equal(answer.status, 200);
        assert.equal(answer.broken, true);
        assert.deepEqual(gateway.faults, []);
      });
    }

    it('is 502 when the upstream does not speak HTTP', async () => {
      await using upstream = await rawOrigin((socket) => socket.end('SSH-2.0-OpenSSH_9.2\r\n'));
      await using gateway = await proxyTo([upstream.url]);
      assert.equal((await ask(port(gateway))).status, 502);
    });

    it('is 502 with the request id and no detail when the upstream cannot be reached', async () => {
      const closed = await freePort();
      await using gateway = await proxyTo([`http://127.0.0.1:${closed}`]);
      const answer = await ask(port(gateway));
      assert.equal(answer.status, 502);
      assert.equal(answer.body, 'Bad Gateway\n');
      assert.match(String(answer.headers['x-request-id']), /^[\da-f-]{36}$/);
    });

    it('is 504 when the head does not arrive within response_header_timeout', async () => {
      await using upstream = await rawOrigin(() => {});
      await using gateway = await proxyTo([upstream.url], {
        transport: { responseHeaderTimeoutMs: 50 },
      });
      assert.equal((await ask(port(gateway))).status, 504);
    });

    it('is aborted when the upstream is silent for longer than read_timeout', async () => {
      await using upstream = await rawOrigin(
        reply('HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello'),
      );
      await using gateway = await proxyTo([upstream.url], { transport: { readTimeoutMs: 50 } });
      const answer = await ask(port(gateway));
      assert.equal(answer.status, 200);
      assert.equal(answer.broken, true);
    });

    it('is 504 when the upstream stops reading the request for longer than write_timeout', async () => {
      await using upstream = await origin((request) => request.pause());
      await using gateway = await proxyTo([upstream.url], { transport: { writeTimeoutMs: 50 } });
      const body = Buffer.alloc(16 * 1024 * 1024);
      const answer = await ask(port(gateway), { method: 'POST', body }).catch((error: unknown) => {
        // Over HTTP/1.1 the client may still be writing when the connection goes.
        assert.match(String(error), /EPIPE|ECONNRESET/);
        return null;
      });
      if (answer !== null) assert.equal(answer.status, 504);
      await until(() => gateway.statuses.includes(504), 'the gateway has answered 504');
    });

    it('applies header_down, with placeholders', async () => {
      await using upstream = await rawOrigin(
        reply(
          'HTTP/1.1 200 OK\r\nServer: secret/1.2\r\nX-Internal-A: 1\r\nX-Internal-B: 2\r\n' +
            'Location: http://backend/x\r\nContent-Length: 0\r\n\r\n',
        ),
      );
      await using gateway = await proxyTo([upstream.url], {
        headerDown: [
          { kind: 'delete', name: 'Server' },
          { kind: 'delete', name: 'X-Internal-*' },
          { kind: 'set', name: 'X-Path', value: '{path}' },
          { kind: 'add', name: 'X-More', value: 'é\r\nInjected: 1' },
          { kind: 'default', name: 'X-New', value: 'yes' },
          {
            kind: 'replace',
            name: 'Location',
            pattern: '^http://(\\w+)/',
            replacement: 'https://$1.example/',
          },
        ],
      });
      const answer = await ask(port(gateway), { path: '/p' });
      assert.equal(answer.headers['server'], undefined);
      assert.equal(answer.headers['x-internal-a'], undefined);
      assert.equal(answer.headers['x-internal-b'], undefined);
      assert.equal(answer.headers['injected'], undefined);
      assert.equal(answer.headers['x-path'], '/p');
      assert.equal(
        Buffer.from(String(answer.headers['x-more']), 'latin1').toString(),
        'é  Injected: 1',
      );
      assert.equal(answer.headers['x-new'], 'yes');
      assert.equal(answer.headers['location'], 'https://backend.example/x');
    });

    it('is left to the routes of handle_response if they match', async () => {
      await using upstream = await origin((request, response) => {
        response.writeHead(request.url === '/missing' ? 404 : 200, { 'X-Why': 'gone' }).end('body');
      });
      await using gateway = await proxyTo(
        [upstream.url],
        { handleResponse: [{ status: ['4xx'], headers: [], replaceStatus: null, routes: [] }] },
        {
          compileRoutes: () => (exchange) => {
            const why = exchange.variables.get('rp.header.x-why');
            const status = exchange.variables.get('rp.status_code');
            exchange
              .begin({ status: 410, headers: new HeaderList(), source: 'gateway' })
              .end(`${status} ${why}`);
          },
        },
      );
      const missing = await ask(port(gateway), { path: '/missing' });
      assert.equal(missing.status, 410);
      assert.equal(missing.body, '404 gone');
      assert.equal((await ask(port(gateway))).body, 'body');
    });

    it('ends at the upstream if routes that could have copied it answer otherwise', async () => {
      let closed = 0;
      await using upstream = await origin((_, response) => {
        response.writeHead(200, { 'content-type': 'text/event-stream' }).write('data: 1\n\n');
        response.once('close', () => {
          closed += 1;
        });
      });
      await using gateway = await proxyTo(
        [upstream.url],
        { handleResponse: [{ status: ['200'], headers: [], replaceStatus: null, routes: [] }] },
        {
          copiesResponse: () => true,
          compileRoutes: () => (exchange) => {
            const head = { status: 403, headers: new HeaderList(), source: 'gateway' } as const;
            exchange.begin(head).end('no');
          },
        },
      );
      const answer = await ask(port(gateway));
      assert.deepEqual([answer.status, answer.body], [403, 'no']);
      await until(() => closed === 1, 'the upstream is told');
      const inFlight = gateway.registry.upstreams().map((one) => one.inFlight);
      assert.deepEqual([inFlight, gateway.faults], [[0], []]);
    });

    it('has a head that is marked as coming from the upstream', async () => {
      await using upstream = await origin((_, response) => response.end('ok'));
      const sources: string[] = [];
      await using gateway = await proxyTo(
        [upstream.url],
        {},
        {
          before: (exchange) =>
            exchange.onHead((head) => {
              sources.push(head.source);
              return undefined;
            }),
        },
      );
      await ask(port(gateway));
      assert.deepEqual(sources, ['upstream']);
    });
  });
}

describe('a proxied response', () => {
  it('keeps the case of field names over HTTP/1.1, in both directions', async () => {
    await using upstream = await rawOrigin(
      reply('HTTP/1.1 200 OK\r\nX-CamelCase: 1\r\nContent-Length: 0\r\n\r\n'),
    );
    await using gateway = await proxyTo([upstream.url]);
    const request = http.request({
      host: '127.0.0.1',
      port: gateway.http1,
      agent: false,
      headers: { 'X-RequestCase': '1' },
    });
    request.end();
    const [response]: http.IncomingMessage[] = await once(request, 'response');
    assert.ok(response?.rawHeaders.includes('X-CamelCase'));
    assert.match(upstream.received(), /\r\nX-RequestCase: 1\r\n/);
    response?.resume();
  });

  it('is aborted for an HTTP/1.0 client when the upstream dies, rather than merely ended', async () => {
    await using upstream = await rawOrigin((socket) => {
      socket.write('HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n');
    });
    await using gateway = await proxyTo([upstream.url]);
    const socket = net.connect(gateway.http1, '127.0.0.1');
    const outcome = new Promise<string>((resolve) => {
      socket.once('error', () => resolve('reset'));
      socket.once('end', () => resolve('complete'));
    });
    socket.write('GET / HTTP/1.0\r\nHost: a\r\n\r\n');
    await once(socket, 'data');
    await upstream[Symbol.asyncDispose]();
    assert.equal(await outcome, 'reset');
    socket.destroy();
  });

  it('reuses connections to the upstream', async () => {
    await using upstream = await rawOrigin((socket, text) => {
      if (text.endsWith('\r\n\r\n')) socket.write('HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok');
    });
    await using gateway = await proxyTo([upstream.url]);
    for (let i = 0; i < 5; i += 1) await ask1(gateway.http1);
    assert.equal(upstream.connections(), 1);
  });

  it('closes the connection after each exchange with keepalive 0', async () => {
    await using upstream = await rawOrigin((socket, text) => {
      if (text.endsWith('\r\n\r\n')) socket.write('HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok');
    });
    await using gateway = await proxyTo([upstream.url], { transport: { keepAliveMs: 0 } });
    for (let i = 0; i < 3; i += 1) assert.equal((await ask1(gateway.http1)).body, 'ok');
    assert.equal(upstream.connections(), 3);
  });

  it('opens no more connections than max_conns_per_host, and further requests wait', async () => {
    const waiting: http.ServerResponse[] = [];
    await using upstream = await origin((_, response) => {
      waiting.push(response);
      if (waiting.length === 2) for (const one of waiting.splice(0)) one.end('ok');
    });
    await using gateway = await proxyTo([upstream.url], {
      transport: { maxConnectionsPerHost: 2 },
    });
    const answers: Answer[] = await Promise.all(
      Array.from({ length: 12 }, () => ask1(gateway.http1)),
    );
    assert.ok(answers.every((answer) => answer.body === 'ok'));
    assert.ok(upstream.sockets.size <= 2);
  });

  it('is 503 when a thousand requests already wait for a connection', async () => {
    await using upstream = await origin(() => {});
    await using gateway = await proxyTo([upstream.url], {
      transport: { maxConnectionsPerHost: 1 },
    });
    const sessions = Array.from({ length: 6 }, () =>
      http2.connect(`http://127.0.0.1:${gateway.http2}`),
    );
    // One has the connection, a thousand wait, and seven are too many.
    const refused = await new Promise<number[]>((resolve) => {
      const statuses: number[] = [];
      for (const session of sessions) {
        session.on('error', () => {});
        for (let count = 0; count < 168; count += 1) {
          const stream = session.request({ ':path': '/' });
          stream.on('error', () => {});
          stream.on('response', ({ ':status': status = 0 }) => {
            statuses.push(status);
            if (statuses.length === 7) resolve(statuses);
          });
        }
      }
    });
    for (const session of sessions) session.destroy();
    assert.deepEqual(refused, Array(7).fill(503));
  });
});

async function leaveAfterFirstByte(name: string, port: number): Promise<void> {
  if (name === 'HTTP/2') {
    const session = http2.connect(`http://127.0.0.1:${port}`);
    const stream = session.request({ ':path': '/' });
    await once(stream, 'data');
    stream.close(http2.constants.NGHTTP2_CANCEL);
    session.close();
    return;
  }
  const request = http.get({ host: '127.0.0.1', port, agent: false });
  request.on('error', () => {});
  const [response]: http.IncomingMessage[] = await once(request, 'response');
  if (response !== undefined) await once(response, 'data');
  request.destroy();
}

async function leaveAfterHead(name: string, port: number): Promise<void> {
  if (name === 'HTTP/2') {
    const session = http2.connect(`http://127.0.0.1:${port}`);
    const stream = session.request({ ':path': '/' });
    await once(stream, 'response');
    session.destroy();
    return;
  }
  const request = http.get({ host: '127.0.0.1', port, agent: false });
  request.on('error', () => {});
  await once(request, 'response');
  request.destroy();
}
