import assert from 'node:assert/strict';
import { channel } from 'node:diagnostics_channel';
import { once } from 'node:events';
import net from 'node:net';
import { Writable } from 'node:stream';
import { describe, it, type TestContext } from 'node:test';
import { answer } from '../../../src/http/answer.ts';
import type { Exchange } from '../../../src/http/exchange.ts';
import { restReading } from '../../../src/http/small-pieces.ts';
import { endOfStream, RECORD, streamRecords } from '../../../src/proxy/fastcgi/records.ts';
import { READ_BYTES } from '../../../src/proxy/upstream-reads.ts';
import { acceptedConnection } from '../../support/accepted-connection.ts';
import { FLAG, frame, FRAME, headers } from '../../support/http2-frames.ts';
import { rawHttp2Origin } from '../../support/raw-http2-origin.ts';
import { type Overrides, proxyTo, rawOrigin } from '../proxy/gateway.ts';
import { ask1, serveExchanges } from './exchange-server.ts';

/** More than the system keeps for a connection, so that there is always something to read. */
const PIECES = 400_000;
const BODY = 'a'.repeat(PIECES);
const CHUNKS = `${'1\r\na\r\n'.repeat(PIECES)}0\r\n\r\n`;
/** As many as fit into the window of an upload, and of a response. */
const [UPLOAD, RESPONSE] = [900_000, 200_000];
const DATA = Buffer.alloc(10 * UPLOAD, frame(FRAME.data, 0, 1, 'a'));
/** What a connection reads in one turn at most: a read that is nearly all small pieces, after one that is not. */
const MOST = READ_BYTES + 16 * 1024;
const PREFACE = Buffer.from('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n');
const SETTINGS = frame(FRAME.settings, 0, 0);

/** The most bytes that any connection of this process has read in one turn of the event loop. */
class ReadsOfTurns {
  most = 0;
  readonly #known = new Map<net.Socket, number>();
  readonly #add = (message: unknown): void => {
    const { socket } = message as { socket: net.Socket };
    this.#known.set(socket, 0);
  };

  constructor(test: TestContext, side: 'net.client.socket' | 'net.server.socket') {
    const sockets = channel(side);
    sockets.subscribe(this.#add);
    let turn: NodeJS.Immediate;
    const look = (): void => {
      for (const [socket, before] of this.#known) {
        const { bytesRead } = socket;
        this.most = Math.max(this.most, bytesRead - before);
        this.#known.set(socket, bytesRead);
      }
      turn = setImmediate(look);
    };
    turn = setImmediate(look);
    test.after(() => {
      clearImmediate(turn);
      sockets.unsubscribe(this.#add);
    });
  }
}

/** Answers with the length of the body. */
function answerLength(exchange: Exchange): Promise<void> {
  let bytes = 0;
  exchange.body.on('data', (chunk: Buffer) => (bytes += chunk.length));
  return once(exchange.body, 'end').then(() => answer(exchange, 200, {}, `${bytes} bytes`));
}

describe('a connection that sends many small pieces is read once in a turn', () => {
  const upstreams: Readonly<
    Record<string, { respond(socket: net.Socket): void; overrides: Overrides }>
  > = {
    'chunks of an upstream': {
      overrides: {},
      respond: (socket) => {
        socket.write(`HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n${CHUNKS}`);
      },
    },
    'FastCGI records': {
      overrides: {
        fastcgi: { root: '/srv', resolveRootSymlink: false, splitPath: ['.php'], env: [] },
      },
      respond: (socket) => {
        const one = streamRecords(RECORD.stdout, Buffer.from('a'));
        const pieces = Buffer.concat(Array.from({ length: PIECES }, () => one));
        const head = streamRecords(RECORD.stdout, Buffer.from('A: b\r\n\r\n'));
        const end = Buffer.from([1, RECORD.endRequest, 0, 1, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        socket.end(Buffer.concat([head, pieces, endOfStream(RECORD.stdout), end]));
      },
    },
  };
  for (const [name, { respond, overrides }] of Object.entries(upstreams)) {
    it(name, async (test) => {
      let hasBegun = false;
      await using upstream = await rawOrigin((socket) => {
        if (!hasBegun) respond(socket);
        hasBegun = true;
      });
      const reads = new ReadsOfTurns(test, 'net.client.socket');
      await using gateway = await proxyTo([upstream.url], overrides);
      const { body } = await ask1(gateway.http1, { path: '/a.php' });
      assert.equal(body, BODY);
      assert.ok(reads.most > 0 && reads.most <= MOST, `${reads.most} bytes`);
    });
  }

  it('DATA frames of an upstream', async (test) => {
    await using upstream = await rawHttp2Origin((socket, { type, stream }) => {
      if (type !== FRAME.headers) return;
      const head = headers(stream, [[':status', '200']], FLAG.endHeaders);
      const end = frame(FRAME.data, FLAG.endStream, stream);
      socket.write(Buffer.concat([head, DATA.subarray(0, 10 * RESPONSE), end]));
    });
    const reads = new ReadsOfTurns(test, 'net.client.socket');
    await using gateway = await proxyTo([upstream.url], { transport: { versions: ['2'] } });
    const { mock } = test.mock.method(Writable.prototype, 'write');
    const { body } = await ask1(gateway.http1);
    assert.ok(mock.callCount() < RESPONSE / 10, `${mock.callCount()} writes`);
    assert.equal(body, BODY.slice(0, RESPONSE));
    assert.ok(reads.most > 0 && reads.most <= MOST, `${reads.most} bytes`);
  });

  it('chunks of a client', async (test) => {
    const reads = new ReadsOfTurns(test, 'net.server.socket');
    await using server = await serveExchanges(answerLength);
    const client = net.connect(server.http1, '127.0.0.1').setEncoding('latin1');
    test.after(() => client.destroy());
    client.write(`POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n${CHUNKS}`);
    const [response] = await once(client, 'data');
    assert.match(String(response), new RegExp(`${PIECES} bytes$`));
    assert.ok(reads.most > 0 && reads.most <= MOST, `${reads.most} bytes`);
  });

  it('DATA frames of a client', async (test) => {
    const reads = new ReadsOfTurns(test, 'net.server.socket');
    await using server = await serveExchanges(answerLength);
    const client = net.connect(server.http2, '127.0.0.1');
    test.after(() => client.destroy());
    const fields = { ':method': 'POST', ':path': '/', ':scheme': 'http', ':authority': 'a' };
    const head = headers(1, Object.entries(fields), FLAG.endHeaders);
    client.write(Buffer.concat([PREFACE, SETTINGS, head, DATA]));
    client.write(frame(FRAME.data, FLAG.endStream, 1));
    let received = '';
    for await (const chunk of client as AsyncIterable<Buffer>) {
      received += chunk.toString('latin1');
      if (received.endsWith(' bytes')) break;
    }
    assert.ok(received.endsWith(`${UPLOAD} bytes`));
    assert.ok(reads.most > 0 && reads.most <= MOST, `${reads.most} bytes`);
  });

  it('DATA frames of a client that reads a long response slowly at the same time', async (test) => {
    const long = 'b'.repeat(20_000_000);
    await using server = await serveExchanges((exchange) => {
      if (exchange.method === 'POST') return answerLength(exchange);
      return Promise.resolve(answer(exchange, 200, {}, long));
    });
    const client = net.connect(server.http2, '127.0.0.1');
    test.after(() => client.destroy());
    const fields = { ':path': '/', ':scheme': 'http', ':authority': 'a' };
    const post = Object.entries({ ':method': 'POST', ...fields });
    const get = Object.entries({ ':method': 'GET', ...fields });
    const wide = Buffer.from([0x3f, 0, 0, 0]);
    client.write(Buffer.concat([PREFACE, SETTINGS, frame(FRAME.windowUpdate, 0, 0, wide)]));
    client.write(Buffer.concat([headers(1, post, FLAG.endHeaders), headers(3, get)]));
    client.write(Buffer.concat([frame(FRAME.windowUpdate, 0, 3, wide), DATA]));
    client.write(frame(FRAME.data, FLAG.endStream, 1));
    let received = 0;
    let hasUploaded = false;
    for await (const chunk of client as AsyncIterable<Buffer>) {
      received += chunk.length;
      hasUploaded ||= chunk.includes(`${UPLOAD} bytes`);
      if (hasUploaded && received > long.length) break;
      await new Promise(setImmediate);
    }
    assert.ok(hasUploaded);
  });
});

describe('a connection that is not read', () => {
  for (const isTls of [false, true]) {
    const name = isTls ? 'TLS' : 'TCP';

    it(`is read again in a later turn: ${name}`, async (test) => {
      const { accepted, client } = await acceptedConnection(test, isTls);
      restReading(accepted);
      client.write('a');
      assert.equal(String((await once(accepted, 'data'))[0]), 'a');
    });

    it(`stays paused if it was paused meanwhile: ${name}`, async (test) => {
      const { accepted, client } = await acceptedConnection(test, isTls);
      let received = '';
      accepted.on('data', (chunk: Buffer) => (received += String(chunk)));
      restReading(accepted);
      accepted.pause();
      await new Promise((resolve) => client.write('a'.repeat(200_000), resolve));
      for (let turn = 0; turn < 20; turn += 1) await new Promise(setImmediate);
      assert.equal(received, '');
      accepted.resume();
      while (received.length < 200_000) await once(accepted, 'data');
    });

    it(`may close meanwhile: ${name}`, async (test) => {
      const { accepted } = await acceptedConnection(test, isTls);
      restReading(accepted);
      accepted.destroy();
      await once(accepted, 'close');
      restReading(accepted);
      await new Promise(setImmediate);
    });
  }

  it('is not read before its turn', async (test) => {
    const two = [await acceptedConnection(test, false), await acceptedConnection(test, false)];
    const read: number[] = [];
    for (const [i, { accepted, client }] of two.entries()) {
      accepted.on('data', () => read.push(i));
      restReading(accepted);
      client.write('a');
    }
    while (read.length < 2) await new Promise(setImmediate);
    assert.deepEqual(read, [0, 1]);
  });
});
