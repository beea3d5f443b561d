import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { type FileHandle, mkdtemp, open, truncate, writeFile } from 'node:fs/promises';
import http from 'node:http';
import http2 from 'node:http2';
import net from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type Readable, Transform } from 'node:stream';
import { describe, it, mock, type TestContext } from 'node:test';
import {
  FILE_READ_BYTES,
  LEAST_READ_BYTES,
  serveFile,
} from '../../../src/directives/file-server/serve-file.ts';
import { type ExchangeServer, serveExchanges } from '../http/exchange-server.ts';
import { until } from '../proxy/gateway.ts';
import { removeWith } from '../../support/temporary-directory.ts';

const MB = 1024 * 1024;
/** More than all that lies between the file and a client that reads nothing can hold. */
const LARGE_BYTES = 64 * MB;

interface Served {
  readonly path: string;
  readonly server: ExchangeServer;
}

async function serve(test: TestContext, content: Buffer, isKept = false): Promise<Served> {
  const root = await mkdtemp(join(tmpdir(), 'hubgate-file-'));
  removeWith(test, root);
  const path = join(root, 'file.bin');
  await writeFile(path, content);
  const server = await serveExchanges(async (exchange) => {
    if (isKept) exchange.onHead(() => keeping);
    const nothing = { isHidden: () => false, hidesFile: () => false, precompressed: [] };
    await serveFile(exchange, path, { root, names: ['file.bin'], ...nothing }, null);
  });
  test.after(() => server.close());
  return { path, server };
}

/** Gives on what it gets only after more of it has come. */
function keeping(body: NodeJS.WritableStream): Transform {
  let kept: Buffer | null = null;
  const step = new Transform({
    transform(chunk: Buffer, _encoding, done): void {
      if (kept !== null) this.push(kept);
      kept = chunk;
      done();
    },
    flush(done): void {
      done(null, kept);
    },
  });
  step.pipe(body);
  return step;
}

const CLIENTS: Readonly<Record<string, (server: ExchangeServer) => Promise<Readable>>> = {
  'HTTP/1.1': async ({ http1 }) => {
    const request = http.get({ host: '127.0.0.1', port: http1, agent: false });
    const [response] = (await once(request, 'response')) as [http.IncomingMessage];
    return response;
  },
  'HTTP/2': async ({ http2: port }) => {
    const session = http2.connect(`http://127.0.0.1:${port}`).on('error', () => {});
    const stream = session.request({ ':path': '/' });
    stream.once('close', () => session.destroy());
    await once(stream, 'response');
    return stream;
  },
};

/** No two reads of it are alike. */
function content(bytes: number): Buffer {
  const all = Buffer.allocUnsafe(bytes);
  for (let i = 0; i < bytes; i += 4) all.writeUInt32LE(Math.imul(i, 2654435761) >>> 0, i);
  return all;
}

const digestOf = (bytes: Buffer): string => createHash('sha256').update(bytes).digest('hex');

async function digest(body: Readable): Promise<string> {
  const hash = createHash('sha256');
  for await (const chunk of body as AsyncIterable<Buffer>) hash.update(chunk);
  return hash.digest('hex');
}

/** The lengths of the buffers into which files are read from now on. */
async function recordReads(test: TestContext): Promise<readonly number[]> {
  const file = await open('/dev/null');
  const prototype = Object.getPrototypeOf(file) as FileHandle;
  await file.close();
  const lengths: number[] = [];
  const { read } = prototype;
  const recording = mock.method(prototype, 'read', function (this: FileHandle, ...given: [Buffer]) {
    lengths.push(given[0].length);
    return Reflect.apply(read, this, given);
  });
  test.after(() => recording.mock.restore());
  return lengths;
}

describe('the memory of files whose clients take nothing', () => {
  it('is much for each of a few, and little for each of many', async (test) => {
    const { server } = await serve(test, Buffer.alloc(LARGE_BYTES, 'x'));
    const buffers = await recordReads(test);
    const sessions = Array.from({ length: 8 }, () =>
      http2.connect(`http://127.0.0.1:${server.http2}`, { settings: { initialWindowSize: 0 } }),
    );
    test.after(() => {
      for (const session of sessions) session.destroy();
    });
    const streams = sessions.flatMap((session) => {
      session.on('error', () => {});
      return Array.from({ length: 150 }, () =>
        session.request({ ':path': '/' }).on('error', () => {}),
      );
    });
    await until(() => buffers.length === streams.length, 'each file has been read once');
    assert.equal(buffers.filter((bytes) => bytes === FILE_READ_BYTES).length, 64);
    assert.equal(buffers.at(-1), LEAST_READ_BYTES);
    const total = buffers.reduce((sum, bytes) => sum + bytes, 0);
    assert.ok(total < 64 * MB, String(total));

    const [first] = sessions;
    first?.setLocalWindowSize(LARGE_BYTES);
    first?.settings({ initialWindowSize: MB });
    for (const stream of streams) stream.resume();
    await until(() => buffers.length > 2 * streams.length, 'some of the files are read on');
    const later = buffers.slice(streams.length);
    assert.ok(Math.max(...later) <= 2 * LEAST_READ_BYTES, String(Math.max(...later)));
  });
});

describe('the content of a file', () => {
  for (const [protocol, get] of Object.entries(CLIENTS)) {
    for (const isKept of [false, true]) {
      const how = isKept ? ', where a step before the client keeps pieces of it' : '';
      it(`arrives unchanged over ${protocol}${how}, with few reads`, async (test) => {
        const bytes = content(8 * MB);
        const { server } = await serve(test, bytes, isKept);
        const reads = await recordReads(test);
        assert.equal(await digest(await get(server)), digestOf(bytes));
        assert.equal(reads.length, bytes.length / FILE_READ_BYTES);
        assert.deepEqual(server.faults, []);
      });
    }
  }

  it('is cut short over HTTP/1.1 if the file shrinks, and nothing else is sent on its connection', async (test) => {
    const { path, server } = await serve(test, Buffer.alloc(LARGE_BYTES, 'x'));
    const client = net.connect(server.http1, '127.0.0.1').on('error', () => {});
    client.write('GET / HTTP/1.1\r\nHost: a\r\n\r\n'.repeat(2));
    await once(client, 'readable');
    await truncate(path, 0);
    let heads = 0;
    client.on('data', (chunk: Buffer) => (heads += chunk.includes('HTTP/1.1 ') ? 1 : 0));
    await once(client, 'close');
    assert.ok(client.bytesRead < LARGE_BYTES, String(client.bytesRead));
    assert.equal(heads, 1);
  });

  it('is aborted over HTTP/2 if the file shrinks', async (test) => {
    const { path, server } = await serve(test, Buffer.alloc(LARGE_BYTES, 'x'));
    const session = http2.connect(`http://127.0.0.1:${server.http2}`).on('error', () => {});
    const stream = session.request({ ':path': '/' }).on('error', () => {});
    await once(stream, 'response');
    await truncate(path, 0);
    stream.resume();
    await new Promise((resolve) => stream.once('close', resolve));
    session.destroy();
    // Told by the server: a client that counts would find a PROTOCOL_ERROR itself.
    assert.equal(stream.rstCode, http2.constants.NGHTTP2_INTERNAL_ERROR);
  });
});
