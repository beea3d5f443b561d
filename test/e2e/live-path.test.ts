import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer, type RequestListener, type ServerResponse } from 'node:http';
import net from 'node:net';
import { setImmediate as turn } from 'node:timers/promises';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { describe, it, type TestContext } from 'node:test';
import { EventSource } from 'eventsource';
import { freePort } from '../support/free-port.ts';
import { startLibraryGateway } from '../support/gateway.ts';
import { TurnedClock } from '../support/turned-clock.ts';
import {
  type Config,
  createGateway as createSourceGateway,
  parseHubfile as parseSource,
} from '../../src/index.ts';
import { createGateway, parseHubfile, silentLogger } from '../support/installed-package.ts';
import { BACKLOG } from '../../src/server/bound-server.ts';
import { Protocols } from '../../src/server/protocols.ts';
import { openStream } from '../support/http.ts';
import { temporaryDirectory } from '../support/temporary-directory.ts';

async function origin(test: TestContext, answer: RequestListener): Promise<number> {
  const server = createServer(answer).listen(0, '127.0.0.1');
  await once(server, 'listening');
  test.after(() => {
    server.closeAllConnections();
    server.close();
  });
  const address = server.address();
  assert.ok(address !== null && typeof address !== 'string');
  return address.port;
}

/** Everything that a connection says until it closes. */
async function talk(port: number, text: string): Promise<string> {
  const socket = net.connect(port, '127.0.0.1').setEncoding('latin1');
  socket.on('error', () => {});
  let answer = '';
  socket.on('data', (chunk: string) => {
    answer += chunk;
  });
  socket.write(text);
  await new Promise((resolve) => socket.once('close', resolve));
  return answer;
}

describe('the live path', () => {
  it('turns Nagle’s algorithm off on each connection that it accepts', async (test) => {
    const listen = test.mock.method(net.Server.prototype, 'listen');
    const port = await freePort();
    await startLibraryGateway(test, `http://localhost:${port} {\n\trespond ok\n}\n`);
    const servers = listen.mock.calls.flatMap(({ this: server }) =>
      server instanceof net.Server && server.listening ? [server] : [],
    );
    assert.ok(servers.length > 0);
    // With it Node sets TCP_NODELAY on what the server accepts.
    for (const server of servers) assert.equal(Reflect.get(server, 'noDelay'), true);
    // Those that may have been waiting before the listening socket had the option. Linux passes it on to later ones.
    for (let i = 0; i <= BACKLOG; i += 1) {
      const client = net.connect(port, '127.0.0.1');
      await once(client, 'connect');
      client.resetAndDestroy();
    }
    const isLeftToSystem = process.platform === 'linux';
    for (const server of servers) assert.equal(Reflect.get(server, 'noDelay'), !isLeftToSystem);
  });

  it('closes a client that sends nothing, with and without TLS', async (test) => {
    const clock = new TurnedClock();
    const [plain, secure] = [await freePort(), await freePort()];
    await startLibraryGateway(
      test,
      `http://localhost:${plain} {\n\trespond ok\n}\nhttps://localhost:${secure} {\n\ttls internal\n\trespond ok\n}\n`,
      '\tauto_https disable_redirects\n\tservers {\n\t\ttimeouts {\n\t\t\tread_header 1h\n\t\t}\n\t}\n',
      silentLogger,
      clock,
    );
    // One that has made its first request keeps its connection.
    const kept = net.connect(plain, '127.0.0.1').setEncoding('latin1');
    test.after(() => kept.destroy());
    const ask = async (): Promise<void> => {
      kept.write(`GET / HTTP/1.1\r\nHost: localhost:${plain}\r\n\r\n`);
      let answer = '';
      while (!answer.endsWith('ok')) answer += (await once(kept, 'data')).join();
    };
    await ask();
    for (const port of [plain, secure]) {
      const socket = net.connect(port, '127.0.0.1');
      await once(socket, 'connect');
      let isClosed = false;
      const closed = new Promise<void>((resolve) => {
        socket.once('close', () => {
          isClosed = true;
          resolve();
        });
      });
      socket.resume();
      // The gateway has accepted once it answers another.
      await talk(plain, `GET / HTTP/1.1\r\nHost: localhost:${plain}\r\nConnection: close\r\n\r\n`);
      clock.turn(59 * 60_000);
      await talk(plain, `GET / HTTP/1.1\r\nHost: localhost:${plain}\r\nConnection: close\r\n\r\n`);
      // A handshake has a limit of its own, of 10 s.
      if (port === plain) assert.equal(isClosed, false);
      clock.turn(61 * 60_000);
      await closed;
    }
    await ask();
  });

  it('closes a client that does not finish a PROXY header within the time for a head', async (test) => {
    const clock = new TurnedClock();
    const port = await freePort();
    const limits = '\t\tproxy_protocol 127.0.0.1\n\t\ttimeouts {\n\t\t\tread_header 1h\n\t\t}\n';
    const { gateway } = await startLibraryGateway(
      test,
      `http://localhost:${port} {\n\trespond ok\n}\n`,
      `\tservers {\n${limits}\t}\n`,
      silentLogger,
      clock,
    );
    const socket = net.connect(port, '127.0.0.1');
    test.after(() => socket.destroy());
    const closed = once(socket.resume(), 'close');
    socket.write('PROXY TCP4 192.0.2.1 ');
    const header = 'PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\n';
    const request = `GET / HTTP/1.1\r\nHost: localhost:${port}\r\nConnection: close\r\n\r\n`;
    assert.match(await talk(port, header + request), /ok$/);
    clock.turn(59 * 60_000);
    assert.match(await talk(port, header + request), /ok$/);
    assert.equal(socket.destroyed, false);
    clock.turn(61 * 60_000);
    await closed;
    assert.equal(gateway.listeners.length, 1);
  });

  for (const [way, head, ask] of [
    ['a length', { 'Content-Length': String(2 ** 40) }, 'GET / HTTP/1.1\r\n'],
    ['chunks', {}, 'GET / HTTP/1.1\r\n'],
    // Which goes by a connection of its own.
    ['Expect', {}, 'POST / HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 1\r\n'],
  ] as const) {
    it(`closes an upstream whose client reads nothing for two minutes: ${way}`, async (test) => {
      const clock = new TurnedClock();
      const port = await freePort();
      const answers: Promise<unknown>[] = [];
      const piece = Buffer.alloc(64 * 1024);
      const app = await origin(test, (request, response) => {
        request.resume();
        answers.push(once(response, 'close'));
        response.writeHead(200, head);
        response.on('drain', () => response.write(piece));
        response.write(piece);
      });
      await startLibraryGateway(
        test,
        `http://localhost:${port} {\n\treverse_proxy localhost:${app}\n}\n`,
        '',
        silentLogger,
        clock,
      );
      const client = net.connect(port, '127.0.0.1');
      test.after(() => client.destroy());
      client.pause();
      client.write(`${ask}Host: localhost:${port}\r\n\r\n`);
      if (ask.startsWith('POST')) client.write('x');
      while (answers.length === 0) await turn();
      const upstream = { isOver: false };
      void answers[0]?.then(() => (upstream.isOver = true));
      // Until everything between them is full nobody waits yet.
      while (!upstream.isOver) {
        clock.turn(121_000);
        await turn();
      }
    });
  }

  // The class whose calls are counted is that of the source.
  it('keeps the limits of old configurations only as long as their connections', async (test) => {
    const { retire } = Protocols.prototype;
    const closed: Protocols[] = [];
    test.mock.method(Protocols.prototype, 'retire', function (this: Protocols, onIdle: () => void) {
      retire.call(this, () => {
        closed.push(this);
        onIdle();
      });
    });
    const port = await freePort();
    const site = `http://localhost:${port} {\n\trespond ok\n}\n`;
    const storage = await temporaryDirectory(test);
    const config = (seconds: number): Config =>
      parseSource(
        `{\n\tadmin off\n\tstorage ${storage}\n\tgrace_period 1s\n\tservers {\n\t\ttimeouts {\n\t\t\tidle ${seconds}s\n\t\t}\n\t}\n}\n${site}`,
      );
    const gateway = createSourceGateway(config(1000));
    await gateway.start();
    test.after(() => gateway.stop());
    for (let seconds = 1; seconds <= 5; seconds += 1) await gateway.reload(config(seconds));
    assert.equal(closed.length, 5);
    const client = net.connect(port, '127.0.0.1');
    client.write(`GET / HTTP/1.1\r\nHost: localhost:${port}\r\n\r\n`);
    await once(client, 'data');
    await gateway.reload(config(6));
    assert.equal(closed.length, 5, 'a connection still has the limits of before');
    const gone = once(client, 'close');
    client.destroy();
    await gone;
    while (closed.length < 6) await turn();
  });

  it('frees a configuration that is no longer in force, although its streams stay open', async (test) => {
    setFlagsFromString('--expose-gc');
    const collect = (): void => void runInNewContext('gc')();
    const port = await freePort();
    const storage = await temporaryDirectory(test);
    const old: WeakRef<object>[] = [];
    const config = (text: string): Config => {
      const parsed = parseHubfile(
        `{\n\tadmin off\n\tstorage ${storage}\n\tgrace_period 1s\n}\nhttp://localhost:${port} {\n\thub {\n\t\tissuer https://a.example {\n\t\t\tpublisher {\n\t\t\t\tjwt "a publisher key of more than 32 bytes, for tests"\n\t\t\t}\n\t\t}\n\t\tanonymous\n\t\tcookie_name hub\n\t}\n\trespond ${text}\n}\n`,
      );
      // A part of it: what is not kept of the whole may still be kept of that.
      for (const part of [parsed, ...parsed.sites, ...parsed.sites.flatMap(({ hub }) => hub ?? [])])
        old.push(new WeakRef(part));
      return parsed;
    };
    const gateway = createGateway(config('one'));
    await gateway.start();
    test.after(() => gateway.stop());
    const stream = await openStream(test, `http://localhost:${port}/.well-known/hub?match=a`);
    const kept = net.connect(port, '127.0.0.1').setEncoding('latin1');
    test.after(() => kept.destroy());
    kept.write(`GET / HTTP/1.1\r\nHost: localhost:${port}\r\n\r\n`);
    await once(kept, 'data');
    const before = old.length;
    await gateway.reload(config('two'));
    for (let i = 0; i < 20 && old.slice(0, before).some((one) => one.deref()); i += 1) {
      await turn();
      collect();
    }
    assert.deepEqual(
      old.slice(0, before).map((one) => one.deref() === undefined),
      [true, true, true],
    );
    assert.equal(stream.ended, false);
  });

  it('leaks nothing on a connection that asks for h2c again and again (RFC 9110 §7.8)', async (test) => {
    const warnings: Error[] = [];
    const onWarning = (warning: Error): void => void warnings.push(warning);
    process.on('warning', onWarning);
    test.after(() => process.off('warning', onWarning));
    const port = await freePort();
    await startLibraryGateway(test, `http://localhost:${port} {\n\trespond ok\n}\n`);
    const socket = net.connect(port, '127.0.0.1').setEncoding('latin1');
    for (let i = 0; i < 40; i += 1) {
      socket.write(
        `GET / HTTP/1.1\r\nHost: localhost:${port}\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n`,
      );
      let answer = '';
      while (!answer.endsWith('ok')) answer += (await once(socket, 'data')).join();
    }
    socket.destroy();
    assert.deepEqual(warnings, []);
  });

  it('keeps the headers that the gateway adds, whatever a client lists in Connection (RFC 9110 §7.6.1)', async (test) => {
    let seen: Record<string, unknown> = {};
    const app = await origin(test, (request, response) => {
      seen = request.headers;
      response.end();
    });
    const port = await freePort();
    await startLibraryGateway(
      test,
      `http://localhost:${port} {\n\trequest_header X-User alice\n\treverse_proxy 127.0.0.1:${app}\n}\n`,
    );
    await talk(
      port,
      `GET / HTTP/1.1\r\nHost: localhost:${port}\r\nConnection: close, X-User, X-Own\r\nX-User: mallory\r\nX-Own: 1\r\nX_Forwarded_For: 9.9.9.9\r\nX_Kept: 1\r\n\r\n`,
    );
    assert.equal(seen['x-user'], 'alice');
    assert.equal(seen['x-own'], undefined);
    assert.equal(seen['x_forwarded_for'], undefined);
    assert.equal(seen['x-forwarded-for'], '127.0.0.1');
    assert.equal(seen['x_kept'], undefined);
  });

  it('survives any field name in an upstream’s 101', async (test) => {
    const app = net.createServer((socket) => {
      socket.on('error', () => {});
      socket.once('data', () => {
        socket.write(
          'HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nconstructor: x\r\n__proto__: y\r\ntoString: z\r\n\r\n',
        );
        socket.end('bytes');
      });
    });
    app.listen(0, '127.0.0.1');
    await once(app, 'listening');
    test.after(() => void app.close());
    const address = app.address();
    assert.ok(address !== null && typeof address !== 'string');
    const port = await freePort();
    await startLibraryGateway(
      test,
      `http://localhost:${port} {\n\treverse_proxy 127.0.0.1:${address.port}\n}\n`,
    );
    const answer = await talk(
      port,
      `GET / HTTP/1.1\r\nHost: localhost:${port}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n`,
    );
    assert.match(answer, /^HTTP\/1\.1 101 .*\r\nconstructor: x\r\n.*bytes$/is);
  });

  it('closes the connection after its response while it drains', async (test) => {
    const answers: ServerResponse[] = [];
    const asked = new Promise<void>((resolve) => {
      void origin(test, (_request, response) => {
        answers.push(response);
        response.write('begun;');
        resolve();
      }).then((port) => started(port));
    });
    let started: (port: number) => void = () => {};
    const app = await new Promise<number>((resolve) => {
      started = resolve;
    });
    const port = await freePort();
    const { gateway } = await startLibraryGateway(
      test,
      `http://localhost:${port} {\n\treverse_proxy 127.0.0.1:${app}\n}\n`,
    );
    const socket = net.connect(port, '127.0.0.1').setEncoding('latin1');
    let text = '';
    socket.on('data', (chunk: string) => {
      text += chunk;
      // A browser asks again on the connection that it was promised.
      if (text.endsWith('0\r\n\r\n')) socket.write(`GET /again HTTP/1.1\r\nHost: a\r\n\r\n`);
    });
    socket.on('error', () => {});
    socket.write(`GET / HTTP/1.1\r\nHost: localhost:${port}\r\n\r\n`);
    await asked;
    while (!text.includes('begun;')) await once(socket, 'data');
    const stopped = gateway.stop();
    answers[0]?.end('done');
    await new Promise((resolve) => socket.once('close', resolve));
    await stopped;
    assert.match(text, /begun;.*done/s);
    assert.doesNotMatch(text, /503|421/);
  });

  it('makes an EventSource reconnect after a graceful stop over HTTP/1.1', async (test) => {
    const port = await freePort();
    const site = `http://localhost:${port} {\n\thub {\n\t\tanonymous\n\t\ttransport memory\n\t\tissuer https://a.example {\n\t\t\tpublisher {\n\t\t\t\tjwt 0123456789abcdef0123456789abcdef\n\t\t\t}\n\t\t\tsubscriber {\n\t\t\t\tjwt 0123456789abcdef0123456789abcdef\n\t\t\t}\n\t\t}\n\t}\n}\n`;
    const first = await startLibraryGateway(test, site);
    const source = new EventSource(`http://localhost:${port}/.well-known/hub?match=a`);
    test.after(() => source.close());
    await new Promise((resolve) => source.addEventListener('open', resolve, { once: true }));
    const codes: (number | undefined)[] = [];
    source.addEventListener('error', ({ code }) => void codes.push(code));
    const reopened = new Promise((resolve) => source.addEventListener('open', resolve));
    await first.gateway.stop();
    await startLibraryGateway(test, site);
    await reopened;
    assert.ok(!codes.includes(503), String(codes));
  });
});
