import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import http from 'node:http';
import http2 from 'node:http2';
import net from 'node:net';
import { Readable, Transform, Writable } from 'node:stream';
import { setTimeout as after } from 'node:timers/promises';
import { describe, it } from 'node:test';
import { createGunzip } from 'node:zlib';
import type { HandlerContext } from '../../../src/site/handler-context.ts';
import { encode, type EncodeConfig } from '../../../src/directives/encode.ts';
import { sessionReads } from '../../../src/http/body-memory.ts';
import { bufferPool } from '../../../src/http/buffer-pool.ts';
import { NARROW_MARKS } from '../../../src/proxy/body-flow.ts';
import {
  MAX_WIDE_BODIES,
  MAX_WIDE_WAITING_BYTES,
  NARROW_READ_BYTES,
  PiecesOfRead,
  READ_BYTES,
  upstreamReads,
} from '../../../src/proxy/upstream-reads.ts';
import { RECORD, streamRecords } from '../../../src/proxy/fastcgi/records.ts';
import { ask1, portOf } from '../http/exchange-server.ts';
import { origin, type Origin, proxyTo, rawOrigin, until } from './gateway.ts';

const MB = 1024 * 1024;
const LARGE_BYTES = 16 * MB;
const LARGE = 4;
/** What connections hold at a time, the wait for the system included. */
const ENOUGH = 200;
/** A read brings up to 128 KiB. How much is there depends on how busy the machine is. */
const MAX_READS_PER_MB = 64;
/** The head of the response is copied too. */
const MAX_COPIED = 1.01;
/** Clients that take nothing. */
const SLOW = 250;

/** No two pieces of it are alike. */
function content(seed: number): Buffer {
  const bytes = Buffer.allocUnsafe(LARGE_BYTES);
  for (let i = 0; i < LARGE_BYTES; i += 4) {
    bytes.writeUInt32LE((Math.imul(i + seed, 2654435761) ^ seed) >>> 0, i);
  }
  return bytes;
}

const contents = Array.from({ length: LARGE }, (_, seed) => content(seed + 1));

function largeOrigin(): Promise<Origin> {
  return origin((request, response) => {
    const [, which, kind] = request.url?.split('/') ?? [];
    const body = contents[Number(which)] ?? Buffer.alloc(1024);
    response.writeHead(200, kind === undefined ? { 'content-length': body.length } : {});
    if (kind === 'chunks') Readable.from(chunksOf(body)).pipe(response);
    else response.end(body);
  });
}

/** Chunks of all sizes: many in one read, and one in many reads. */
function* chunksOf(bytes: Buffer): Generator<Buffer> {
  for (let [at, seed] = [0, 1]; at < bytes.length; seed += 1) {
    const size = [10, 1000, 8192, 65_536, 200_000][seed % 5] ?? 0;
    yield bytes.subarray(at, at + size);
    at += size;
  }
}

async function digest(body: Readable, pauseMs = 0): Promise<string> {
  const hash = createHash('sha256');
  let read = 0;
  for await (const chunk of body as AsyncIterable<Buffer>) {
    hash.update(chunk);
    read += chunk.length;
    if (pauseMs > 0 && read > MB) {
      read = 0;
      await after(pauseMs);
    }
  }
  return hash.digest('hex');
}

const WAYS: readonly { name: string; get: (port: Ports, path: string) => Promise<Readable> }[] = [
  {
    name: 'HTTP/1.1',
    get: async ({ http1 }, path) => {
      const request = http.get({ port: http1, host: '127.0.0.1', path, agent: false });
      const [response] = (await once(request, 'response')) as [http.IncomingMessage];
      return response;
    },
  },
  {
    name: 'HTTP/2',
    get: async ({ http2: port }, path) => {
      const session = http2.connect(`http://127.0.0.1:${port}`);
      session.on('error', () => {});
      const stream = session.request({ ':path': path });
      stream.once('close', () => session.destroy());
      await once(stream, 'response');
      return stream;
    },
  },
];

type Ports = Pick<Awaited<ReturnType<typeof proxyTo>>, 'http1' | 'http2'>;

describe('reading from upstreams', () => {
  for (const { name, get } of WAYS) {
    it(`reuses the buffers of a download, and mixes up no data, over ${name}`, async () => {
      await using upstream = await largeOrigin();
      await using gateway = await proxyTo([upstream.url]);
      const before = bufferPool.made;
      for (let round = 0; round < 2; round += 1) {
        const bodies = await Promise.all([0, 1, 2, 3].map((which) => get(gateway, `/${which}`)));
        // One leaves in the middle, one reads slowly.
        const gone = await get(gateway, '/0');
        gone.on('error', () => {});
        gone.once('data', () => gone.destroy());
        const digests = await Promise.all(bodies.map((body, i) => digest(body, i === 1 ? 2 : 0)));
        assert.deepEqual(
          digests,
          contents.map((bytes) => createHash('sha256').update(bytes).digest('hex')),
        );
      }
      const made = bufferPool.made - before;
      assert.ok(
        made < ENOUGH,
        `${made} buffers made for ${(2 * LARGE * LARGE_BYTES) / READ_BYTES}`,
      );
    });
  }

  for (const { name, get } of WAYS) {
    it(`needs few reads, and copies each byte once, for a client over ${name}`, async (test) => {
      await using upstream = await largeOrigin();
      await using gateway = await proxyTo([upstream.url]);
      let reads = 0;
      let copied = 0;
      const { copy } = Buffer.prototype;
      const counting = test.mock.method(
        Buffer.prototype,
        'copy',
        function (this: Buffer, ...all: Parameters<typeof copy>): number {
          const bytes = Number(Reflect.apply(copy, this, all));
          // The buffer into which all connections to upstreams read.
          if (this.length === READ_BYTES) {
            reads += 1;
            copied += bytes;
          }
          return bytes;
        },
      );
      const body = await get(gateway, '/1');
      let received = 0;
      for await (const chunk of body as AsyncIterable<Buffer>) received += chunk.length;
      counting.mock.restore();
      assert.equal(received, LARGE_BYTES);
      const perMb = reads / (LARGE_BYTES / MB);
      assert.ok(reads > 0 && perMb <= MAX_READS_PER_MB, `${perMb} reads for each MB`);
      assert.ok(copied <= MAX_COPIED * received, `${copied} bytes copied of ${received}`);
    });
  }

  it('reuses the buffers of a response in chunks, and mixes up no data', async () => {
    await using upstream = await largeOrigin();
    await using gateway = await proxyTo([upstream.url]);
    const digests = contents.map((bytes) => createHash('sha256').update(bytes).digest('hex'));
    const before = bufferPool.made;
    for (const { get } of WAYS) {
      const gone = await get(gateway, '/0/chunks');
      gone.on('error', () => {});
      gone.once('data', () => gone.destroy());
      const bodies = await Promise.all([0, 1, 2].map((which) => get(gateway, `/${which}/chunks`)));
      const received = await Promise.all(bodies.map((body, i) => digest(body, i === 1 ? 2 : 0)));
      assert.deepEqual(received, digests.slice(0, 3));
    }
    const made = bufferPool.made - before;
    assert.ok(made < ENOUGH, `${made} buffers made for ${(6 * LARGE_BYTES) / READ_BYTES}`);
  });

  it('joins small chunks of one read on their way to the client', async (test) => {
    const chunks = 20_000;
    await using upstream = await rawOrigin((socket) => {
      const head = 'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n';
      socket.end(`${head}${'1\r\na\r\n'.repeat(chunks)}0\r\n\r\n`);
    });
    await using gateway = await proxyTo([upstream.url]);
    const { mock } = test.mock.method(Writable.prototype, 'write');
    const { body } = await ask1(gateway.http1);
    assert.equal(body, 'a'.repeat(chunks));
    assert.ok(mock.callCount() < chunks / 10, `${mock.callCount()} writes`);
  });

  it('reuses the buffers of a download without a length too', async () => {
    await using upstream = await largeOrigin();
    await using gateway = await proxyTo([upstream.url]);
    const before = bufferPool.made;
    for (const { get } of WAYS) {
      const body = await get(gateway, '/1/unknown');
      const [, bytes = Buffer.alloc(0)] = contents;
      assert.equal(await digest(body), createHash('sha256').update(bytes).digest('hex'));
    }
    const made = bufferPool.made - before;
    assert.ok(made < ENOUGH, `${made} buffers made for ${LARGE_BYTES / READ_BYTES}`);
  });

  it('reuses the buffers of a download that is compressed, and mixes up no data', async () => {
    await using upstream = await largeOrigin();
    const match = { status: [], headers: [] };
    const config: EncodeConfig = {
      ...{ kind: 'encode', encodings: ['gzip'], minimumLength: 0, match },
      ...{ gzipLevel: 1, zstdLevel: 'fastest' },
    };
    const gzip = encode.compile(config, {} as HandlerContext);
    await using gateway = await proxyTo(
      [upstream.url],
      {},
      { before: (exchange) => void gzip(exchange, () => {}) },
    );
    const before = bufferPool.made;
    const bodies = await Promise.all(
      [0, 1, 2].map(async (which) => {
        const request = http.get({
          ...{ port: gateway.http1, host: '127.0.0.1', path: `/${which}`, agent: false },
          headers: { 'accept-encoding': 'gzip' },
        });
        const [response] = (await once(request, 'response')) as [http.IncomingMessage];
        assert.equal(response.headers['content-encoding'], 'gzip');
        return response.pipe(createGunzip());
      }),
    );
    const received = await Promise.all(bodies.map((body) => digest(body)));
    assert.deepEqual(
      received,
      contents.slice(0, 3).map((bytes) => createHash('sha256').update(bytes).digest('hex')),
    );
    const made = bufferPool.made - before;
    assert.ok(made < ENOUGH, `${made} buffers made for ${(3 * LARGE_BYTES) / READ_BYTES}`);
  });

  it('frees what a session over HTTP/2 has read when it is copied, and mixes up no data', async (test) => {
    // Node counts what waits to be written, and refuses further streams beyond 10 MB.
    const upstream = http2.createServer({ maxSessionMemory: 1000 });
    upstream.on('stream', (stream, { ':path': path = '' }) => {
      stream.on('error', () => {});
      stream.respond({ ':status': 200 });
      stream.end(contents[Number(path.slice(1))]);
    });
    upstream.listen(0, '127.0.0.1');
    await once(upstream, 'listening');
    test.after(() => upstream.close());
    await using gateway = await proxyTo([`h2c://127.0.0.1:${portOf(upstream)}`]);
    const [made, freed] = [bufferPool.made, sessionReads.freedBytes];
    for (const { get } of WAYS) {
      const bodies = await Promise.all([0, 1, 2, 3].map((which) => get(gateway, `/${which}`)));
      const gone = await get(gateway, '/0');
      gone.on('error', () => {});
      gone.once('data', () => gone.destroy());
      const received = await Promise.all(bodies.map((body, i) => digest(body, i === 1 ? 2 : 0)));
      assert.deepEqual(
        received,
        contents.map((bytes) => createHash('sha256').update(bytes).digest('hex')),
      );
    }
    const all = WAYS.length * LARGE * LARGE_BYTES;
    const part = (sessionReads.freedBytes - freed) / all;
    assert.ok(part > 0.8, `${part} of what was read`);
    assert.ok(bufferPool.made - made < all / NARROW_READ_BYTES / 4, 'reused');
  });

  it("reuses the buffers of a script's response in records of all sizes, and mixes up no data", async (test) => {
    const ending = Buffer.from([1, RECORD.endRequest, 0, 1, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    const server = net.createServer((socket) => {
      let asked = '';
      socket.on('error', () => {});
      socket.on('data', (piece: Buffer) => {
        const isFirst = asked === '';
        asked += piece.toString('latin1');
        if (!isFirst) return;
        const body = contents[Number(/REQUEST_URI\/(\d)/.exec(asked)?.[1])] ?? Buffer.alloc(0);
        const head = Buffer.from('Content-Type: text/plain\r\n\r\n');
        const records = [head, ...chunksOf(body)].map((part) => streamRecords(RECORD.stdout, part));
        Readable.from([...records, ending]).pipe(socket);
      });
    });
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    test.after(() => server.close());
    await using gateway = await proxyTo([`http://127.0.0.1:${portOf(server)}`], {
      fastcgi: { root: '/srv', resolveRootSymlink: false, splitPath: ['.php'], env: [] },
    });
    const before = bufferPool.made;
    for (const { get } of WAYS) {
      const bodies = await Promise.all(
        [0, 1, 2, 3].map((which) => get(gateway, `/${which}/a.php`)),
      );
      const received = await Promise.all(bodies.map((body, i) => digest(body, i === 1 ? 2 : 0)));
      assert.deepEqual(
        received,
        contents.map((bytes) => createHash('sha256').update(bytes).digest('hex')),
      );
    }
    const made = bufferPool.made - before;
    const reads = (WAYS.length * LARGE * LARGE_BYTES) / READ_BYTES;
    assert.ok(made < 2 * ENOUGH, `${made} buffers made for at least ${reads} reads`);
  });

  it('joins small parts of a read, in order, and no large ones', () => {
    const bytes = Buffer.from(contents[0]?.subarray(0, 20_000) ?? []);
    const sizes = [1, 1, 700, 700, 1023, 1024, 1, 5000, 4000, 2, 3];
    const parts: Buffer[] = [];
    let at = 0;
    for (const size of sizes) {
      parts.push(bytes.subarray(at + 7, at + 7 + size));
      at += size + 7;
    }
    const expected = Buffer.concat(parts);
    const passed: Buffer[] = [];
    const pieces = new PiecesOfRead(bytes, (piece) => void passed.push(piece));
    for (const part of parts) pieces.add(part);
    pieces.flush();
    pieces.flush();
    assert.deepEqual(
      passed.map(({ length }) => length),
      [2425, 1025, 5000, 4005],
    );
    assert.deepEqual(Buffer.concat(passed), expected);
  });

  it('overwrites no buffer that a body may still be using', async () => {
    await using upstream = await largeOrigin();
    const kept: Buffer[] = [];
    await using gateway = await proxyTo(
      [upstream.url],
      {},
      {
        before: (exchange) => {
          exchange.onHead(() => (body) => {
            const keeping = new Transform({
              transform(chunk: Buffer, _encoding, done): void {
                kept.push(chunk);
                done(null, chunk);
              },
            });
            keeping.pipe(body);
            return keeping;
          });
        },
      },
    );
    const [h1] = WAYS;
    assert.ok(h1 !== undefined);
    await digest(await h1.get(gateway, '/2'));
    await digest(await h1.get(gateway, '/3'));
    assert.equal(Buffer.compare(Buffer.concat(kept), Buffer.concat(contents.slice(2))), 0);
  });

  it('lets no download disturb an earlier one on the same connection', async () => {
    const body = Buffer.alloc(MB, 'x');
    await using upstream = await origin((_, response) => {
      response.writeHead(200, { 'content-length': body.length });
      response.end(body);
    });
    await using gateway = await proxyTo([upstream.url]);
    const COUNT = 60;
    const socket = net.connect(gateway.http1, '127.0.0.1');
    socket.write(
      'GET / HTTP/1.1\r\nHost: a\r\n\r\n'
        .repeat(COUNT)
        .replace(/\r\n$/, 'Connection: close\r\n\r\n'),
    );
    let received = 0;
    for await (const chunk of socket as AsyncIterable<Buffer>) received += chunk.length;
    assert.deepEqual(gateway.faults, []);
    assert.ok(received > COUNT * body.length, String(received));
  });

  it('keeps little memory for each of many clients that read nothing, and none when they have disconnected', async () => {
    await using upstream = await largeOrigin();
    await using gateway = await proxyTo([upstream.url]);
    const clients = Array.from({ length: SLOW }, () => {
      const client = net.connect(gateway.http1, '127.0.0.1').on('error', () => {});
      client.write('GET /0 HTTP/1.1\r\nHost: a\r\n\r\n');
      return client;
    });
    let [seen, turns, most] = [-1, 0, 0];
    await until(() => {
      const { waiting } = upstreamReads;
      turns = waiting === seen ? turns + 1 : 0;
      seen = waiting;
      most = Math.max(most, waiting);
      return waiting > 0 && turns > 100;
    }, 'all upstreams are held');
    // Until so much waits reads are wide, and a few connections may have one on their way then.
    const wide = MAX_WIDE_WAITING_BYTES + MAX_WIDE_BODIES * READ_BYTES;
    const each = NARROW_MARKS.high + NARROW_READ_BYTES;
    assert.ok(most <= wide + SLOW * each, `${most} bytes for ${SLOW} clients`);
    assert.ok(upstreamReads.isNarrow);
    for (const client of clients) client.destroy();
    await until(() => upstreamReads.waiting === 0, 'nothing waits');
    await until(() => !upstreamReads.isNarrow, 'reads are wide again');
  });

  it('allocates no large buffer for small responses', async () => {
    await using upstream = await largeOrigin();
    await using gateway = await proxyTo([upstream.url]);
    const before = bufferPool.made;
    const [h1] = WAYS;
    for (let i = 0; i < 50; i += 1) await h1?.get(gateway, '/small').then((body) => digest(body));
    assert.equal(bufferPool.made, before);
  });
});
