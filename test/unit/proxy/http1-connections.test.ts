import assert from 'node:assert/strict';
import { once } from 'node:events';
import net from 'node:net';
import { PassThrough } from 'node:stream';
import { describe, it } from 'node:test';
import { setImmediate as turn, setTimeout as after } from 'node:timers/promises';
import { freePort } from '../../support/free-port.ts';
import { TestClock } from '../../support/test-clock.ts';
import { portOf } from '../http/exchange-server.ts';
import { rawOrigin, until } from './gateway.ts';
import { Http1Client, LeavingClient } from './http1-client.ts';

const OK = 'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok';
const HEAD_END = '\r\n\r\n';
const SECOND = 1000;

const answering =
  (text: string) =>
  (socket: net.Socket, received: string): void => {
    if (received.endsWith(HEAD_END)) socket.write(text);
  };

/** Two connected sockets; `rung` resolves when one of them gets what the other sends. */
async function pair() {
  const server = net.createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const near = net.connect(portOf(server), '127.0.0.1');
  const [[far]] = (await Promise.all([once(server, 'connection'), once(near, 'connect')])) as [
    [net.Socket],
    unknown,
  ];
  return {
    ring: () => void far.write('x'),
    rung: once(near, 'data'),
    [Symbol.asyncDispose]: async () => {
      near.destroy();
      far.destroy();
      await new Promise((done) => server.close(done));
    },
  };
}

describe('connections to an HTTP/1.1 upstream', () => {
  it('are kept and reused, the last one first', async () => {
    const used: number[] = [];
    await using upstream = await rawOrigin((socket, text, connection) => {
      used.push(connection);
      answering(OK)(socket, text);
    });
    using client = new Http1Client(upstream.url);
    await Promise.all([client.ask(), client.ask(), client.ask()]);
    assert.equal(upstream.connections(), 3);
    const last = used.at(-1);
    for (let i = 0; i < 5; i += 1) await client.ask();
    assert.equal(upstream.connections(), 3);
    assert.deepEqual(new Set(used.slice(3)), new Set([last]));
  });

  it('carry one request at a time', async () => {
    const waiting: net.Socket[] = [];
    await using upstream = await rawOrigin((socket) => {
      waiting.push(socket);
      if (waiting.length === 20) for (const one of waiting) one.write(OK);
    });
    using client = new Http1Client(upstream.url);
    await Promise.all(Array.from({ length: 20 }, () => client.ask()));
    assert.equal(new Set(waiting).size, 20);
  });

  it('number no more than max_conns_per_host, and clients that leave give their turns up', async () => {
    await using upstream = await rawOrigin((socket, text) => {
      setTimeout(() => answering(OK)(socket, text), 2);
    });
    using client = new Http1Client(upstream.url, { maxConnectionsPerHost: 2 });
    const leaving = new LeavingClient();
    const all = Array.from({ length: 20 }, () => client.ask());
    const left = client.ask({ client: leaving });
    leaving.leave();
    assert.equal((await left).failure, 'upstream-aborted unsent');
    for (const { body } of await Promise.all(all)) assert.equal(body, 'ok');
    assert.equal(upstream.connections(), 2);
  });

  it('are closed when they have been idle for keepalive, and not used after that', async () => {
    const clock = new TestClock();
    await using upstream = await rawOrigin(answering(OK));
    using client = new Http1Client(upstream.url, { keepAliveMs: 10 * SECOND }, clock);
    await client.ask();
    clock.advance(9 * SECOND);
    await client.ask();
    assert.equal(upstream.connections(), 1);
    clock.advance(9 * SECOND);
    assert.equal(upstream.open(), 1);
    clock.advance(SECOND);
    await until(() => upstream.open() === 0, 'the connection is closed');
    assert.equal(clock.waiting, 0);
    await client.ask();
    // The clock moves on, but its timers do not run.
    clock.stall(11 * SECOND);
    await client.ask();
    assert.equal(upstream.connections(), 3);
  });

  for (const [hint, keptMs] of [
    ['timeout=5', 3 * SECOND],
    ['max=100, timeout=5', 3 * SECOND],
    ['Timeout=60', 10 * SECOND],
    ['timeout=2', 0],
    ['timeout=0', 0],
    ['max=5', 10 * SECOND],
  ] as const) {
    it(`are used for less time than the upstream keeps them: ${hint}`, async () => {
      const clock = new TestClock();
      await using upstream = await rawOrigin(
        answering(`HTTP/1.1 200 OK\r\nKeep-Alive: ${hint}\r\nContent-Length: 2\r\n\r\nok`),
      );
      using client = new Http1Client(upstream.url, { keepAliveMs: 10 * SECOND }, clock);
      await client.ask();
      if (keptMs > 0) {
        clock.stall(keptMs - 1);
        await client.ask();
        assert.equal(upstream.connections(), 1);
        clock.stall(keptMs);
      }
      await client.ask();
      assert.equal(upstream.connections(), 2);
    });
  }

  it('are closed after each exchange without keepalive', async () => {
    await using upstream = await rawOrigin(answering(OK));
    using client = new Http1Client(upstream.url, { keepAliveMs: 0 });
    await client.ask();
    await until(() => upstream.open() === 0, 'the connection is closed');
    await client.ask();
    assert.equal(upstream.connections(), 2);
  });

  for (const [what, end] of [
    ['ends', (socket: net.Socket) => void socket.end()],
    ['resets', (socket: net.Socket) => void socket.resetAndDestroy()],
    [
      'writes to',
      (socket: net.Socket) => void socket.write('HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil'),
    ],
  ] as const) {
    it(`are not used any more when the upstream ${what} an idle one, even at the last moment`, async () => {
      const sockets: net.Socket[] = [];
      await using upstream = await rawOrigin((socket, text) => {
        sockets.push(socket);
        answering(OK)(socket, text);
      });
      using client = new Http1Client(upstream.url);
      assert.equal((await client.ask()).body, 'ok');
      const [first] = sockets;
      assert.ok(first !== undefined);
      await using bell = await pair();
      // The system reports both at the same time, first the event that leads to the next request.
      bell.ring();
      end(first);
      await bell.rung;
      const { body, failure } = await client.ask({ method: 'POST' });
      assert.deepEqual({ body, failure }, { body: 'ok', failure: null });
      assert.equal(upstream.connections(), 2);
      await until(() => upstream.open() === 1, 'the first connection is closed');
    });
  }

  for (const [what, end] of [
    ['ends', (socket: net.Socket) => void socket.end()],
    [
      'sends a response',
      (socket: net.Socket) =>
        void socket.write('HTTP/1.1 408 Late\r\nContent-Length: 4\r\n\r\nevil'),
    ],
  ] as const) {
    it(`report phase unsent if one ${what} while the request waits for its body`, async () => {
      const sockets: net.Socket[] = [];
      await using upstream = await rawOrigin((socket, text) => {
        sockets.push(socket);
        answering(OK)(socket, text);
      });
      using client = new Http1Client(upstream.url);
      assert.equal((await client.ask()).body, 'ok');
      const [first] = sockets;
      assert.ok(first !== undefined);
      const body = new PassThrough();
      const waiting = client.ask({ method: 'POST', body, contentLength: '5' });
      await once(body, 'resume');
      end(first);
      const { status, failure } = await waiting;
      assert.deepEqual({ status, failure }, { status: 0, failure: 'upstream-refused unsent' });
      await until(() => upstream.open() === 0, 'the connection is closed');
    });
  }

  it('report phase sent if a reused one ends before the response', async () => {
    await using upstream = await rawOrigin((socket, text, connection) => {
      if (connection === 1 && text.split(HEAD_END).length === 3) socket.destroy();
      else answering(OK)(socket, text);
    });
    using client = new Http1Client(upstream.url);
    await client.ask();
    assert.equal((await client.ask()).failure, 'upstream-broken sent');
    assert.equal((await client.ask()).failure, null);
  });

  it('report phase unsent if none can be opened, or in time', async () => {
    using gone = new Http1Client(`http://127.0.0.1:${await freePort()}`);
    assert.equal((await gone.ask()).failure, 'upstream-broken unsent');
    const clock = new TestClock();
    // The test accepts no connection within TLS.
    const silent = net.createServer(() => {}).listen(0, '127.0.0.1');
    await once(silent, 'listening');
    using slow = new Http1Client(`https://127.0.0.1:${portOf(silent)}`, {}, clock);
    const answer = slow.ask();
    await once(silent, 'connection');
    clock.advance(3 * SECOND);
    assert.equal((await answer).failure, 'upstream-timeout unsent');
    assert.equal(clock.waiting, 0);
    silent.close();
  });

  it('are closed with a client that waits for one', async () => {
    const silent = net.createServer(() => {}).listen(0, '127.0.0.1');
    await once(silent, 'listening');
    using client = new Http1Client(`https://127.0.0.1:${portOf(silent)}`);
    const leaving = new LeavingClient();
    const answer = client.ask({ client: leaving });
    const [socket] = (await once(silent, 'connection')) as [net.Socket];
    socket.resume().on('error', () => {});
    leaving.leave();
    assert.equal((await answer).failure, 'upstream-aborted unsent');
    await once(socket, 'close');
    silent.close();
  });

  it('let exchanges finish when they are closed, and keep none', async () => {
    let answer = (): void => {};
    await using upstream = await rawOrigin((socket) => {
      answer = () => socket.write(OK);
    });
    using client = new Http1Client(upstream.url);
    const asked = client.ask();
    await until(() => upstream.received() !== '', 'the upstream has the request');
    client.close();
    await turn();
    answer();
    assert.equal((await asked).body, 'ok');
    await until(() => upstream.open() === 0, 'the connection is closed');
  });

  it('abort exchanges when they are destroyed', async () => {
    await using upstream = await rawOrigin(() => {});
    using client = new Http1Client(upstream.url);
    const asked = client.ask();
    await until(() => upstream.received() !== '', 'the upstream has the request');
    client.destroy();
    assert.equal((await asked).failure, 'upstream-broken sent');
    await until(() => upstream.open() === 0, 'the connection is closed');
    assert.equal((await client.ask()).failure, 'upstream-broken unsent');
  });

  it('have time limits for the head and for silence in the body, which leave no timer behind', async () => {
    const clock = new TestClock();
    const limits = { responseHeaderTimeoutMs: 2 * SECOND, readTimeoutMs: 5 * SECOND };
    await using upstream = await rawOrigin((socket, text) => {
      if (text.startsWith('GET /silent')) return;
      socket.write('HTTP/1.1 200 OK\r\nContent-Length: 99999\r\n\r\nhello');
    });
    using client = new Http1Client(upstream.url, limits, clock);
    const silent = client.ask({ target: '/silent' });
    await until(() => upstream.received() !== '', 'the upstream has the request');
    clock.advance(2 * SECOND);
    assert.equal((await silent).failure, 'upstream-timeout sent');
    let begun = false;
    const stops = client.ask({ target: '/stops' });
    void stops.then(() => (begun = true));
    await until(() => upstream.received().includes('/stops'), 'the upstream has the request');
    await after(20);
    clock.advance(5 * SECOND - 1);
    await turn();
    assert.equal(begun, false);
    clock.advance(5 * SECOND);
    assert.equal((await stops).failure, 'upstream-timeout responding');
    assert.equal(clock.waiting, 0);
  });
});
