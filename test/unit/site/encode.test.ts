import assert from 'node:assert/strict';
import { once } from 'node:events';
import http from 'node:http';
import { describe, it } from 'node:test';
import zlib from 'node:zlib';
import { origin, proxyConfig } from '../proxy/gateway.ts';
import { on, serveSite, type SiteServer } from './site-server.ts';

const LONG = 'hello world '.repeat(200);

interface Raw {
  readonly status: number;
  readonly headers: http.IncomingHttpHeaders;
  readonly body: Buffer;
}

async function fetchRaw(port: number, accept: string, method = 'GET'): Promise<Raw> {
  const request = http.request({
    host: '127.0.0.1',
    port,
    method,
    agent: false,
    headers: accept === '' ? {} : { 'accept-encoding': accept },
  });
  request.end();
  const [response]: http.IncomingMessage[] = await once(request, 'response');
  assert.ok(response);
  const chunks: Buffer[] = [];
  for await (const chunk of response) chunks.push(chunk);
  return {
    status: response.statusCode ?? 0,
    headers: response.headers,
    body: Buffer.concat(chunks),
  };
}

const served = async <T>(
  app: http.RequestListener,
  use: (site: SiteServer) => Promise<T>,
  encodings: readonly ('gzip' | 'br' | 'zstd')[] = ['br', 'gzip'],
): Promise<T> => {
  await using upstream = await origin(app);
  await using site = await serveSite([
    on({
      kind: 'encode',
      encodings,
      minimumLength: 512,
      gzipLevel: null,
      zstdLevel: 'default',
      match: null,
    }),
    on(proxyConfig([upstream.url])),
  ]);
  const result = await use(site);
  assert.deepEqual(site.faults, []);
  return result;
};

const page =
  (
    fields: http.OutgoingHttpHeaders,
    body: string | Buffer = LONG,
    status = 200,
  ): http.RequestListener =>
  (_, response) => {
    response.writeHead(status, { 'content-type': 'text/html; charset=utf-8', ...fields }).end(body);
  };

describe('encode (hubfile.md §3)', () => {
  it('uses the first of its encodings that the client accepts', async () => {
    await served(page({ 'content-length': LONG.length }), async ({ http1 }) => {
      const br = await fetchRaw(http1, 'gzip, br;q=0.5');
      assert.equal(br.headers['content-encoding'], 'br');
      assert.equal(zlib.brotliDecompressSync(br.body).toString(), LONG);
      assert.equal(br.headers['content-length'], undefined);
      const gzip = await fetchRaw(http1, 'br;q=0, *');
      assert.equal(gzip.headers['content-encoding'], 'gzip');
      assert.equal(zlib.gunzipSync(gzip.body).toString(), LONG);
    });
  });

  it('adds Vary once, even for clients that get no encoding', async () => {
    await served(page({ vary: 'Cookie' }), async ({ http1 }) => {
      const plain = await fetchRaw(http1, '');
      assert.equal(plain.headers['content-encoding'], undefined);
      assert.equal(plain.headers.vary, 'Cookie, Accept-Encoding');
      assert.equal(plain.body.toString(), LONG);
    });
    await served(page({ vary: 'accept-encoding' }), async ({ http1 }) => {
      assert.equal((await fetchRaw(http1, 'gzip')).headers.vary, 'accept-encoding');
    });
  });

  it('weakens strong entity tags and keeps weak ones unchanged (RFC 9110 §8.8.1)', async () => {
    await served(page({ etag: '"abc"' }), async ({ http1 }) => {
      assert.equal((await fetchRaw(http1, 'gzip')).headers.etag, 'W/"abc"');
      assert.equal((await fetchRaw(http1, 'identity')).headers.etag, '"abc"');
    });
    await served(page({ etag: 'W/"abc"' }), async ({ http1 }) => {
      assert.equal((await fetchRaw(http1, 'gzip')).headers.etag, 'W/"abc"');
    });
  });

  for (const [what, app] of [
    ['event streams', page({ 'content-type': 'text/event-stream; charset=utf-8' })],
    ['images', page({ 'content-type': 'image/png' })],
    ['responses without a type', page({ 'content-type': '' })],
    ['what is encoded already', page({ 'content-encoding': 'x-own' })],
    ['no-transform', page({ 'cache-control': 'public, no-transform' })],
    ['short bodies', page({ 'content-length': 5 }, 'short')],
    ['partial content', page({ 'content-range': 'bytes 0-9/100' }, 'x'.repeat(600), 206)],
    ['304', page({ etag: '"1"' }, '', 304)],
    ['204', page({}, '', 204)],
  ] as const) {
    it(`does not change ${what}`, async () => {
      await served(app, async ({ http1 }) => {
        const reply = await fetchRaw(http1, 'gzip, br');
        assert.ok([undefined, 'x-own'].includes(reply.headers['content-encoding']));
        assert.notEqual(reply.headers.etag, 'W/"1"');
      });
    });
  }

  it('answers HEAD with the head of the GET response, without a length (RFC 9110 §8.6)', async () => {
    await served(page({ 'content-length': LONG.length }), async ({ http1 }) => {
      const reply = await fetchRaw(http1, 'gzip', 'HEAD');
      assert.equal(reply.headers['content-length'], undefined);
      assert.equal(reply.headers['content-encoding'], 'gzip');
      assert.equal(reply.headers.vary, 'Accept-Encoding');
    });
  });

  it('gives a 304 the Vary of the response that it stands for (RFC 9110 §15.4.5)', async () => {
    for (const [type, vary] of [
      [null, 'Accept-Encoding'],
      ['text/html', 'Accept-Encoding'],
      ['image/png', undefined],
    ] as const) {
      const fields = { etag: '"1"', ...(type === null ? {} : { 'content-type': type }) };
      const app: http.RequestListener = (_, response) => {
        response.writeHead(304, fields).end();
      };
      await served(app, async ({ http1 }) => {
        assert.equal((await fetchRaw(http1, 'gzip')).headers.vary, vary, type ?? '');
      });
    }
  });

  it('flushes written data at once', async () => {
    let finish: () => void = () => {};
    const app: http.RequestListener = (_, response) => {
      response.writeHead(200, { 'content-type': 'text/plain' });
      response.write('first');
      finish = () => response.end('second');
    };
    await served(app, async ({ http1 }) => {
      const request = http.get({
        host: '127.0.0.1',
        port: http1,
        headers: { 'accept-encoding': 'gzip' },
      });
      const [response]: http.IncomingMessage[] = await once(request, 'response');
      assert.ok(response);
      const plain = response.pipe(zlib.createGunzip());
      assert.equal(String((await once(plain, 'data'))[0]), 'first');
      finish();
      assert.equal(String((await once(plain, 'data'))[0]), 'second');
      await once(plain, 'end');
    });
  });

  it('aborts the response to the client when the upstream dies in the middle', async () => {
    const app: http.RequestListener = (_, response) => {
      response.writeHead(200, { 'content-type': 'text/plain' });
      response.write('half', () => response.destroy());
    };
    await served(app, async ({ http1 }) => {
      await assert.rejects(fetchRaw(http1, 'gzip'), { code: 'ECONNRESET' });
    });
  });

  it('offers zstd only if Node supports it', async () => {
    await served(
      page({}),
      async ({ http1 }) => {
        const reply = await fetchRaw(http1, 'zstd, gzip');
        const expected = 'createZstdCompress' in zlib ? 'zstd' : 'gzip';
        assert.equal(reply.headers['content-encoding'], expected);
      },
      ['zstd', 'gzip'],
    );
  });
});
