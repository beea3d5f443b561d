import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { describe, it, type TestContext } from 'node:test';
import { connect as connectTls } from 'node:tls';
import { silentLogger } from '../support/installed-package.ts';
import { freePort } from '../support/free-port.ts';
import { startLibraryGateway } from '../support/gateway.ts';
import {
  connectRaw,
  errorCode,
  type Field,
  FLAG,
  frame,
  FRAME,
  headers,
} from '../support/http2-frames.ts';
import { startRawOrigin } from '../support/raw-origin.ts';
import { settled } from '../support/settled.ts';
import { TestClock } from '../support/test-clock.ts';

/** What catches a hang; nothing here is timed. */
const MINUTE_MS = 60_000;
/** Node 20 leaves a session as it is whose connection has failed, until it does not answer. */
const REPORTS_ERRORS = Number.parseInt(process.versions.node, 10) >= 22;
/** The client opens no further streams (RFC 9113 §6.8). */
const GOAWAY = frame(FRAME.goAway, 0, 0, Buffer.alloc(8));
const REQUEST = 'GET / HTTP/1.1\r\nHost: localhost\r\n\r\n';

describe('limits: slow clients', () => {
  it('a head that does not arrive within read_header gets 408, over TLS too', async (test) => {
    const { http, https, ca } = await startSites(
      test,
      '\t\ttimeouts {\n\t\t\tread_header 1s\n\t\t}\n',
    );
    for (const start of ['', 'GET / HTTP/1.1\r\n', 'GET / HTTP/1.1\r\nHost: localhost\r\nX: ']) {
      for (const open of [() => connect(http, '127.0.0.1'), () => connectSecurely(https, ca)]) {
        const socket = open();
        socket.write(start);
        assert.match(await toEnd(socket), /^HTTP\/1\.1 408 /);
      }
    }
    // The second request of a connection is not allowed more.
    const socket = connect(http, '127.0.0.1');
    socket.write(`${REQUEST}GET`);
    assert.match(await toEnd(socket), /^HTTP\/1\.1 200 [^]*ok[^]*HTTP\/1\.1 408 /);
  });

  it('a connection without a request is closed after idle', async (test) => {
    const { http } = await startSites(test, '\t\ttimeouts {\n\t\t\tidle 1s\n\t\t}\n');
    const socket = connect(http, '127.0.0.1');
    socket.write(REQUEST);
    assert.match(await toEnd(socket), /^HTTP\/1\.1 200 [^]*ok$/);
  });

  it('a body that stalls gets 408 after read_body, and the connection to the origin is closed', async (test) => {
    const clock = new TestClock(Date.now());
    const origin = await startRawOrigin(test, () => false);
    const { http } = await startSites(test, '', clock, `reverse_proxy 127.0.0.1:${origin.port}`);
    const socket = connect(http, '127.0.0.1');
    const text = toEnd(socket);
    socket.write('POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\na');
    // Each byte gives it the whole time again.
    for (const sent of ['a', 'ab', 'abc']) {
      await origin.until(() => origin.connections[0]?.bytes.endsWith(`\r\n\r\n${sent}`) === true);
      clock.advance(MINUTE_MS - 1000);
      if (sent !== 'abc') socket.write(sent === 'a' ? 'b' : 'c');
    }
    clock.advance(1000);
    assert.match(await text, /^HTTP\/1\.1 408 [^]*connection: close/i);
    await origin.until(() => origin.connections[0]?.closed === true);
  });

  it('a stalled HTTP/2 stream is closed, but not its connection', async (test) => {
    const clock = new TestClock(Date.now());
    const origin = await startRawOrigin(test, () => false);
    const { https, ca } = await startSites(
      test,
      '',
      clock,
      `respond /ok ok\n\treverse_proxy 127.0.0.1:${origin.port}`,
    );
    const client = await connectRaw(test, https, ca);
    client.send(headers(1, fields('POST', '/'), FLAG.endHeaders), frame(FRAME.data, 0, 1, 'abc'));
    await origin.until(() => origin.connections[0]?.bytes.includes('abc') === true);
    clock.advance(MINUTE_MS);
    assert.equal(await client.outcome(1), 408);
    await client.until(({ type, stream }) => type === FRAME.reset && stream === 1);
    await origin.until(() => origin.connections[0]?.closed === true);
    client.send(headers(3, fields('GET', '/ok')));
    assert.equal(await client.outcome(3), 200);
  });

  it('an HTTP/2 stream with a complete response is closed in good order if its request stalls', async (test) => {
    const clock = new TestClock(Date.now());
    const origin = await startRawOrigin(test, (bytes) => bytes.includes('abc'));
    const { https, ca } = await startSites(
      test,
      '',
      clock,
      `reverse_proxy 127.0.0.1:${origin.port}`,
    );
    const client = await connectRaw(test, https, ca);
    client.send(headers(1, fields('POST', '/'), FLAG.endHeaders), frame(FRAME.data, 0, 1, 'abc'));
    assert.equal(await client.outcome(1), 200);
    await client.until(({ stream, flags }) => stream === 1 && (flags & FLAG.endStream) !== 0);
    clock.advance(MINUTE_MS);
    const reset = await client.until(({ type, stream }) => type === FRAME.reset && stream === 1);
    assert.equal(errorCode(reset), 0);
  });

  it('a client does not count as stalled while the origin does not read its bytes', async (test) => {
    const clock = new TestClock(Date.now());
    const size = 16 * 1024 * 1024;
    let accepted: (socket: Socket) => void = () => {};
    const upstream = new Promise<Socket>((resolve) => (accepted = resolve));
    const { createServer } = await import('node:net');
    const server = createServer({ pauseOnConnect: true }, (socket) => accepted(socket));
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    const address = server.address();
    assert.ok(address !== null && typeof address === 'object');
    const { http } = await startSites(test, '', clock, `reverse_proxy 127.0.0.1:${address.port}`);
    const socket = connect(http, '127.0.0.1');
    test.after(() => socket.destroy());
    socket.write(`POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: ${size}\r\n\r\n`);
    socket.write(Buffer.alloc(size));
    const taking = await upstream;
    test.after(() => {
      taking.destroy();
      server.close();
    });
    await settled(() => socket.bytesWritten - socket.writableLength);
    clock.advance(10 * MINUTE_MS);
    let length = 0;
    taking.on('data', (chunk: Buffer) => {
      length += chunk.length;
      if (length > size) taking.write('HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok');
    });
    taking.resume();
    const [answer] = await once(socket, 'data');
    assert.match(String(answer), /^HTTP\/1\.1 200 /);
  });

  it('an HTTP/2 connection without streams is closed after idle, even if it sends pings', async (test) => {
    const clock = new TestClock(Date.now());
    const { https, ca } = await startSites(test, '', clock);
    const client = await connectRaw(test, https, ca);
    client.send(headers(1, fields('GET', '/')));
    assert.equal(await client.outcome(1), 200);
    await client.settled();
    clock.advance(2 * MINUTE_MS);
    const goAway = await client.until(({ type }) => type === FRAME.goAway);
    assert.equal(errorCode(goAway), 0);
    await client.untilClosed();
  });
});

describe('limits: HTTP/2 connections whose client is gone', () => {
  it('a client that does not answer a PING while a stream is open is closed', async (test) => {
    const { client, clock } = await openStream(test);
    clock.advance(30_000);
    clock.advance(30_000);
    await client.until(({ type, flags }) => type === FRAME.ping && flags === 0);
    clock.advance(30_000);
    await client.untilClosed();
  });

  for (const says of ['nothing', 'GOAWAY']) {
    it(`a client that answers keeps its silent stream after ${says}`, async (test) => {
      const { client, clock } = await openStream(test);
      if (says === 'GOAWAY') client.send(GOAWAY);
      const pings = () =>
        client.frames.filter(({ type, flags }) => type === FRAME.ping && flags === 0);
      for (let i = 0; i < 40; i += 1) {
        // Its own ping, by which the test notices that the answer has arrived, is a sign of life for half a minute.
        clock.advance(30_000);
        clock.advance(30_000);
        await client.until(() => pings().length > i);
        client.send(frame(FRAME.ping, FLAG.ack, 0, pings()[i]?.payload));
        await client.settled();
      }
      assert.equal(client.closed, false);
      assert.ok(!client.frames.some(({ type }) => type === FRAME.reset));
    });
  }

  const ERRORS = {
    'DATA on a stream that it has ended': frame(FRAME.data, 0, 1, 'x'),
    'fields that cannot be decoded': frame(
      FRAME.headers,
      FLAG.endHeaders,
      3,
      Buffer.alloc(5, 0xff),
    ),
    'bytes that are no frame': Buffer.alloc(64, 0xff),
  };
  for (const [what, bytes] of Object.entries(ERRORS)) {
    it(`the streams of a client end at once that sends GOAWAY and ${what}`, {
      skip: !REPORTS_ERRORS,
    }, async (test) => {
      const { client, origin } = await openStream(test);
      client.send(GOAWAY);
      await client.settled();
      client.send(bytes);
      await client.untilClosed();
      await origin.until(() => origin.connections[0]?.closed === true);
    });
  }

  it('the streams of a client that sends GOAWAY finish, and then its connection closes', async (test) => {
    const origin = await startRawOrigin(test, (bytes) => bytes.includes('bc'));
    const routes = `reverse_proxy 127.0.0.1:${origin.port}`;
    const { https, ca } = await startSites(test, '', new TestClock(Date.now()), routes);
    const client = await connectRaw(test, https, ca);
    client.send(headers(1, fields('POST', '/'), FLAG.endHeaders), frame(FRAME.data, 0, 1, 'a'));
    await origin.until(() => origin.connections[0]?.bytes.includes('a') === true);
    client.send(GOAWAY);
    await client.settled();
    assert.equal(client.closed, false);
    client.send(frame(FRAME.data, FLAG.endStream, 1, 'bc'));
    assert.equal(await client.outcome(1), 200);
    await client.untilClosed();
  });

  /** A stream that nobody ends, and on which nothing is said. */
  async function openStream(test: TestContext) {
    const clock = new TestClock(Date.now());
    const origin = await startRawOrigin(test, () => false);
    const { https, ca } = await startSites(
      test,
      '',
      clock,
      `reverse_proxy 127.0.0.1:${origin.port}`,
    );
    const client = await connectRaw(test, https, ca);
    client.send(headers(1, fields('GET', '/')));
    await origin.until(() => origin.connections.length > 0);
    return { client, clock, origin };
  }
});

describe('limits: numbers of connections', () => {
  it('max_connections: connections beyond the limit are closed, and new ones are accepted when one closes', async (test) => {
    const warnings: string[] = [];
    const { http } = await startSites(
      test,
      '\t\tmax_connections 2\n',
      undefined,
      undefined,
      warnings,
    );
    const [first, second] = [await served(http), await served(http)];
    test.after(() => second.destroy());
    for (let i = 0; i < 3; i += 1) assert.equal(await toEnd(connect(http, '127.0.0.1')), '');
    assert.deepEqual(warnings, ['A listener is full and rejects connections']);
    first.destroy();
    await once(first, 'close');
    const third = await untilServed(http);
    third.destroy();
  });

  it('max_connections_per_client: the connections of one client do not count against another', async (test) => {
    const { http } = await startSites(test, '\t\tmax_connections_per_client 2\n');
    const mine = [await served(http), await served(http)];
    assert.equal(await toEnd(connect(http, '127.0.0.1')), '');
    const other = await served(http, '127.0.0.2');
    for (const socket of [...mine, other]) socket.destroy();
    (await untilServed(http)).destroy();
  });
});

interface Sites {
  readonly http: number;
  readonly https: number;
  readonly ca: string;
}

async function startSites(
  test: TestContext,
  servers: string,
  clock?: TestClock,
  routes = 'respond ok',
  warnings: string[] = [],
): Promise<Sites> {
  const [http, https] = [await freePort(), await freePort()];
  const { root } = await startLibraryGateway(
    test,
    `http://localhost:${http} {\n\t${routes}\n}\nhttps://localhost:${https} {\n\ttls internal\n\t${routes}\n}\n`,
    `\tauto_https disable_redirects\n\tservers {\n${servers}\t\ttrusted_proxies static 192.0.2.1\n\t}\n`,
    { ...silentLogger, warn: (message) => warnings.push(message) },
    clock,
  );
  return { http, https, ca: await root() };
}

function fields(method: string, path: string): Field[] {
  return [
    [':method', method],
    [':scheme', 'https'],
    [':authority', 'localhost'],
    [':path', path],
  ];
}

function connectSecurely(port: number, ca: string): Socket {
  return connectTls({ host: '127.0.0.1', port, servername: 'localhost', ca });
}

/** A connection that has been served once and stays open. */
async function served(port: number, localAddress = '127.0.0.1'): Promise<Socket> {
  const socket = connect({ port, host: '127.0.0.1', localAddress });
  socket.write(REQUEST);
  const [answer] = await once(socket, 'data');
  assert.match(String(answer), /^HTTP\/1\.1 200 /);
  return socket;
}

/** The gateway may learn a little later that another connection has gone. */
async function untilServed(port: number): Promise<Socket> {
  for (;;) {
    const socket = connect(port, '127.0.0.1');
    socket.write(REQUEST);
    // A connection that is rejected may be reset, which is an error here.
    const [answer] = await Promise.race([once(socket, 'data'), once(socket, 'close')]).catch(
      () => [],
    );
    if (Buffer.isBuffer(answer)) return socket;
  }
}

async function toEnd(socket: Socket): Promise<string> {
  let text = '';
  socket.on('data', (chunk: Buffer) => (text += chunk.toString('latin1')));
  // Connections that are not wanted may be reset.
  socket.on('error', () => {});
  await new Promise((resolve) => socket.once('close', resolve));
  return text;
}
