import assert from 'node:assert/strict';
import { once } from 'node:events';
import http2 from 'node:http2';
import { describe, it, type TestContext } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import type { Exchange } from '../../../src/http/exchange.ts';
import {
  CONNECTION_WINDOW_BYTES,
  MAX_UNHEEDED_OF_CONNECTION,
  MAX_WAITING_OF_CONNECTION,
  NARROW_WINDOW_BYTES,
  WIDE_WINDOW_BYTES,
} from '../../../src/server/upload-windows.ts';
import { answer } from '../../../src/http/answer.ts';
import { serveExchanges } from '../http/exchange-server.ts';

const STREAMS = 100;
const BODY = Buffer.alloc(2 * WIDE_WINDOW_BYTES, 'x');

/** A server that reads no body before it is told to. */
async function serve(test: TestContext) {
  const exchanges: Exchange[] = [];
  const server = await serveExchanges((exchange) => void exchanges.push(exchange));
  const session = http2.connect(`http://127.0.0.1:${server.http2}`);
  session.on('error', () => {});
  test.after(async () => {
    session.destroy();
    await server.close();
  });
  await once(session, 'remoteSettings');
  return { exchanges, session };
}

async function settled(count: () => number): Promise<void> {
  for (let [seen, turns] = [-1, 0]; turns < 300; turns += 1) {
    if (count() !== seen) [seen, turns] = [count(), 0];
    await turn();
  }
}

describe('uploads over HTTP/2', () => {
  it('get a window of a megabyte', async (test) => {
    const { session } = await serve(test);
    assert.equal(session.remoteSettings.initialWindowSize, WIDE_WINDOW_BYTES);
    const stream = session.request({ ':method': 'POST', ':path': '/' }, { endStream: false });
    stream.on('error', () => {});
    stream.write(BODY);
    await settled(() => session.state.outboundQueueSize ?? 0);
    // What is left of the connection's after the whole of the stream's has been sent.
    assert.equal(session.state.remoteWindowSize, CONNECTION_WINDOW_BYTES - WIDE_WINDOW_BYTES);
  });

  it('get narrow ones where too much waits for upstreams, and wide ones when it is gone', async (test) => {
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
});
