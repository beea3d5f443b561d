import assert from 'node:assert/strict';
import { EventEmitter, once } from 'node:events';
import http2 from 'node:http2';
import net from 'node:net';
import { PassThrough, pipeline, Readable } from 'node:stream';
import { describe, it, type TestContext } from 'node:test';
import { TestClock } from '../../support/test-clock.ts';
import { ask1, PROTOCOLS } from '../http/exchange-server.ts';
import { origin, type Overrides, proxyTo, rawOrigin, until } from './gateway.ts';

const MIB = 1024 * 1024;
const LIMIT_MS = 60_000;
const OK = 'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok';

describe('the body of a request on its way to the upstream', () => {
  for (const { name, ask, port } of PROTOCOLS) {
    it(`passes through one stream with one timer, over ${name}`, async (test) => {
      const clock = new TestClock();
      await using upstream = await rawOrigin((socket, text) => {
        if (text.endsWith('hello')) socket.write(OK);
      });
      const silence = { limitMs: LIMIT_MS, clock };
      await using gateway = await proxyTo([upstream.url], {}, { silence });
      const body = { method: 'POST', headers: { 'content-length': '5' }, body: 'hello' };
      const streams = await madeBy(test, async () => {
        assert.equal((await ask(port(gateway), body)).body, 'ok');
      });
      // Over HTTP/1.1, the first is what the connection reads into, as Node's stream is over HTTP/2.
      const source = name === 'HTTP/1.1' ? ['Http1RequestBody'] : [];
      assert.deepEqual(streams, [...source, 'ClientBody']);
      const slow = ask(port(gateway), { ...body, body: 'hell', unended: true });
      await until(() => upstream.received().endsWith('hell'), 'the upstream has the first bytes');
      assert.equal(clock.waiting, 1);
      clock.advance(LIMIT_MS);
      assert.equal((await slow).status, 408);
      assert.equal(clock.waiting, 0);
    });

    it(`goes completely to the next upstream when the first asked for it but received none of it, over ${name}`, async (test) => {
      let asked = 0;
      const first = await http2Upstream(test, (stream) => {
        asked += 1;
        stream.close(http2.constants.NGHTTP2_REFUSED_STREAM);
      });
      await using second = await rawOrigin((socket, text) => {
        if (text.endsWith('0\r\n\r\n')) socket.write(OK);
      });
      await using gateway = await proxyTo([first, second.url]);
      const client = opened(test, name, port(gateway), 'POST');
      await until(() => asked === 1, 'the first has been asked');
      client.write('hello');
      client.end();
      assert.match(await client.answer, /ok$/);
      assert.match(second.received(), /\r\n\r\n5\r\nhello\r\n0\r\n\r\n$/);
    });

    it(`ends at the upstream when its client disconnects, over ${name}`, async (test) => {
      let closed = false;
      await using upstream = await rawOrigin((socket) => {
        socket.once('close', () => (closed = true));
      });
      const clock = new TestClock();
      const silence = { limitMs: LIMIT_MS, clock };
      await using gateway = await proxyTo([upstream.url], {}, { silence });
      const client = opened(test, name, port(gateway), 'POST');
      client.write('hello');
      await until(() => upstream.received().includes('hello'), 'the upstream has the first bytes');
      client.leave();
      await until(() => closed, 'the upstream is closed');
      await until(() => clock.waiting === 0, 'the client is waited for no more');
      assert.deepEqual(gateway.faults, []);
      assert.deepEqual(gateway.statuses, [499]);
    });
  }

  for (const [what, early] of [
    ['answers before it has read', 'HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n'],
    ['hangs up', ''],
  ] as const) {
    it(`is read and discarded when the upstream ${what}, so that the connection stays usable`, async (test) => {
      await using upstream = await rawOrigin((socket, _text, connection) => {
        if (connection > 1) socket.write(OK);
        else if (early === '') socket.destroy();
        else socket.end(early);
      });
      await using gateway = await proxyTo([upstream.url]);
      const socket = net.connect(gateway.http1, '127.0.0.1').setEncoding('latin1');
      test.after(() => socket.destroy());
      let text = '';
      socket.on('data', (chunk: string) => (text += chunk));
      socket.write(`POST / HTTP/1.1\r\nHost: a\r\nContent-Length: ${4 * MIB}\r\n\r\n`);
      socket.write(Buffer.alloc(4 * MIB));
      await until(() => /^HTTP\/1\.1 (413|502) /.test(text), 'the client is answered');
      socket.write('GET / HTTP/1.1\r\nHost: a\r\n\r\n');
      await until(() => text.endsWith('ok'), 'the second request is answered');
      assert.equal(upstream.connections(), 2);
    });
  }

  for (const protocol of ['HTTP/1.1', 'HTTP/2']) {
    it(`may be missing while the upstream answers, over ${protocol}`, async (test) => {
      await using upstream = await rawOrigin((socket) => {
        socket.end('HTTP/1.1 401 Unauthorized\r\nContent-Length: 6\r\n\r\nlog in');
      });
      await using gateway = await proxyTo([upstream.url]);
      const port = protocol === 'HTTP/1.1' ? gateway.http1 : gateway.http2;
      const { answer } = opened(test, protocol, port, 'PUT');
      assert.match(await answer, /log in$/);
      assert.match(upstream.received(), /^PUT \/ HTTP\/1\.1\r\n[^]*\r\n\r\n$/);
    });
  }

  for (const length of ['0', null]) {
    it(`${length === null ? 'that never comes' : 'of no bytes'} does not keep the stream open after the response`, async (test) => {
      await using upstream = await rawOrigin((socket) => void socket.write(OK));
      await using gateway = await proxyTo([upstream.url]);
      const session = http2.connect(`http://127.0.0.1:${gateway.http2}`);
      test.after(() => session.destroy());
      const fields = {
        ':method': 'PUT',
        ':path': '/',
        ...(length && { 'content-length': length }),
      };
      const stream = session.request(fields, { endStream: false });
      stream.on('error', () => {});
      const closed = once(stream, 'close');
      const [answer] = (await once(stream, 'data')) as [Buffer];
      assert.equal(answer.toString(), 'ok');
      await closed;
      assert.equal(stream.rstCode, http2.constants.NGHTTP2_NO_ERROR);
      const framing = length === null ? 'transfer-encoding: chunked' : 'content-length: 0';
      assert.ok(upstream.received().toLowerCase().endsWith(`${framing}\r\n\r\n`));
    });
  }

  it('is awaited no longer than the limit for silence, even when it is not needed', async (test) => {
    const clock = new TestClock();
    await using upstream = await rawOrigin((socket) => {
      socket.end('HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n');
    });
    const silence = { limitMs: LIMIT_MS, clock };
    await using gateway = await proxyTo([upstream.url], {}, { silence });
    const socket = net.connect(gateway.http1, '127.0.0.1').setEncoding('latin1');
    test.after(() => socket.destroy());
    const closed = once(socket, 'close');
    let text = '';
    socket.on('data', (chunk: string) => (text += chunk));
    socket.write('POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\na');
    await until(() => text.startsWith('HTTP/1.1 413 '), 'the client is answered');
    await until(() => clock.waiting === 1, 'the rest is waited for');
    clock.advance(LIMIT_MS);
    await closed;
  });

  it('has a single limit for silence if a directive has wrapped it in another body', async () => {
    const clock = new TestClock();
    await using upstream = await rawOrigin(() => {});
    await using gateway = await proxyTo(
      [upstream.url],
      {},
      {
        silence: { limitMs: LIMIT_MS, clock },
        before: (exchange) => {
          exchange.body = pipeline(exchange.body, new PassThrough(), () => {});
        },
      },
    );
    const headers = { 'content-length': '5' };
    const slow = ask1(gateway.http1, { method: 'POST', headers, body: 'hell', unended: true });
    await until(() => upstream.received().endsWith('hell'), 'the upstream has the first bytes');
    assert.equal(clock.waiting, 1);
    clock.advance(LIMIT_MS);
    assert.equal((await slow).status, 408);
  });

  for (const { kind, fields = {}, overrides = {}, serve = stuck } of UPSTREAMS()) {
    it(`leads to 504 when an upstream accepts no more of it for write_timeout, by ${kind}`, async (test) => {
      const clock = new TestClock();
      const url = await serve(test);
      // No other limit may be the one that is over.
      const transport = { dialTimeoutMs: 0, writeTimeoutMs: LIMIT_MS };
      await using gateway = await proxyTo([url], { ...overrides, transport }, { clock });
      const socket = net.connect(gateway.http1, '127.0.0.1').setEncoding('latin1');
      test.after(() => socket.destroy());
      let text = '';
      socket.on('data', (chunk: string) => (text += chunk)).on('error', () => {});
      const length = 16 * MIB;
      const head = { Host: 'a', ...fields };
      const lines = Object.entries(head).map((field) => `${field.join(': ')}\r\n`);
      if (!('Transfer-Encoding' in head)) lines.push(`Content-Length: ${length}\r\n`);
      socket.write(`POST /a.php HTTP/1.1\r\n${lines.join('')}\r\n`);
      if ('Transfer-Encoding' in head) socket.write(`${length.toString(16)}\r\n`);
      socket.write(Buffer.alloc(length));
      await until(() => {
        // Before it comes to a stop the upstream's system still takes some.
        if (clock.waiting > 0) clock.advance(LIMIT_MS / 4);
        return text !== '';
      }, 'the client is answered');
      assert.match(text, /^HTTP\/1\.1 504 /);
      assert.deepEqual(gateway.faults, []);
    });
  }

  for (const { kind, overrides = {} } of UPSTREAMS()) {
    if (kind === 'HTTP/2') continue;
    it(`does not count towards response_header_timeout, by ${kind}`, async (test) => {
      const clock = new TestClock();
      await using upstream = await rawOrigin(() => {});
      const transport = { dialTimeoutMs: 0, responseHeaderTimeoutMs: LIMIT_MS };
      await using gateway = await proxyTo([upstream.url], { ...overrides, transport }, { clock });
      const socket = net.connect(gateway.http1, '127.0.0.1').setEncoding('latin1');
      test.after(() => socket.destroy());
      socket.write('POST /a.php HTTP/1.1\r\nHost: a\r\nContent-Length: 8\r\n\r\nhalf');
      await until(() => upstream.received().includes('half'), 'the upstream has the beginning');
      assert.equal(clock.waiting, 0);
      socket.write('rest');
      await until(() => clock.waiting === 1, 'the limit has begun');
      clock.advance(LIMIT_MS);
      assert.match(String((await once(socket, 'data'))[0]), /^HTTP\/1\.1 504 /);
    });
  }

  it('is not available to a second upstream after the first has read it, which gets no empty one instead', async () => {
    await using first = await origin((request, response) => {
      request.resume().on('end', () => response.writeHead(503).end());
    });
    let asked = 0;
    await using second = await origin((request, response) => {
      asked += 1;
      request.pipe(response);
    });
    await using other = await proxyTo([second.url]);
    const handleResponse = [
      { status: ['503'], headers: [], replaceStatus: null, routes: [] },
    ] as const;
    await using gateway = await proxyTo(
      [first.url],
      { handleResponse },
      {
        compileRoutes: () => other.proxy.handle,
      },
    );
    const answer = await ask1(gateway.http1, { method: 'POST', chunked: true, body: 'hello' });
    assert.deepEqual([answer.status, asked], [502, 0]);
  });
});

/** Ways to send a body to an upstream, each with one that never reads. */
function UPSTREAMS(): readonly {
  readonly kind: string;
  readonly fields?: Record<string, string>;
  readonly overrides?: Overrides;
  readonly serve?: (test: TestContext) => Promise<string>;
}[] {
  const fastcgi = { root: '/srv', resolveRootSymlink: false, splitPath: ['.php'], env: [] };
  return [
    { kind: 'HTTP/1.1' },
    {
      kind: 'HTTP/1.1 on a connection of its own',
      fields: { Trailer: 'X-Sum', 'Transfer-Encoding': 'chunked' },
    },
    { kind: 'FastCGI', overrides: { fastcgi } },
    { kind: 'HTTP/2', serve: (test) => http2Upstream(test, () => {}) },
  ];
}

async function stuck(test: TestContext): Promise<string> {
  const sockets: net.Socket[] = [];
  const server = net.createServer({ pauseOnConnect: true }, (socket) => {
    sockets.push(socket.on('error', () => {}));
  });
  return `http://127.0.0.1:${await listening(test, server, () => sockets)}`;
}

/** With prior knowledge. */
async function http2Upstream(
  test: TestContext,
  onStream: (stream: http2.ServerHttp2Stream) => void,
): Promise<string> {
  const sessions: http2.ServerHttp2Session[] = [];
  const server = http2.createServer();
  server.on('session', (session) => sessions.push(session));
  server.on('stream', (stream) => onStream(stream.on('error', () => {})));
  return `h2c://127.0.0.1:${await listening(test, server, () => sessions)}`;
}

async function listening(
  test: TestContext,
  server: net.Server,
  held: () => readonly { destroy(): void }[],
): Promise<number> {
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  test.after(() => {
    for (const one of held()) one.destroy();
    server.close();
  });
  const address = server.address();
  assert.ok(address !== null && typeof address === 'object');
  return address.port;
}

/** A request in chunks that is sent piece by piece. */
function opened(test: TestContext, protocol: string, port: number, method: string) {
  if (protocol === 'HTTP/1.1') {
    const socket = net.connect(port, '127.0.0.1').setEncoding('latin1');
    test.after(() => socket.destroy());
    socket.write(`${method} / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n`);
    return {
      write: (text: string) => void socket.write(`${text.length.toString(16)}\r\n${text}\r\n`),
      end: () => void socket.write('0\r\n\r\n'),
      leave: () => void socket.resetAndDestroy(),
      answer: once(socket, 'data').then(String),
    };
  }
  const session = http2.connect(`http://127.0.0.1:${port}`);
  test.after(() => session.destroy());
  const stream = session.request({ ':method': method, ':path': '/' }, { endStream: false });
  stream.on('error', () => {});
  return {
    write: (text: string) => void stream.write(text),
    end: () => void stream.end(),
    leave: () => stream.close(http2.constants.NGHTTP2_CANCEL),
    answer: once(stream, 'data').then(String),
  };
}

/** What a request and its answer are to Node itself. */
const NODES_OWN =
  /^(IncomingMessage|Server(Response|Http2Stream)|Client(Request|Http2Stream)|Socket)$/;

/** The classes of the streams to read from that are made meanwhile, but for those of the messages. */
async function madeBy(test: TestContext, task: () => Promise<void>): Promise<string[]> {
  const made: EventEmitter[] = [];
  // Every constructor of a stream comes by here.
  const holder = EventEmitter as unknown as { init(this: EventEmitter, ...all: unknown[]): void };
  const { init } = holder;
  const count = test.mock.method(holder, 'init', function (this: EventEmitter, ...all: unknown[]) {
    made.push(this);
    init.apply(this, all);
  });
  await task();
  count.mock.restore();
  return made.flatMap((one) =>
    one instanceof Readable && !NODES_OWN.test(one.constructor.name) ? [one.constructor.name] : [],
  );
}
