import assert from 'node:assert/strict';
import { once } from 'node:events';
import net from 'node:net';
import { describe, it, type TestContext } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { answer } from '../../../src/http/answer.ts';
import type { Exchange, Handler } from '../../../src/http/exchange.ts';
import { HeaderList } from '../../../src/http/header-list.ts';
import { codeOf } from '../../../src/kernel/error.ts';
import { MAX_BEGUN } from '../../../src/server/pipelined-requests.ts';
import { type ExchangeServer, serveExchanges } from '../http/exchange-server.ts';

const GET = 'GET / HTTP/1.1\r\nHost: a\r\n\r\n';
const IDLE_MS = 500;
const LIMIT = { timeout: 60_000 };

interface Client {
  readonly socket: net.Socket;
  readonly server: ExchangeServer;
  /** What it has received. */
  text(): string;
  /** Resolves when it has received something. */
  received(pattern: RegExp): Promise<void>;
}

async function connected(
  test: TestContext,
  handler: Handler,
  timeouts: { idleMs?: number; readHeaderMs?: number } = {},
): Promise<Client> {
  const server = await serveExchanges(handler, null, timeouts);
  const socket = net.connect(server.http1, '127.0.0.1').setEncoding('latin1');
  socket.on('error', () => {});
  let text = '';
  socket.on('data', (chunk: string) => (text += chunk));
  test.after(async () => {
    socket.destroy();
    await server.close();
  });
  await once(socket, 'connect');
  return {
    socket,
    server,
    text: () => text,
    received: async (pattern) => {
      while (!pattern.test(text.slice(-1000))) await once(socket, 'data');
    },
  };
}

interface Signal {
  readonly given: Promise<void>;
  give(): void;
}

function signal(): Signal {
  const target = new EventTarget();
  const given = once(target, 'given').then(() => {});
  return { given, give: () => void target.dispatchEvent(new Event('given')) };
}

const ok = (exchange: Exchange): void => answer(exchange, 200, {}, 'ok');

describe('a connection over HTTP/1.1', () => {
  it(
    'is closed when it is idle, also after a response that took longer than it may be idle',
    LIMIT,
    async (test) => {
      const { socket, received } = await connected(
        test,
        async (exchange) => {
          await pause(3 * IDLE_MS);
          ok(exchange);
        },
        { idleMs: IDLE_MS },
      );
      socket.write(GET);
      await received(/ok$/);
      await once(socket, 'close');
    },
  );

  it('may be idle for longer than a timer of Node can last', LIMIT, async (test) => {
    const warnings: Error[] = [];
    const onWarning = (warning: Error): void => void warnings.push(warning);
    process.on('warning', onWarning);
    test.after(() => process.off('warning', onWarning));
    const { socket, received } = await connected(test, ok, { idleMs: 2 ** 40 });
    socket.write(GET);
    await received(/ok$/);
    assert.deepEqual(warnings, []);
  });

  it(
    'is closed when the rest of a body that was not needed does not arrive',
    LIMIT,
    async (test) => {
      const { socket, received } = await connected(test, ok, { idleMs: IDLE_MS });
      socket.write('POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n12345');
      await received(/ok$/);
      await once(socket, 'close');
    },
  );

  it(
    'ends a body that is still being read after its response when the client leaves',
    LIMIT,
    async (test) => {
      const reading = signal();
      const ended = signal();
      const { socket, received } = await connected(test, (exchange) => {
        const { body } = exchange;
        body.on('data', reading.give).on('close', ended.give);
        ok(exchange);
      });
      socket.write('POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n12345');
      await received(/ok$/);
      await reading.given;
      socket.destroy();
      await ended.given;
    },
  );

  for (const [what, sent] of [
    ['has sent more requests than may wait', GET.repeat(300)],
    [
      'has sent more of a body than anybody reads',
      `POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999\r\n\r\n${'x'.repeat(8_000_000)}`,
    ],
  ] as const) {
    it(`notices that a client leaves that ${what}`, LIMIT, async (test) => {
      const left = signal();
      let begun = 0;
      const { socket } = await connected(test, (exchange) => {
        begun += 1;
        exchange.onAbandoned(() => {
          begun -= 1;
          if (begun === 0) left.give();
        });
      });
      socket.write(sent);
      await pause(500);
      assert.ok(begun > 0);
      socket.resetAndDestroy();
      await left.given;
    });
  }

  it(
    'notices that a client leaves whose last request came with many others',
    LIMIT,
    async (test) => {
      const begun = signal();
      const left = signal();
      const { socket } = await connected(test, (exchange) => {
        if (exchange.target === '/') return ok(exchange);
        exchange.onAbandoned(left.give);
        begun.give();
      });
      const last = 'GET /last HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n';
      socket.write(GET.repeat(2 * MAX_BEGUN) + last);
      await begun.given;
      socket.destroy();
      await left.given;
    },
  );

  it(
    'is not closed without saying so while requests that have arrived wait for their turn',
    LIMIT,
    async (test) => {
      const { server, socket, text } = await connected(test, (exchange) => {
        ok(exchange);
        // The requests of this turn have begun, and others wait for the next.
        if (exchange.target === '/stop') setImmediate(() => server.drain());
      });
      socket.write(GET.replace('/', '/stop') + GET.repeat(2 * MAX_BEGUN));
      await once(socket, 'close');
      const answers = text().split('HTTP/1.1 200 OK').slice(1);
      assert.equal(answers.length, 1 + MAX_BEGUN);
      assert.match(answers.at(-1) ?? '', /Connection: close/);
    },
  );

  it('goes on after a body whose last reader has stopped in the middle', LIMIT, async (test) => {
    const { socket, received } = await connected(test, async (exchange) => {
      if (!exchange.hasBody) return answer(exchange, 200, {}, 'next');
      const leased = exchange.lendBody({ onWanted: () => {}, stall: null });
      leased?.once('data', () => {
        leased.pause();
        ok(exchange);
        setTimeout(() => leased.destroy(), 50);
      });
    });
    const size = 4 * 1024 * 1024;
    socket.write(`POST / HTTP/1.1\r\nHost: a\r\nContent-Length: ${size}\r\n\r\n`);
    socket.write(Buffer.alloc(size));
    socket.write(GET);
    await received(/next$/);
  });

  it(
    'has no time limit for a head that has arrived, however long it waits',
    LIMIT,
    async (test) => {
      let write = (): void => {};
      let end = (): void => {};
      const { socket, received, text } = await connected(
        test,
        (exchange) => {
          if (exchange.target === '/next') return ok(exchange);
          const body = exchange.begin({
            status: 200,
            source: 'gateway',
            headers: new HeaderList(),
          });
          body.write('begun');
          write = () => void body.write(Buffer.alloc(16 * 1024 * 1024));
          end = () => void body.end('ended');
        },
        { readHeaderMs: 1500 },
      );
      socket.write(`${GET}GET /next HT`);
      await received(/begun/);
      socket.pause();
      write();
      socket.write('TP/1.1\r\nHost: a\r\n\r\n');
      await pause(2000);
      end();
      socket.resume();
      await received(/ok$/);
      assert.doesNotMatch(text(), / 408 /);
    },
  );

  for (const [framing, request, head] of [
    ['a length', GET, HeaderList.of({ 'content-length': '100' })],
    ['chunks', GET, new HeaderList()],
    ['no length', 'GET / HTTP/1.0\r\nHost: a\r\nConnection: keep-alive\r\n\r\n', new HeaderList()],
  ] as const) {
    for (const isFirst of [true, false]) {
      const where = isFirst ? 'in the middle' : 'before its turn';
      it(
        `sends nothing after a response with ${framing} that is broken off ${where}`,
        LIMIT,
        async (test) => {
          let first: Exchange | null = null;
          const { socket, text } = await connected(test, async (exchange) => {
            if (exchange.target === '/first') {
              first = exchange;
              return;
            }
            if (exchange.target === '/later') return ok(exchange);
            const body = exchange.begin({ status: 200, source: 'gateway', headers: head.clone() });
            body.on('error', () => {}).write('begun');
            await pause(isFirst ? 50 : 10);
            exchange.abort();
            if (first !== null) setTimeout(ok, 50, first);
          });
          const later = GET.replace('/', '/later');
          const before = isFirst ? '' : GET.replace('/', '/first');
          // A response that only the end would complete is reset, which is an error here.
          const closed = new Promise((resolve) => void socket.once('close', resolve));
          socket.write(before + request + later + later);
          await closed;
          assert.equal(text().split('HTTP/1.').length - 1, 1);
          assert.match(text(), isFirst ? /begun(?:\r\n)?$/ : /ok$/);
        },
      );
    }
  }

  it('ends the body of a request whose trailer section is refused', LIMIT, async (test) => {
    const ended = signal();
    const { socket, received } = await connected(test, async (exchange) => {
      exchange.body.resume().on('close', ended.give);
    });
    socket.write('POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n');
    socket.write('5\r\nhello\r\n0\r\nContent-Length: 5\r\n\r\n');
    await received(/400 Bad Request/);
    await ended.given;
  });

  for (const early of ['', 'early']) {
    it(
      `notices that a client leaves that waits for a switch of protocols${early && ' and has sent bytes behind it'}`,
      LIMIT,
      async (test) => {
        const asked = signal();
        const left = signal();
        const { socket } = await connected(test, (exchange) => {
          exchange.onAbandoned(left.give);
          asked.give();
        });
        socket.write(
          `GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n${early}`,
        );
        await asked.given;
        socket.destroy();
        await left.given;
      },
    );
  }

  it('begins no request while bodies that nobody reads fill its memory', LIMIT, async (test) => {
    const second = signal();
    let begun = 0;
    let unread = 0;
    const { socket } = await connected(test, ({ body }) => {
      begun += 1;
      if (begun === 2) second.give();
      setTimeout(() => {
        unread += body.readableLength;
      }, 300);
    });
    const size = 60 * 1024;
    const one = `POST / HTTP/1.1\r\nHost: a\r\nContent-Length: ${size}\r\n\r\n${'x'.repeat(size)}`;
    for (let i = 0; i < 100; i += 1) socket.write(one);
    await second.given;
    await pause(500);
    assert.ok(unread <= 4 * size, `${unread} bytes wait`);
  });

  it('lets a client that is still sending read the last response', LIMIT, async (test) => {
    const answered = signal();
    const { socket, text } = await connected(test, (exchange) => {
      answer(exchange, 413, {}, 'too large');
      answered.give();
    });
    let error: unknown = null;
    socket.on('error', (one) => (error = one));
    socket.pause();
    const size = 1024 * 1024;
    socket.write(
      `POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: ${size}\r\n\r\n`,
    );
    await answered.given;
    for (let sent = 0; sent < size; sent += size / 4) {
      await pause(20);
      socket.write(Buffer.alloc(size / 4));
    }
    socket.resume();
    await once(socket, 'close');
    assert.equal(error, null);
    assert.match(text(), /^HTTP\/1\.1 413 .*too large$/s);
  });

  it('does not wait for long for a client that goes on sending', LIMIT, async (test) => {
    const { socket, received } = await connected(test, ok);
    socket.write('POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 10\r\n\r\n');
    await received(/ok$/);
    const timer = setInterval(() => socket.write('x'), 500);
    test.after(() => clearInterval(timer));
    await once(socket, 'close');
  });

  it('says that it closes when the gateway stops before the response', LIMIT, async (test) => {
    const { server, socket, text } = await connected(test, async (exchange) => {
      if (exchange.target === '/last') server.drain();
      await pause(50);
      ok(exchange);
    });
    socket.write(GET + GET.replace('/', '/last'));
    await once(socket, 'close');
    const answers = text().split('HTTP/1.1 200 OK').slice(1);
    assert.equal(answers.length, 2);
    assert.match(answers[0] ?? '', /Connection: keep-alive/);
    assert.match(answers[1] ?? '', /Connection: close/);
  });

  it('answers what has arrived, but was not read, when the gateway stops', LIMIT, async (test) => {
    const { server, socket, received, text } = await connected(test, ok);
    socket.write(GET);
    await received(/ok$/);
    // Both happen in one turn, so that the request is in the buffer of the system.
    socket.write(GET);
    server.drain();
    await once(socket, 'close');
    const answers = text().split('HTTP/1.1 200 OK').slice(1);
    assert.equal(answers.length, 2);
    assert.match(answers[1] ?? '', /Connection: close/);
  });

  it('begins no request after a response that closes it (RFC 9112 §9.6)', LIMIT, async (test) => {
    const targets: string[] = [];
    const { socket, received } = await connected(test, async (exchange) => {
      targets.push(exchange.target);
      if (exchange.target !== '/') return;
      const headers = HeaderList.of({ connection: 'close', 'content-length': '2' });
      const body = exchange.begin({ status: 200, source: 'gateway', headers });
      body.write('o');
      await pause(100);
      body.end('k');
    });
    socket.write(GET);
    await received(/o$/);
    socket.write(GET.replace('/', '/late'));
    await once(socket, 'close');
    assert.deepEqual(targets, ['/']);
  });

  it('begins no request behind one whose response is broken off at once', LIMIT, async (test) => {
    const targets: string[] = [];
    const { socket } = await connected(test, (exchange) => {
      targets.push(exchange.target);
      exchange.abort();
    });
    socket.write(GET + GET.replace('/', '/next'));
    await once(socket, 'close');
    assert.deepEqual(targets, ['/']);
  });

  it('sends a date with a refusal, as with any response (RFC 9110 §6.6.1)', LIMIT, async (test) => {
    const { socket, text } = await connected(test, ok);
    socket.write('GET / HTTP/1.1\r\n\r\n');
    await once(socket, 'end');
    assert.match(text(), /^HTTP\/1\.1 400 Bad Request\r\nDate: [\w, :]+ GMT\r\n/);
  });
});

describe('a head that cannot be sent (RFC 9112 §11.1)', () => {
  for (const [name, value] of [
    ['X-Text', 'a\r\nSet-Cookie: b=c'],
    ['X-Text', 'a\n\n<script>'],
    ['X-Text: a\r\nSet-Cookie', 'b=c'],
    ['X-Text', '\u010d\u010a'],
  ] as const) {
    it(`is an error for its writer, and nothing of it is sent: ${JSON.stringify([name, value])}`, async (test) => {
      let thrown: unknown = null;
      const client = await connected(test, (exchange) => {
        const headers = HeaderList.of({ 'X-First': '1' });
        headers.append(name, value);
        try {
          exchange.begin({ status: 200, headers, source: 'gateway' }).end('body');
        } catch (error) {
          thrown = error;
          answer(exchange, 500, {}, 'instead');
        }
      });
      client.socket.write(GET);
      await client.received(/instead$|body/);
      assert.equal(codeOf(thrown), 'invalid-response-field');
      assert.match(client.text(), /^HTTP\/1\.1 500 /);
      assert.doesNotMatch(client.text(), /X-First|X-Text|Set-Cookie|script|body/);
    });
  }
});
