import assert from 'node:assert/strict';
import http2 from 'node:http2';
import net from 'node:net';
import { type Duplex, PassThrough } from 'node:stream';
import { describe, it } from 'node:test';
import type {
  Exchange,
  Handler,
  ResponseHead,
  ResponseStream,
  StreamListener,
} from '../../src/http/exchange.ts';
import { HeaderList } from '../../src/http/header-list.ts';
import { SubExchange } from '../../src/site/sub-exchange.ts';
import { type ExchangeServer, serveExchanges } from '../unit/http/exchange-server.ts';

/** What a client has received of one response, and how it can leave. */
interface Client {
  body(): string;
  received(text: string): Promise<void>;
  /** Whether the response came to its end, once it is over. */
  readonly complete: Promise<boolean>;
  pause(): void;
  resume(): void;
  leave(): void;
}

/** One way to a stream: the protocol and what lies between the exchange and the wire. */
interface Way {
  readonly name: string;
  readonly framing: ResponseStream['framing'];
  readonly connect: (server: ExchangeServer) => Client;
  readonly open?: (exchange: Exchange, head: ResponseHead) => ResponseStream;
}

const DEADLINE_MS = 120_000;

/** Decodes chunks as they come; the body counts as complete only with the last one. */
function http1Client(port: number, request: string): Client {
  const socket = net.connect(port, '127.0.0.1');
  socket.write(request);
  const isOld = request.includes('HTTP/1.0');
  let wire = '';
  let ended = false;
  const listeners = new Set<() => void>();
  const changed = (): void => listeners.forEach((listener) => listener());
  socket.on('data', (chunk: Buffer) => {
    wire += chunk.toString('latin1');
    changed();
    if (!isOld && wire.endsWith('\r\n0\r\n\r\n')) socket.end();
  });
  socket.on('end', () => {
    ended = true;
    socket.end();
  });
  socket.on('error', () => {});
  const body = (): string => {
    // After pipelined answers it is the last head that counts.
    const heads = wire.split(/HTTP\/1\.1 200 OK\r\n.*?\r\n\r\n/s);
    const rest = heads.at(-1) ?? '';
    return isOld ? rest : rest.replaceAll(/(?:^|\r\n)[0-9a-f]+\r\n/g, '').replace(/\r\n$/, '');
  };
  return {
    body,
    received: (text) => awaitText(text, body, listeners),
    complete: closeOf(socket).then(() =>
      isOld ? ended : wire.endsWith('\r\n0\r\n\r\n') || wire.includes('\r\n0\r\n\r\n'),
    ),
    pause: () => void socket.pause(),
    resume: () => void socket.resume(),
    leave: () => void socket.resetAndDestroy(),
  };
}

function http2Client(port: number): Client {
  const session = http2.connect(`http://127.0.0.1:${port}`);
  session.on('error', () => {});
  const stream = session.request({ ':path': '/' });
  let text = '';
  let ended = false;
  const listeners = new Set<() => void>();
  stream.on('data', (chunk: Buffer) => {
    text += chunk.toString('latin1');
    listeners.forEach((listener) => listener());
  });
  stream.on('end', () => {
    ended = true;
  });
  stream.on('error', () => {});
  return {
    body: () => text,
    received: (wanted) => awaitText(wanted, () => text, listeners),
    complete: closeOf(stream).then(() => {
      session.close();
      return ended && stream.rstCode === 0;
    }),
    pause: () => void stream.pause(),
    resume: () => void stream.resume(),
    leave: () => session.destroy(),
  };
}

/** Whatever it broke with. */
function closeOf(end: Duplex): Promise<void> {
  return new Promise((resolve) => void end.once('close', resolve));
}

function awaitText(text: string, now: () => string, listeners: Set<() => void>): Promise<void> {
  return new Promise((resolve) => {
    const check = (): void => {
      if (!now().includes(text)) return;
      listeners.delete(check);
      resolve();
    };
    listeners.add(check);
    check();
  });
}

const GET = 'GET / HTTP/1.1\r\nHost: a\r\n\r\n';
const plainHttp1 = (server: ExchangeServer): Client => http1Client(server.http1, GET);

const WAYS: readonly Way[] = [
  { name: 'HTTP/1.1', framing: 'chunked', connect: plainHttp1 },
  {
    name: 'HTTP/1.1 behind an earlier answer',
    framing: 'plain',
    connect: (server) => http1Client(server.http1, GET.replace('GET /', 'GET /slow').concat(GET)),
  },
  {
    name: 'HTTP/1.0',
    framing: 'plain',
    connect: (server) => http1Client(server.http1, 'GET / HTTP/1.0\r\n\r\n'),
  },
  { name: 'HTTP/2', framing: 'plain', connect: (server) => http2Client(server.http2) },
  {
    name: 'HTTP/1.1 with a head that waits',
    framing: 'plain',
    connect: plainHttp1,
    open(exchange, head) {
      exchange.onHead(() => new Promise((resolve) => void setImmediate(resolve)));
      return exchange.stream(head);
    },
  },
  {
    name: 'HTTP/1.1 with an encoded body',
    framing: 'plain',
    connect: plainHttp1,
    open(exchange, head) {
      exchange.onHead(() => (body) => {
        const plain = new PassThrough();
        plain.pipe(body);
        body.once('close', () => plain.destroy());
        return plain;
      });
      return exchange.stream(head);
    },
  },
  {
    name: 'a request on behalf of another',
    framing: 'chunked',
    connect: plainHttp1,
    open(exchange, head) {
      const sub = new SubExchange(exchange, {
        method: 'GET',
        target: '/',
        hasBody: false,
      });
      return sub.stream(head);
    },
  },
];

/** Counts what a stream tells. */
class Heard implements StreamListener {
  readonly events = 0;
  readonly ended = null;
  drains = 0;
  closes = 0;
  readonly #waiting = new Set<() => void>();

  drained(): void {
    this.drains += 1;
    this.#tell();
  }

  closed(): void {
    this.closes += 1;
    this.#tell();
  }

  async until(condition: (heard: Heard) => boolean): Promise<void> {
    while (!condition(this)) {
      await new Promise<void>((resolve) => {
        this.#waiting.add(resolve);
      });
    }
  }

  #tell(): void {
    for (const go of this.#waiting) go();
    this.#waiting.clear();
  }
}

const frame = ({ framing }: ResponseStream, text: string): Buffer =>
  Buffer.from(framing === 'plain' ? text : `${text.length.toString(16)}\r\n${text}\r\n`);

for (const way of WAYS) {
  describe(`a response stream: ${way.name}`, { timeout: DEADLINE_MS }, () => {
    /** Serves one stream, and hands both its ends over. */
    async function opened(use: (stream: ResponseStream, client: Client) => Promise<void>) {
      let resolve: (stream: ResponseStream) => void = () => {};
      const opening = new Promise<ResponseStream>((done) => {
        resolve = done;
      });
      const handler: Handler = (exchange) => {
        if (exchange.target === '/slow') {
          const body = exchange.begin({
            status: 200,
            headers: HeaderList.of({ 'content-length': '2' }),
            source: 'gateway',
          });
          void opening.then(() => setImmediate(() => body.end('ok')));
          return;
        }
        const headers = HeaderList.of({ 'content-type': 'text/event-stream' });
        const head: ResponseHead = { status: 200, headers, source: 'gateway' };
        resolve(way.open?.(exchange, head) ?? exchange.stream(head));
      };
      await using server = await serveExchanges(handler);
      const client = way.connect(server);
      try {
        await use(await opening, client);
        assert.deepEqual(server.faults, []);
      } finally {
        client.leave();
      }
    }

    it('reports how its body is framed', () =>
      opened(async (stream) => {
        assert.equal(stream.framing, way.framing);
      }));

    it('sends the head and each piece at once, in order, and ends cleanly', () =>
      opened(async (stream, client) => {
        const heard = new Heard();
        stream.listen(heard);
        stream.write(frame(stream, 'one;'));
        await client.received('one;');
        stream.write(frame(stream, 'two;'));
        stream.write(frame(stream, 'three;'));
        await client.received('three;');
        assert.equal(heard.closes, 0);
        stream.end();
        assert.equal(await client.complete, true);
        assert.equal(client.body(), 'one;two;three;');
        await heard.until(({ closes }) => closes > 0);
        stream.end();
        stream.destroy();
        assert.equal(stream.write(frame(stream, 'late')), true);
        await new Promise((resolve) => void setImmediate(resolve));
        assert.equal(heard.closes, 1);
      }));

    it('aborts so that the client notices', () =>
      opened(async (stream, client) => {
        const heard = new Heard();
        stream.listen(heard);
        stream.write(frame(stream, 'one;'));
        await client.received('one;');
        stream.destroy();
        assert.equal(await client.complete, false);
        await heard.until(({ closes }) => closes > 0);
        assert.equal(heard.closes, 1);
      }));

    it('reports once that the client has left', () =>
      opened(async (stream, client) => {
        const heard = new Heard();
        stream.listen(heard);
        stream.write(frame(stream, 'one;'));
        await client.received('one;');
        client.leave();
        await heard.until(({ closes }) => closes > 0);
        stream.destroy();
        stream.end();
        await new Promise((resolve) => void setImmediate(resolve));
        assert.equal(heard.closes, 1);
      }));

    it('notifies late listeners that the client has already left', () =>
      opened(async (stream, client) => {
        stream.write(frame(stream, 'one;'));
        await client.received('one;');
        const first = new Heard();
        client.leave();
        await client.complete;
        // Nothing tells when the server's end has noticed, but a write that fails.
        for (let i = 0; i < 5; i += 1) {
          stream.write(frame(stream, 'x'));
          await new Promise((resolve) => void setTimeout(resolve, 5));
        }
        stream.listen(first);
        assert.equal(first.closes, 0);
        await first.until(({ closes }) => closes > 0);
        await new Promise((resolve) => void setImmediate(resolve));
        assert.equal(first.closes, 1);
      }));

    it('reports when the client stops reading, how much is buffered, and when it continues', () =>
      opened(async (stream, client) => {
        const heard = new Heard();
        stream.listen(heard);
        stream.write(frame(stream, 'one;'));
        await client.received('one;');
        client.pause();
        const piece = frame(stream, 'x'.repeat(64 * 1024));
        let written = 0;
        while (stream.write(piece) || stream.bufferedBytes < 8 * 1024 * 1024) {
          written += 1;
          if (written % 64 === 0) await new Promise((resolve) => void setImmediate(resolve));
          assert.ok(written < 10_000, 'the stream never says stop');
        }
        assert.ok(stream.bufferedBytes >= 8 * 1024 * 1024);
        const before = heard.drains;
        client.resume();
        await heard.until(({ drains }) => drains > before);
        assert.equal(heard.closes, 0);
        assert.ok(stream.bufferedBytes < 1024 * 1024);
      }));
  });
}

describe('a response stream', { timeout: DEADLINE_MS }, () => {
  it('never sends a second head', async () => {
    let code = '';
    await using server = await serveExchanges((exchange) => {
      const head: ResponseHead = { status: 200, headers: new HeaderList(), source: 'gateway' };
      exchange.stream(head).end();
      assert.throws(
        () => exchange.stream(head),
        (error: Error & { code?: string }) => {
          code = error.code ?? '';
          return true;
        },
      );
    });
    assert.equal(await plainHttp1(server).complete, true);
    assert.equal(code, 'response-begun');
  });

  it('discards what is written for HEAD', async () => {
    await using server = await serveExchanges((exchange) => {
      const stream = exchange.stream({ status: 200, headers: new HeaderList(), source: 'gateway' });
      assert.equal(stream.framing, 'plain');
      stream.write(Buffer.from('body'));
      stream.end();
    });
    const client = net.connect(server.http1, '127.0.0.1');
    client.end('HEAD / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n');
    let wire = '';
    for await (const chunk of client) wire += String(chunk);
    assert.match(wire, /^HTTP\/1\.1 200 OK\r\n.*\r\n\r\n$/s);
  });

  it('is served from one object and shared functions over HTTP/1.1', async () => {
    const streams: ResponseStream[] = [];
    await using server = await serveExchanges((exchange) => {
      streams.push(exchange.stream({ status: 200, headers: new HeaderList(), source: 'gateway' }));
    });
    const clients = [plainHttp1(server), plainHttp1(server)];
    for (;;) {
      if (streams.length === 2) break;
      await new Promise((resolve) => void setImmediate(resolve));
    }
    const [one, two] = streams;
    assert.ok(one && two);
    for (const stream of [one, two]) {
      for (const key of Reflect.ownKeys(stream)) {
        assert.notEqual(typeof Reflect.get(stream, key), 'function', String(key));
      }
    }
    for (const client of clients) client.leave();
  });
});
