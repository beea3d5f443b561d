import assert from 'node:assert/strict';
import { once } from 'node:events';
import http2 from 'node:http2';
import net from 'node:net';
import { describe, it, type TestContext } from 'node:test';
import type { Exchange } from '../../../src/http/exchange.ts';
import {
  CONNECTION_WINDOW_BYTES,
  MAX_UNHEEDED_OF_CONNECTION,
  MAX_WAITING_OF_CONNECTION,
  NARROW_WINDOW_BYTES,
  WIDE_WINDOW_BYTES,
} from '../../../src/server/http2.ts';
import { answer } from '../../../src/http/answer.ts';
import { FLAG, frame, FRAME, headers } from '../../support/http2-frames.ts';
import { settled } from '../../support/settled.ts';
import { serveExchanges } from '../http/exchange-server.ts';
import { until } from '../proxy/gateway.ts';

const STREAMS = 100;
const BODY = Buffer.alloc(2 * WIDE_WINDOW_BYTES, 'x');

/** A server that reads no body before it is told to. */
async function serve(test: TestContext) {
  const exchanges: Exchange[] = [];
  const server = await serveExchanges((exchange) => void exchanges.push(exchange));
  // Newer Nodes count what a client has yet to write, and refuse it new streams beyond 10 MB.
  const session = http2.connect(`http://127.0.0.1:${server.http2}`, { maxSessionMemory: 1000 });
  session.on('error', () => {});
  test.after(async () => {
    session.destroy();
    await server.close();
  });
  await once(session, 'remoteSettings');
  return { exchanges, server, session };
}

const windowOf = (session: http2.ClientHttp2Session, bytes: number): Promise<void> =>
  until(() => session.remoteSettings.initialWindowSize === bytes, `the window has ${bytes} bytes`);

describe('uploads over HTTP/2', () => {
  it('get a window of one megabyte', async (test) => {
    const { session } = await serve(test);
    assert.equal(session.remoteSettings.initialWindowSize, WIDE_WINDOW_BYTES);
    const stream = session.request({ ':method': 'POST', ':path': '/' }, { endStream: false });
    stream.on('error', () => {});
    stream.write(BODY);
    await settled(() => session.state.outboundQueueSize ?? 0);
    // What is left of the connection's after the whole of the stream's has been sent.
    assert.equal(session.state.remoteWindowSize, CONNECTION_WINDOW_BYTES - WIDE_WINDOW_BYTES);
  });

  it('get small windows when too much data waits for upstreams, and large ones when it is gone', async (test) => {
    const { exchanges, session } = await serve(test);
    const bodies = Array.from({ length: STREAMS }, () => {
      const stream = session.request({ ':method': 'POST', ':path': '/' }, { endStream: false });
      stream.on('error', () => {}).resume();
      stream.end(BODY);
      return stream;
    });
    const arrived = (): number => exchanges.reduce((sum, { body }) => sum + body.readableLength, 0);
    await settled(arrived);
    assert.equal(session.remoteSettings.initialWindowSize, NARROW_WINDOW_BYTES);
    assert.ok(arrived() > MAX_WAITING_OF_CONNECTION, String(arrived()));
    assert.ok(arrived() < MAX_UNHEEDED_OF_CONNECTION, String(arrived()));
    let bytes = 0;
    for (const exchange of exchanges) {
      exchange.body.on('data', (chunk: Buffer) => (bytes += chunk.length));
      exchange.body.once('end', () => answer(exchange, 200, {}, 'ok'));
    }
    await Promise.all(bodies.map((stream) => once(stream, 'close')));
    assert.equal(bytes, STREAMS * BODY.length);
    await settled(() => session.remoteSettings.initialWindowSize ?? 0);
    assert.equal(session.remoteSettings.initialWindowSize, WIDE_WINDOW_BYTES);
  });

  it('get large windows again when the client has given up those that wait', async (test) => {
    const { exchanges, session } = await serve(test);
    const bodies = Array.from({ length: 8 }, () => {
      const stream = session.request({ ':method': 'POST', ':path': '/' }, { endStream: false });
      stream.on('error', () => {}).write(BODY);
      return stream;
    });
    await settled(() => exchanges.reduce((sum, { body }) => sum + body.readableLength, 0));
    assert.equal(session.remoteSettings.initialWindowSize, NARROW_WINDOW_BYTES);
    for (const stream of bodies) stream.close(http2.constants.NGHTTP2_CANCEL);
    await windowOf(session, WIDE_WINDOW_BYTES);
  });

  it('get small windows in a new connection while too much waits in others', async (test) => {
    const { exchanges, server } = await serve(test);
    const clients = Array.from({ length: 3 }, () => new HeedlessClient(server.http2));
    test.after(() => clients.forEach((client) => client.end()));
    // 72 MiB in total, but from none of them so much that it is closed.
    await Promise.all(clients.map((client) => client.sendBodies(24)));
    await settled(() => exchanges.reduce((sum, { body }) => sum + body.readableLength, 0));
    const session = http2.connect(`http://127.0.0.1:${server.http2}`);
    test.after(() => session.destroy());
    await once(session, 'remoteSettings');
    await windowOf(session, NARROW_WINDOW_BYTES);
    for (const client of clients) client.end();
    await windowOf(session, WIDE_WINDOW_BYTES);
  });

  it('end a connection whose client ignores a small window, before it fills the memory', async (test) => {
    const { exchanges, server } = await serve(test);
    const client = new HeedlessClient(server.http2);
    test.after(() => client.end());
    const sent = await client.sendBodies(STREAMS);
    const most = MAX_UNHEEDED_OF_CONNECTION + CONNECTION_WINDOW_BYTES;
    assert.ok(sent > MAX_UNHEEDED_OF_CONNECTION, String(sent));
    assert.ok(sent <= most, String(sent));
    await client.closed;
    assert.equal(client.goAway, http2.constants.NGHTTP2_ENHANCE_YOUR_CALM);
    // Another connection is not concerned, and what had waited waits no more.
    assert.ok(exchanges.every(({ abandoned }) => abandoned));
    const session = http2.connect(`http://127.0.0.1:${server.http2}`);
    await once(session, 'remoteSettings');
    assert.equal(session.remoteSettings.initialWindowSize, WIDE_WINDOW_BYTES);
    session.destroy();
  });
});

const FRAME_BYTES = 16 * 1024;
const FRAME_HEAD_BYTES = 9;

/** A client that says it knows the first settings of its server, and never hears of others. */
class HeedlessClient {
  readonly closed: Promise<void>;
  /** Why the server went away; null: not yet. */
  goAway: number | null = null;
  readonly #socket: net.Socket;
  /** Bytes that the window of the connection still allows. */
  #credit = 65_535;
  #received = Buffer.alloc(0);
  #tell: () => void = () => {};

  constructor(port: number) {
    this.#socket = net.connect(port, '127.0.0.1').on('error', () => {});
    this.#socket.write('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n');
    this.#socket.write(frame(FRAME.settings, 0, 0));
    this.#socket.write(frame(FRAME.settings, FLAG.ack, 0));
    this.#socket.on('data', (chunk: Buffer) => this.#read(chunk));
    this.closed = new Promise((resolve) => this.#socket.once('close', () => resolve()));
    this.#socket.once('close', () => this.#tell());
  }

  end(): void {
    this.#socket.destroy();
  }

  /** Sends bodies, each as long as a wide window, until the server has had enough; tells how many bytes. */
  async sendBodies(count: number): Promise<number> {
    const data = Buffer.alloc(FRAME_BYTES, 'x');
    let sent = 0;
    for (let stream = 1; stream < 2 * count; stream += 2) {
      const fields = [
        [':method', 'POST'],
        [':scheme', 'http'],
        [':authority', 'a'],
        [':path', '/'],
      ] as const;
      this.#socket.write(headers(stream, fields, FLAG.endHeaders));
      for (let bytes = 0; bytes < WIDE_WINDOW_BYTES; bytes += data.length) {
        while (this.#credit < data.length && !this.#isOver) {
          await new Promise<void>((resolve) => (this.#tell = resolve));
        }
        if (this.#isOver) return sent;
        this.#credit -= data.length;
        sent += data.length;
        this.#socket.write(frame(FRAME.data, 0, stream, data));
      }
    }
    return sent;
  }

  get #isOver(): boolean {
    return this.goAway !== null || this.#socket.destroyed;
  }

  #read(chunk: Buffer): void {
    let bytes = Buffer.concat([this.#received, chunk]);
    for (;;) {
      const length = bytes.length < FRAME_HEAD_BYTES ? Infinity : bytes.readUIntBE(0, 3);
      if (bytes.length < FRAME_HEAD_BYTES + length) break;
      const payload = bytes.subarray(FRAME_HEAD_BYTES, FRAME_HEAD_BYTES + length);
      const stream = bytes.readUInt32BE(5);
      if (bytes[3] === FRAME.windowUpdate && stream === 0) this.#credit += payload.readUInt32BE(0);
      if (bytes[3] === FRAME.goAway) this.goAway = payload.readUInt32BE(4);
      bytes = bytes.subarray(FRAME_HEAD_BYTES + length);
    }
    this.#received = bytes;
    this.#tell();
  }
}
