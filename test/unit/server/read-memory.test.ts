import assert from 'node:assert/strict';
import { createHash, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import http2 from 'node:http2';
import net from 'node:net';
import { text } from 'node:stream/consumers';
import { describe, it, type TestContext } from 'node:test';
import type { Exchange } from '../../../src/http/exchange.ts';
import { answer } from '../../../src/http/answer.ts';
import { sessionReads } from '../../../src/http/body-memory.ts';
import { type Field, FLAG, frame, FRAME, headers, RawHttp2 } from '../../support/http2-frames.ts';
import { serveExchanges } from '../http/exchange-server.ts';

const MB = 1024 * 1024;
const FRAME_HEAD_BYTES = 9;
const PADDED = 0x8;
const ROUNDS = 30;
const STREAMS = 8;
const MOST_BYTES = 100_000;

function digestOf(...pieces: readonly Buffer[]): string {
  const hash = createHash('sha256');
  for (const piece of pieces) hash.update(piece);
  return hash.digest('hex');
}

/**
 * Answers with the digest of each body, whose pieces it keeps until the end. A body of `/leased` is read as a
 * proxy reads it, and all others directly from Node.
 */
async function respond(exchange: Exchange): Promise<void> {
  const { body } =
    exchange.target === '/leased'
      ? { body: exchange.lendBody({ onWanted: () => {}, stall: null }) }
      : exchange;
  const pieces: Buffer[] = [];
  for await (const piece of body ?? []) {
    pieces.push(piece);
    if (pieces.length % 7 === 0) await new Promise(setImmediate);
  }
  answer(exchange, 200, {}, digestOf(...pieces));
}

async function serve(test: TestContext): Promise<number> {
  const server = await serveExchanges((exchange) => void respond(exchange));
  test.after(() => server.close());
  return server.http2;
}

/** A memory with pieces at the given places. */
function read(bytes: number, pieces: readonly (readonly [from: number, to: number])[]): number {
  const memory = new ArrayBuffer(bytes);
  for (const [from, to] of pieces) sessionReads.copied(Buffer.from(memory, from, to - from));
  sessionReads.free();
  return memory.byteLength;
}

describe('the memory of what an HTTP/2 session reads', () => {
  it('is freed if all of it has been copied, except for the heads of frames', () => {
    assert.equal(read(20_000, [[0, 20_000]]), 0);
    assert.equal(read(20_000, [[FRAME_HEAD_BYTES, 20_000]]), 0);
    assert.equal(
      read(20_000, [
        [0, 7000],
        [7009, 7010],
        [7019, 20_000],
      ]),
      0,
    );
    assert.equal(
      read(20_000, [
        [7009, 20_000],
        [0, 7000],
      ]),
      0,
    );
  });

  it('is kept if anything else is in it, which may not have been copied', () => {
    const kept: (readonly (readonly [number, number])[])[] = [
      [],
      [[0, 19_999]],
      [[1, 20_000]],
      [
        [0, 7000],
        [7010, 20_000],
      ],
      [
        [0, 7000],
        [7018, 20_000],
      ],
      [
        [10, 7000],
        [7000, 20_000],
      ],
    ];
    for (const pieces of kept) assert.equal(read(20_000, pieces), 20_000, JSON.stringify(pieces));
  });

  it('is freed when large bodies are passed on, and none is mixed up', async (test) => {
    const session = http2.connect(`http://127.0.0.1:${await serve(test)}`);
    test.after(() => session.destroy());
    const bodies = Array.from({ length: 4 }, () => randomBytes(8 * MB));
    const before = sessionReads.freedBytes;
    const received = await Promise.all(
      bodies.map((body) => {
        const stream = session.request({ ':method': 'PUT', ':path': '/leased' });
        stream.end(body);
        return text(stream);
      }),
    );
    assert.deepEqual(
      received,
      bodies.map((body) => digestOf(body)),
    );
    const part = (sessionReads.freedBytes - before) / (bodies.length * 8 * MB);
    assert.ok(part > 0.5, `${part} of what was read`);
  });

  it('is never freed under another reader, whatever the frames', async (test) => {
    const port = await serve(test);
    const before = sessionReads.freedBytes;
    for (let round = 0; round < ROUNDS; round += 1) await exchangeAtRandom(port);
    assert.ok(sessionReads.freedBytes > before);
  });
});

/** Sends bodies in interleaved frames of all sizes, some padded, with others between them. */
async function exchangeAtRandom(port: number): Promise<void> {
  const socket = net.connect(port, '127.0.0.1');
  await once(socket, 'connect');
  const client = new RawHttp2(socket);
  client.send(Buffer.from('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n'), frame(FRAME.settings, 0, 0));
  await client.until(({ type, flags }) => type === FRAME.settings && flags === 0);
  const bodies = Array.from({ length: STREAMS }, (_, i) => ({
    stream: 2 * i + 1,
    rest: randomBytes(below(MOST_BYTES)),
    digest: '',
  }));
  const sent: Buffer[] = [frame(FRAME.settings, FLAG.ack, 0)];
  for (const body of bodies) {
    body.digest = digestOf(body.rest);
    const path = below(3) === 0 ? '/direct' : '/leased';
    sent.push(headers(body.stream, fieldsOf(path), FLAG.endHeaders));
  }
  const open = [...bodies];
  while (open.length > 0) {
    const at = below(open.length);
    const body = open[at];
    if (body === undefined) break;
    const size = [below(12), below(1000), 16_384][below(3)] ?? 0;
    const isLast = size >= body.rest.length;
    sent.push(data(body.stream, body.rest.subarray(0, size), isLast));
    body.rest = body.rest.subarray(size);
    if (isLast) open.splice(at, 1);
    if (below(20) === 0) sent.push(frame(FRAME.ping, 0, 0, randomBytes(8)));
  }
  const bytes = Buffer.concat(sent);
  for (let at = 0; at < bytes.length; ) {
    const size = 1 + below(65_536);
    socket.write(bytes.subarray(at, at + size));
    at += size;
    await new Promise(setImmediate);
  }
  for (const { stream, digest } of bodies) {
    const isBody = (one: { type: number; stream: number }): boolean =>
      one.type === FRAME.data && one.stream === stream;
    const { payload } = await client.until(isBody);
    assert.equal(payload.toString(), digest);
  }
  socket.destroy();
}

function data(stream: number, payload: Buffer, isLast: boolean): Buffer {
  const end = isLast ? FLAG.endStream : 0;
  if (below(10) > 0 || payload.length > 16_000) return frame(FRAME.data, end, stream, payload);
  const padding = below(20);
  const padded = Buffer.concat([Buffer.from([padding]), payload, Buffer.alloc(padding)]);
  return frame(FRAME.data, end | PADDED, stream, padded);
}

function fieldsOf(path: string): readonly Field[] {
  return [
    [':method', 'PUT'],
    [':path', path],
    [':scheme', 'http'],
    [':authority', 'localhost'],
  ];
}

function below(limit: number): number {
  return Math.floor(Math.random() * limit);
}
