import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import http2 from 'node:http2';
import net from 'node:net';
import type { Duplex } from 'node:stream';
import { describe, it } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { WebSocket, WebSocketServer } from 'ws';
import { answer } from '../../../src/http/answer.ts';
import { MAX_STALL_MS } from '../../../src/proxy/forwarding.ts';
import { portOf, serveExchanges } from '../http/exchange-server.ts';
import { freePort } from '../../support/free-port.ts';
import { startGateway } from '../../support/gateway.ts';
import { TestClock } from '../../support/test-clock.ts';
import { origin, type Origin, proxyTo, rawOrigin, type TestGateway, until } from './gateway.ts';

const MIB = 1024 * 1024;
const ASK = 'GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n';
const SWITCHED =
  'HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n';

/** An upstream that answers WebSocket messages with themselves, and remembers who connected. */
async function echoOrigin(): Promise<
  Origin & { readonly open: ReadonlySet<WebSocket>; seen(): string }
> {
  const upstream = await origin((_, response) => response.writeHead(426).end('upgrade please'));
  const sockets = new WebSocketServer({ server: upstream.server, maxPayload: 64 * MIB });
  let seen = '';
  sockets.on('headers', (headers) => headers.push('Set-Cookie: a=1', 'Set-Cookie: b=2'));
  sockets.on('connection', (socket, request) => {
    seen = JSON.stringify(request.headers);
    socket.on('error', () => {});
    socket.on('message', (data, isBinary) => socket.send(data, { binary: isBinary }));
  });
  return { ...upstream, open: sockets.clients, seen: () => seen };
}

/** A WebSocket client over HTTP/1.1, or over an extended CONNECT (RFC 8441). */
async function connect(gateway: TestGateway, protocol: string): Promise<WebSocket> {
  const port = protocol === 'HTTP/1.1' ? gateway.http1 : await translator(gateway.http2);
  return new WebSocket(`ws://127.0.0.1:${port}/chat?x=1`);
}

/** Listens for one HTTP/1.1 handshake and makes it an extended CONNECT; bytes afterwards pass. */
async function translator(http2Port: number): Promise<number> {
  const session = http2.connect(`http://127.0.0.1:${http2Port}`, { maxSessionMemory: 200 });
  // The gateway of a test may be gone before its client: the test looks at the WebSocket.
  session.on('error', () => {});
  const server = net.createServer((socket) => {
    server.close();
    socket.once('data', (head: Buffer) => {
      const key = /sec-websocket-key: (\S+)/i.exec(head.toString('latin1'))?.[1] ?? '';
      bridge(session, socket, key).catch(() => socket.destroy());
    });
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return portOf(server);
}

async function bridge(
  session: http2.ClientHttp2Session,
  socket: Duplex,
  key: string,
): Promise<void> {
  await new Promise<void>((ready) => {
    if (session.remoteSettings.enableConnectProtocol === true) ready();
    else session.once('remoteSettings', () => ready());
  });
  const stream = session.request({
    ':method': 'CONNECT',
    ':protocol': 'websocket',
    ':path': '/chat?x=1',
    ':authority': 'site.example',
    'sec-websocket-version': '13',
  });
  stream.on('error', () => socket.destroy());
  socket.on('error', () => stream.close());
  const abandon = (): void => stream.close(http2.constants.NGHTTP2_CANCEL);
  socket.once('close', abandon);
  const [headers] = await once(stream, 'response');
  socket.off('close', abandon);
  if (headers[':status'] !== 200) {
    socket.end(`HTTP/1.1 ${headers[':status']} Refused\r\nContent-Length: 0\r\n\r\n`);
    return;
  }
  assert.equal(headers['sec-websocket-accept'], undefined);
  const accept = createHash('sha1')
    .update(`${key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11`)
    .digest('base64');
  socket.write(
    'HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n' +
      `Sec-WebSocket-Accept: ${accept}\r\n\r\n`,
  );
  socket.pipe(stream).pipe(socket);
  socket.on('close', () => {
    stream.close();
    session.close();
  });
  stream.on('close', () => socket.destroy());
}

for (const protocol of ['HTTP/1.1', 'HTTP/2 (RFC 8441)']) {
  describe(`a WebSocket over ${protocol}`, () => {
    it('echoes text, fragments and 16 MiB', async () => {
      await using upstream = await echoOrigin();
      await using gateway = await proxyTo([upstream.url]);
      const client = await connect(gateway, protocol);
      await once(client, 'open');

      client.send('hello');
      assert.equal(String((await once(client, 'message'))[0]), 'hello');

      client.send('frag', { fin: false });
      client.send('men', { fin: false });
      client.send('ted', { fin: true });
      assert.equal(String((await once(client, 'message'))[0]), 'fragmented');

      const large = Buffer.alloc(16 * MIB, 'abcdefg');
      client.send(large);
      const [echo] = await once(client, 'message');
      assert.ok(Buffer.isBuffer(echo) && echo.equals(large));

      assert.match(upstream.seen(), /"x-forwarded-for":"127\.0\.0\.1"/);
      assert.match(upstream.seen(), /"via":"(1\.1|2\.0) hubgate"/);
      client.close(1000);
      await once(client, 'close');
      await until(() => upstream.open.size === 0, 'the upstream has closed');
      await until(() => inFlight(gateway) === 0, 'the upstream counts as idle');
      assert.deepEqual(gateway.faults, []);
    });

    it('ends at the upstream when the client disappears', async () => {
      await using upstream = await echoOrigin();
      await using gateway = await proxyTo([upstream.url]);
      const client = await connect(gateway, protocol);
      client.on('error', () => {});
      await once(client, 'open');
      client.terminate();
      await until(() => upstream.open.size === 0, 'the upstream has closed');
      await until(() => inFlight(gateway) === 0, 'the upstream counts as idle');
    });

    it('ends at the client when the upstream disappears', async () => {
      await using upstream = await echoOrigin();
      await using gateway = await proxyTo([upstream.url]);
      const client = await connect(gateway, protocol);
      client.on('error', () => {});
      await once(client, 'open');
      for (const socket of upstream.open) socket.terminate();
      await once(client, 'close');
      await until(() => inFlight(gateway) === 0, 'the upstream counts as idle');
      assert.deepEqual(gateway.faults, []);
    });

    it('is aborted at an upstream that never responds when the client disconnects', async () => {
      await using upstream = await rawOrigin(() => {});
      await using gateway = await proxyTo([upstream.url]);
      const client = await connect(gateway, protocol);
      client.on('error', () => {});
      await until(() => upstream.received().includes('\r\n\r\n'), 'the upstream is asked');
      assert.equal(upstream.open(), 1);
      client.terminate();
      await until(() => upstream.open() === 0, 'the upstream is closed');
    });

    it('passes on a refusal by the upstream', async () => {
      await using upstream = await origin(() => {});
      upstream.server.on('upgrade', (_, socket) => {
        socket.end('HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno');
      });
      await using gateway = await proxyTo([upstream.url]);
      const client = await connect(gateway, protocol);
      const [error] = await once(client, 'error');
      assert.match(String(error), /403/);
      await until(() => inFlight(gateway) === 0, 'the upstream counts as idle');
    });

    it('may have time limits that are longer than the timers of Node', async () => {
      await using upstream = await origin(() => {});
      upstream.server.on('upgrade', (_, socket) => {
        const refuse = () => socket.end('HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno');
        setTimeout(refuse, 50);
      });
      const transport = { dialTimeoutMs: 2 ** 40, responseHeaderTimeoutMs: 2 ** 40 };
      await using gateway = await proxyTo([upstream.url], { transport });
      const [error] = await once(await connect(gateway, protocol), 'error');
      assert.match(String(error), /403/);
    });

    it('is 502 when the upstream cannot be reached', async () => {
      await using gateway = await proxyTo([`http://127.0.0.1:${await freePort()}`]);
      const client = await connect(gateway, protocol);
      const [error] = await once(client, 'error');
      assert.match(String(error), /502/);
    });

    it('goes to the next upstream when the first cannot be reached', async () => {
      await using upstream = await echoOrigin();
      await using gateway = await proxyTo([`http://127.0.0.1:${await freePort()}`, upstream.url]);
      const client = await connect(gateway, protocol);
      await once(client, 'open');
      client.send('hello');
      assert.equal(String((await once(client, 'message'))[0]), 'hello');
      client.terminate();
    });

    it('passes on 1 MiB after the first upstream could not be reached', async () => {
      await using upstream = await echoOrigin();
      await using gateway = await proxyTo([`http://127.0.0.1:${await freePort()}`, upstream.url]);
      const client = await connect(gateway, protocol);
      await once(client, 'open');
      const large = Buffer.alloc(MIB, 'abcdefg');
      client.send(large);
      const [echo] = await once(client, 'message');
      assert.ok(Buffer.isBuffer(echo) && echo.equals(large));
      client.terminate();
    });

    for (const fields of [
      'Connection: Upgrade\r\nUpgrade: other\r\n',
      'Upgrade: websocket\r\n',
      '',
    ]) {
      it(`is 502 when the upstream answers 101 with ${JSON.stringify(fields)} (RFC 9110 §7.8)`, async () => {
        await using upstream = await rawOrigin((socket, text) => {
          const key = /sec-websocket-key: (\S+)/i.exec(text)?.[1] ?? '';
          const accept = createHash('sha1').update(`${key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11`);
          socket.write(
            `HTTP/1.1 101 Switching Protocols\r\n${fields}Sec-WebSocket-Accept: ${accept.digest('base64')}\r\n\r\n`,
          );
        });
        await using gateway = await proxyTo([upstream.url]);
        const client = await connect(gateway, protocol);
        const [error] = await once(client, 'error');
        assert.match(String(error), /502/);
        await until(() => upstream.open() === 0, 'the upstream has closed');
        assert.deepEqual(gateway.faults, []);
      });
    }

    it('is 504 when the upstream does not respond in time', async () => {
      await using upstream = await rawOrigin(() => {});
      await using gateway = await proxyTo([upstream.url], {
        transport: { responseHeaderTimeoutMs: 50 },
      });
      const client = await connect(gateway, protocol);
      const [error] = await once(client, 'error');
      assert.match(String(error), /504/);
    });

    it('survives the closing of its proxy, unless stream_close_delay limits that', async () => {
      await using upstream = await echoOrigin();
      await using lasting = await proxyTo([upstream.url]);
      await using limited = await proxyTo([upstream.url], { streamCloseDelayMs: 1 });
      const client = await connect(lasting, protocol);
      const doomed = await connect(limited, protocol);
      doomed.on('error', () => {});
      await Promise.all([once(client, 'open'), once(doomed, 'open')]);
      lasting.proxy.close();
      limited.proxy.close();
      await once(doomed, 'close');
      client.send('still here');
      assert.equal(String((await once(client, 'message'))[0]), 'still here');
      client.terminate();
    });

    it('lives no longer than stream_timeout', async () => {
      await using upstream = await echoOrigin();
      await using gateway = await proxyTo([upstream.url], { streamTimeoutMs: 20 });
      const client = await connect(gateway, protocol);
      client.on('error', () => {});
      await once(client, 'close');
      await until(() => upstream.open.size === 0, 'the upstream has closed');
    });
  });
}

describe('an upgrade', () => {
  for (const [what, bytes, ends] of [
    ['leaves, whatever it has sent before', 40_000, true],
    ['sends more than it may before the answer', 200_000, false],
  ] as const) {
    it(`is aborted at an upstream that never responds when the client ${what}`, async (test) => {
      await using upstream = await rawOrigin(() => {});
      const port = await freePort();
      // With its own listeners, which let clients end their side alone.
      await startGateway(test, `http://localhost:${port} {\n\treverse_proxy ${upstream.url}\n}\n`);
      const client = net.connect(port, '127.0.0.1').on('error', () => {});
      const closed = new Promise((resolve) => client.resume().once('close', resolve));
      client.write(
        'GET / HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n' +
          'Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n',
      );
      await until(() => upstream.received().includes('\r\n\r\n'), 'the upstream is asked');
      client.write(Buffer.alloc(bytes));
      if (ends) client.end();
      await until(() => upstream.open() === 0, 'the upstream is closed');
      await closed;
    });
  }

  it('also ends after stream_close_delay if it completes after its proxy has closed', async () => {
    let switchNow = (): void => {};
    await using upstream = await rawOrigin((socket, text) => {
      const key = /sec-websocket-key: (\S+)/i.exec(text)?.[1] ?? '';
      const accept = createHash('sha1')
        .update(`${key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11`)
        .digest('base64');
      switchNow = () =>
        void socket.write(
          `HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: ${accept}\r\n\r\n`,
        );
    });
    await using gateway = await proxyTo([upstream.url], { streamCloseDelayMs: 1 });
    const client = new WebSocket(`ws://127.0.0.1:${gateway.http1}/`);
    client.on('error', () => {});
    await until(() => upstream.received().includes('\r\n\r\n'), 'the upstream is asked');
    gateway.proxy.close();
    const closed = once(client, 'close');
    switchNow();
    await closed;
    await until(() => upstream.open() === 0, 'the upstream has closed');
  });

  it('passes on bytes that arrived with the head of either side', async () => {
    await using upstream = await origin(() => {});
    upstream.server.on('upgrade', (_, socket: Duplex, head: Buffer) => {
      socket.write(
        `HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nearly:${head.toString()}`,
      );
      socket.on('data', (chunk: Buffer) => socket.end(chunk));
    });
    await using gateway = await proxyTo([upstream.url]);
    const socket = net.connect(gateway.http1, '127.0.0.1');
    socket.write(
      'GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nfirst',
    );
    let text = '';
    for await (const chunk of socket) text += String(chunk);
    assert.match(text, /^HTTP\/1\.1 101 [^\r]*\r\n/);
    assert.match(text, /\r\n\r\nearly:first$/);
  });

  it('is answered with 400 if its client sends more than 64 KiB before the switch', async () => {
    await using upstream = await rawOrigin(() => {});
    await using gateway = await proxyTo([upstream.url]);
    const socket = net.connect(gateway.http1, '127.0.0.1');
    socket.write(ASK + 'x'.repeat(MIB));
    let text = '';
    for await (const chunk of socket) text += String(chunk);
    assert.match(text, /^HTTP\/1\.1 400 /);
    await until(() => upstream.open() === 0, 'the upstream has closed');
  });

  it('ends when its client disappears although its upstream takes no more', async () => {
    const clock = new TestClock();
    await using upstream = await origin(() => {});
    // Nobody reads the connection.
    upstream.server.on('upgrade', (_, socket: Duplex) => socket.write(SWITCHED));
    await using gateway = await proxyTo([upstream.url], {}, { clock });
    const socket = net.connect(gateway.http1, '127.0.0.1');
    socket.write(ASK);
    await once(socket, 'data');
    for (let left = Infinity, turns = 0; turns < 25; ) {
      if (socket.writableLength < MIB) socket.write(Buffer.alloc(MIB));
      await pause(5);
      turns = socket.writableLength === left ? turns + 1 : 0;
      left = socket.writableLength;
    }
    socket.resetAndDestroy();
    await pause(200);
    assert.equal(inFlight(gateway), 1, 'nobody notices');
    clock.advance(5_000);
    await until(() => clock.waiting === 1, 'the client has closed');
    assert.equal(inFlight(gateway), 1, 'the upstream may read what has been sent');
    clock.advance(MAX_STALL_MS);
    await until(() => inFlight(gateway) === 0, 'the upstream counts as idle');
    assert.equal(clock.waiting, 0);
  });

  it('passes on bytes that arrived with the head to the upstream that is tried next', async () => {
    await using upstream = await origin(() => {});
    upstream.server.on('upgrade', (_, socket: Duplex, head: Buffer) => {
      socket.write(SWITCHED);
      if (head.length > 0) socket.end(head);
      else socket.once('data', (chunk: Buffer) => socket.end(chunk));
    });
    await using gateway = await proxyTo([`http://127.0.0.1:${await freePort()}`, upstream.url]);
    const socket = net.connect(gateway.http1, '127.0.0.1');
    socket.write(`${ASK}first`);
    let text = '';
    for await (const chunk of socket) text += String(chunk);
    assert.match(text, /\r\n\r\nfirst$/);
  });

  it('keeps the fields of the 101 separate and applies header_down and head transforms', async () => {
    await using upstream = await echoOrigin();
    await using gateway = await proxyTo(
      [upstream.url],
      { headerDown: [{ kind: 'set', name: 'X-Down', value: '1' }] },
      {
        before: (exchange) =>
          exchange.onHead((head) => {
            assert.equal(head.status, 101);
            head.headers.set('X-Transformed', '1');
            return undefined;
          }),
      },
    );
    const client = await connect(gateway, 'HTTP/1.1');
    const [response] = await once(client, 'upgrade');
    assert.deepEqual(response.headers['set-cookie'], ['a=1', 'b=2']);
    assert.equal(response.headers['x-down'], '1');
    assert.equal(response.headers['x-transformed'], '1');
    client.terminate();
  });

  it('to another protocol is forwarded as an ordinary request, without the Upgrade field (RFC 9110 §7.8)', async () => {
    let upgrade: string | undefined = 'unset';
    await using upstream = await origin((request, response) => {
      upgrade = request.headers.upgrade;
      response.end('plain');
    });
    await using gateway = await proxyTo([upstream.url]);
    const socket = net.connect(gateway.http1, '127.0.0.1');
    socket.write('GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n');
    let text = '';
    // The connection stays for the next request.
    for await (const chunk of socket) {
      text += String(chunk);
      if (text.includes('plain')) break;
    }
    assert.match(text, /^HTTP\/1\.1 200 /);
    assert.equal(upgrade, undefined);
  });

  it('with a body is refused', async () => {
    await using upstream = await echoOrigin();
    await using gateway = await proxyTo([upstream.url]);
    const socket = net.connect(gateway.http1, '127.0.0.1');
    socket.write(
      'GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nContent-Length: 4\r\n\r\nbody',
    );
    let text = '';
    for await (const chunk of socket) text += String(chunk);
    assert.match(text, /^HTTP\/1\.1 400 /);
  });

  it('is aborted for the client when the upstream dies in the middle of its refusal', async () => {
    await using upstream = await rawOrigin((socket) => {
      socket.write('HTTP/1.1 403 Forbidden\r\nContent-Length: 100\r\n\r\nhalf', () =>
        socket.destroy(),
      );
    });
    await using gateway = await proxyTo([upstream.url]);
    const socket = net.connect(gateway.http1, '127.0.0.1');
    socket.on('error', () => {});
    socket.write('GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n');
    socket.resume();
    await once(socket, 'close');
    await until(() => inFlight(gateway) === 0, 'the upstream counts as idle');
    assert.deepEqual(gateway.faults, []);
  });

  it('is aborted for the client when the rest of its refusal is missing for longer than read_timeout', async () => {
    await using upstream = await rawOrigin((socket) => {
      socket.write('HTTP/1.1 403 Forbidden\r\nContent-Length: 100\r\n\r\nhalf');
    });
    await using gateway = await proxyTo([upstream.url], { transport: { readTimeoutMs: 50 } });
    const socket = net.connect(gateway.http1, '127.0.0.1');
    socket.on('error', () => {});
    socket.write('GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n');
    const received = socket.setEncoding('latin1').toArray();
    assert.match((await received.catch(() => [])).join(''), /^HTTP\/1\.1 403 .*half$/s);
    await until(() => inFlight(gateway) === 0, 'the upstream counts as idle');
    assert.deepEqual(gateway.faults, []);
  });

  it('that gets a page as response is 502 over HTTP/2, where 200 would mean that the tunnel exists (RFC 8441 §5)', async () => {
    await using upstream = await origin(() => {});
    upstream.server.on('upgrade', (_, socket) => {
      socket.end('HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\npage');
    });
    await using gateway = await proxyTo([upstream.url]);
    const client = await connect(gateway, 'HTTP/2');
    const [error] = await once(client, 'error');
    assert.match(String(error), /502/);
    await until(() => inFlight(gateway) === 0, 'the upstream counts as idle');
  });

  it('that leads to no tunnel is 501 over HTTP/2, whatever page is sent (RFC 9113 §8.5)', async () => {
    for (const status of [200, 204, 299]) {
      await using server = await serveExchanges((exchange) => answer(exchange, status, {}, 'page'));
      const session = http2.connect(`http://127.0.0.1:${server.http2}`);
      session.on('error', () => {});
      await once(session, 'remoteSettings');
      const stream = session.request({
        ':method': 'CONNECT',
        ':protocol': 'websocket',
        ':path': '/',
      });
      const [headers] = await once(stream, 'response');
      assert.equal(headers[':status'], 501);
      session.destroy();
    }
  });

  it('with a wrong Sec-WebSocket-Accept from the upstream is 502 over HTTP/2', async () => {
    await using upstream = await origin(() => {});
    upstream.server.on('upgrade', (_, socket) => {
      socket.end(
        'HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: x\r\n\r\n',
      );
    });
    await using gateway = await proxyTo([upstream.url]);
    const client = await connect(gateway, 'HTTP/2');
    const [error] = await once(client, 'error');
    assert.match(String(error), /502/);
  });
});

function inFlight(gateway: TestGateway): number {
  return gateway.registry.upstreams().reduce((sum, upstream) => sum + upstream.inFlight, 0);
}
