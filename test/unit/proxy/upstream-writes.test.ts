import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import http from 'node:http';
import http2 from 'node:http2';
import net from 'node:net';
import { Readable } from 'node:stream';
import { describe, it } from 'node:test';
import { bufferPool } from '../../../src/http/buffer-pool.ts';
import { gatherWrites } from '../../../src/proxy/upstream-writes.ts';
import { portOf } from '../http/exchange-server.ts';
import { origin, type Origin, proxyTo } from './gateway.ts';

const MB = 1024 * 1024;
const BODY_BYTES = 16 * MB;
const UPLOADS = 4;
/** Buffers that the uploads hold at a time, of the thousands of pieces that they have. */
const ENOUGH = 400;

/** No two pieces of it are alike. */
function content(seed: number): Buffer {
  const bytes = Buffer.allocUnsafe(BODY_BYTES);
  for (let i = 0; i < BODY_BYTES; i += 4) {
    bytes.writeUInt32LE((Math.imul(i + seed, 2654435761) ^ seed) >>> 0, i);
  }
  return bytes;
}

const contents = Array.from({ length: UPLOADS }, (_, seed) => content(seed + 1));
const digests = contents.map((bytes) => createHash('sha256').update(bytes).digest('hex'));

/** Answers with the digest of what it was sent. */
function digestOrigin(): Promise<Origin> {
  return origin((request, response) => {
    const hash = createHash('sha256');
    request.on('data', (chunk: Buffer) => hash.update(chunk));
    request.once('end', () => response.end(hash.digest('hex')));
  });
}

async function upload(port: number, bytes: Buffer, pieceBytes: number | null): Promise<string> {
  const headers = pieceBytes === null ? { 'content-length': bytes.length } : {};
  const request = http.request({ port, host: '127.0.0.1', method: 'PUT', agent: false, headers });
  if (pieceBytes === null) request.end(bytes);
  else Readable.from(piecesOf(bytes, pieceBytes)).pipe(request);
  const [response] = (await once(request, 'response')) as [http.IncomingMessage];
  return response.setEncoding('latin1').reduce((all, one: string) => all + one, '');
}

function* piecesOf(bytes: Buffer, size: number): Generator<Buffer> {
  for (let at = 0; at < bytes.length; at += size) yield bytes.subarray(at, at + size);
}

describe('the memory of an upload', () => {
  for (const pieceBytes of [null, 64 * 1024, 1000]) {
    const how = pieceBytes === null ? 'with a length' : `in chunks of ${pieceBytes} bytes`;
    it(`is used again piece by piece, and no data is mixed up, ${how}`, async () => {
      await using upstream = await digestOrigin();
      await using gateway = await proxyTo([upstream.url]);
      const before = bufferPool.made;
      const received = await Promise.all(
        contents.map((bytes) => upload(gateway.http1, bytes, pieceBytes)),
      );
      assert.deepEqual(received, digests);
      assert.ok(bufferPool.made - before < ENOUGH, `${bufferPool.made - before} buffers made`);
    });
  }

  it('is used again over HTTP/2 to the upstream as well, and no data is mixed up', async () => {
    const upstream = http2.createServer().on('stream', (stream) => {
      const hash = createHash('sha256');
      stream.on('data', (chunk: Buffer) => hash.update(chunk));
      stream.once('end', () => {
        stream.respond({ ':status': 200 });
        stream.end(hash.digest('hex'));
      });
    });
    upstream.listen(0, '127.0.0.1');
    await once(upstream, 'listening');
    await using gateway = await proxyTo([`h2c://127.0.0.1:${portOf(upstream)}`]);
    const before = bufferPool.made;
    const received = await Promise.all(contents.map((bytes) => upload(gateway.http1, bytes, null)));
    upstream.close();
    assert.deepEqual(received, digests);
    assert.ok(bufferPool.made - before < ENOUGH, `${bufferPool.made - before} buffers made`);
  });

  it('is given to the next attempt as well, if the first upstream cannot be reached', async () => {
    await using upstream = await digestOrigin();
    const closed = await digestOrigin();
    await closed[Symbol.asyncDispose]();
    await using gateway = await proxyTo([closed.url, upstream.url], {
      loadBalancing: {
        policy: { kind: 'first' },
        tryDurationMs: 5000,
        tryIntervalMs: 1,
        retries: null,
        retryMatch: null,
      },
      passiveHealth: { failDurationMs: 10_000 },
    });
    const [bytes = Buffer.alloc(0)] = contents;
    assert.equal(await upload(gateway.http1, bytes, null), digests[0]);
  });
});

describe('writes to an upstream', () => {
  it('are combined within one turn, except for the first piece, which is sent at once', async () => {
    const server = net.createServer();
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    const accepted = once(server, 'connection');
    const socket = net.connect(portOf(server), '127.0.0.1');
    await once(socket, 'connect');
    const [peer] = (await accepted) as [net.Socket];
    const sizes: number[] = [];
    const { _write: write, _writev: writev } = net.Socket.prototype;
    gatherWrites(socket);
    socket._write = (chunk: Buffer, encoding, done) => {
      sizes.push(chunk.length);
      write.call(socket, chunk, encoding, done);
    };
    socket._writev = (chunks, done) => {
      sizes.push(chunks.reduce((sum, { chunk }) => sum + (chunk as Buffer).length, 0));
      writev?.call(socket, chunks, done);
    };
    const sent = Buffer.from(Array.from({ length: 10 * 16 * 1024 }, (_, i) => i % 251));
    for (const piece of piecesOf(sent, 16 * 1024)) {
      socket.cork();
      socket.write(piece);
      socket.uncork();
    }
    assert.deepEqual(
      sizes,
      [16, 64, 64].map((kib) => kib * 1024),
      'before the turn is over',
    );
    const received: Buffer[] = [];
    let length = 0;
    while (length < sent.length) {
      const [chunk] = (await once(peer, 'data')) as [Buffer];
      received.push(chunk);
      length += chunk.length;
    }
    assert.ok(Buffer.concat(received).equals(sent));
    assert.deepEqual(sizes.slice(3), [16 * 1024], 'the rest at its end');
    socket.destroy();
    server.close();
  });
});
