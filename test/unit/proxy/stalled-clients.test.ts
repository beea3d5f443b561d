import assert from 'node:assert/strict';
import { once } from 'node:events';
import http from 'node:http';
import http2 from 'node:http2';
import net from 'node:net';
import { Readable } from 'node:stream';
import { describe, it } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import { MAX_STALL_MS } from '../../../src/proxy/forwarding.ts';
import { portOf } from '../http/exchange-server.ts';
import { TestClock } from '../../support/test-clock.ts';
import { proxyTo, until } from './gateway.ts';

/** More than all that lies between the app and a client can hold. */
const LARGE_BYTES = 64 * 1024 * 1024;
const STEP_MS = 1000;

interface App {
  readonly url: string;
  /** Answers that it is giving. */
  open(): number;
  /** Pieces that it has given. */
  given(): number;
  [Symbol.asyncDispose](): Promise<void>;
}

function body(onGive: () => void): Readable {
  return Readable.from(
    (function* () {
      for (let left = LARGE_BYTES; left > 0; left -= 65_536) {
        onGive();
        yield Buffer.alloc(65_536, 'x');
      }
    })(),
  );
}

/** Until the app is held back: what it gives stays the same for some turns of the loop. */
async function held(app: App): Promise<void> {
  let [seen, turns] = [0, 0];
  await until(() => {
    turns = app.given() === seen ? turns + 1 : 0;
    seen = app.given();
    return seen > 0 && turns > 25;
  }, 'the client takes no more');
}

async function http1App(): Promise<App> {
  let open = 0;
  let given = 0;
  const server = http.createServer((_request, response) => {
    open += 1;
    response.once('close', () => {
      open -= 1;
    });
    response.writeHead(200, { 'content-length': LARGE_BYTES });
    body(() => {
      given += 1;
    }).pipe(response);
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return {
    url: `http://127.0.0.1:${portOf(server)}`,
    open: () => open,
    given: () => given,
    async [Symbol.asyncDispose]() {
      server.closeAllConnections();
      await new Promise((done) => server.close(done));
    },
  };
}

async function http2App(): Promise<App> {
  let open = 0;
  let given = 0;
  const sessions = new Set<http2.Http2Session>();
  const server = http2.createServer();
  server.on('session', (session) => sessions.add(session));
  server.on('stream', (stream) => {
    open += 1;
    stream.on('error', () => {});
    stream.once('close', () => {
      open -= 1;
    });
    stream.respond({ ':status': 200, 'content-length': LARGE_BYTES });
    body(() => {
      given += 1;
    }).pipe(stream);
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return {
    url: `h2c://127.0.0.1:${portOf(server)}`,
    open: () => open,
    given: () => given,
    async [Symbol.asyncDispose]() {
      for (const session of sessions) session.destroy();
      await new Promise((done) => server.close(done));
    },
  };
}

/** Counts those who wait for a client to take more; sessions of HTTP/2 have timers of their own. */
class StallClock extends TestClock {
  stalls = 0;

  override after(delayMs: number, task: () => void): () => void {
    if (delayMs !== MAX_STALL_MS) return super.after(delayMs, task);
    this.stalls += 1;
    let isOver = false;
    const over = (): void => {
      if (!isOver) this.stalls -= 1;
      isOver = true;
    };
    const cancel = super.after(delayMs, () => {
      over();
      task();
    });
    return () => {
      over();
      cancel();
    };
  }
}

/** Time in which the app goes on answering pings. */
async function passes(clock: TestClock, ms: number): Promise<void> {
  for (let left = ms; left > 0; left -= STEP_MS) {
    clock.advance(Math.min(left, STEP_MS));
    for (let turns = 0; turns < 20; turns += 1) await turn();
  }
}

describe('a client that reads nothing of a proxied response', () => {
  for (const [name, start] of [
    ['HTTP/1.1', http1App],
    ['HTTP/2', http2App],
  ] as const) {
    it(`is disconnected after two minutes, together with the app’s response over ${name}`, async () => {
      await using app = await start();
      const clock = new TestClock();
      await using gateway = await proxyTo([app.url], {}, { clock });
      const client = net.connect(gateway.http1, '127.0.0.1').on('error', () => {});
      client.write('GET / HTTP/1.1\r\nHost: a\r\n\r\n');
      await held(app);
      await passes(clock, MAX_STALL_MS - 1);
      assert.equal(app.open(), 1);
      clock.advance(1);
      await until(() => app.open() === 0, 'the app is told');
      client.resume();
      await once(client, 'close');
      assert.ok(client.bytesRead < LARGE_BYTES);
    });

    if (name === 'HTTP/1.1') {
      it('is disconnected after two minutes if the response refuses a WebSocket', async () => {
        await using app = await start();
        const clock = new TestClock();
        await using gateway = await proxyTo([app.url], {}, { clock });
        const client = net.connect(gateway.http1, '127.0.0.1').on('error', () => {});
        client.write(
          'GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n' +
            'Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n',
        );
        await held(app);
        await passes(clock, MAX_STALL_MS - 1);
        assert.equal(app.open(), 1);
        clock.advance(1);
        await until(() => app.open() === 0, 'the app is told', 20_000);
        client.destroy();
      });
    }

    it(`gets the whole response over ${name} if it reads some more in time`, async () => {
      await using app = await start();
      const clock = new TestClock();
      await using gateway = await proxyTo([app.url], {}, { clock });
      const request = http.get({ host: '127.0.0.1', port: gateway.http1, agent: false });
      const [response] = (await once(request, 'response')) as [http.IncomingMessage];
      for (let pauses = 0; pauses < 3; pauses += 1) {
        await held(app);
        await passes(clock, MAX_STALL_MS - 1);
        let taken = 0;
        for await (const chunk of response.iterator({ destroyOnReturn: false })) {
          taken += (chunk as Buffer).length;
          if (taken > LARGE_BYTES / 8) break;
        }
      }
      response.resume();
      await once(response, 'end');
      assert.ok(response.complete);
    });

    for (const [ending, end] of [
      ['leaves', (client: net.Socket) => void client.destroy()],
      ['takes the rest', (client: net.Socket) => void client.resume()],
    ] as const) {
      it(`is not waited for any longer once it ${ending}, over ${name}`, async () => {
        await using app = await start();
        const clock = new StallClock();
        const transport = { keepAliveMs: MAX_STALL_MS / 2 };
        await using gateway = await proxyTo([app.url], { transport }, { clock });
        const client = net.connect(gateway.http1, '127.0.0.1').on('error', () => {});
        client.write('GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n');
        await held(app);
        assert.equal(clock.stalls, 1, 'somebody waits for the client');
        end(client);
        await once(client, 'close');
        await until(() => app.open() === 0, 'the app is told');
        await until(() => clock.stalls === 0, 'no timer is left');
      });
    }
  }
});
