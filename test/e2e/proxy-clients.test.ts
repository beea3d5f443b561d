import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { once } from 'node:events';
import { createServer, type RequestListener } from 'node:http';
import { Readable } from 'node:stream';
import { describe, it, type TestContext } from 'node:test';
import { promisify } from 'node:util';
import { Agent, request } from 'undici';
import { freePort } from '../support/free-port.ts';
import { startGateway } from '../support/gateway.ts';

const run = promisify(execFile);

/** An app that says what it received, with the odd things that apps do. */
const app: RequestListener = (incoming, response) => {
  const chunks: Buffer[] = [];
  incoming.on('data', (chunk: Buffer) => chunks.push(chunk));
  incoming.on('end', () => {
    if (incoming.url === '/cached') {
      response.writeHead(304, { etag: '"1"' }).end();
      return;
    }
    response.writeEarlyHints({ link: '</style.css>; rel=preload' });
    response.writeHead(200, [
      ...['Set-Cookie', 'a=1', 'Set-Cookie', 'b=2', 'X-Case', 'Kept'],
      ...(incoming.method === 'HEAD' ? [] : ['Trailer', 'X-Sum']),
    ]);
    const body = Buffer.concat(chunks).toString();
    response.write(
      JSON.stringify({
        method: incoming.method,
        url: incoming.url,
        headers: incoming.headers,
        body,
      }),
    );
    if (incoming.method !== 'HEAD') response.addTrailers({ 'X-Sum': String(body.length) });
    response.end();
  });
};

describe('the proxy with third-party clients', () => {
  it('curl, over HTTP/1.1 and HTTP/2', async (test) => {
    const { port, rootFile } = await start(test);
    for (const version of ['--http1.1', '--http2']) {
      const curl = async (path: string, ...flags: string[]): Promise<string> => {
        const { stdout } = await run('curl', [
          ...[
            '-sS',
            '-m',
            '20',
            '--cacert',
            rootFile,
            version,
            ...flags,
            `https://localhost:${port}${path}`,
          ],
        ]);
        return stdout;
      };
      const posted = await curl(
        '/a%20b?c=d',
        '-i',
        '-X',
        'DELETE',
        '-d',
        'the body',
        '-H',
        'X-Forwarded-For: 6.6.6.6',
      );
      assert.match(posted, /^HTTP\/[\d.]+ 103[^]*<\/style\.css>/);
      assert.match(posted, /set-cookie: a=1\r\nset-cookie: b=2\r\n/i);
      assert.match(posted, /x-sum: 8/i);
      const [, json = ''] = /(\{.*\})/.exec(posted) ?? [];
      const { method, url, headers, body } = JSON.parse(json);
      assert.deepEqual([method, url, body], ['DELETE', '/a%20b?c=d', 'the body']);
      assert.equal(headers.host, `localhost:${port}`);
      assert.equal(headers['x-forwarded-proto'], 'https');
      assert.match(headers['x-forwarded-for'], /^(?:127\.0\.0\.1|::1)$/);
      assert.match(await curl('/cached', '-i'), /^HTTP\/[\d.]+ 304 /);
      assert.match(await curl('/', '-I'), /^HTTP\/[\d.]+ (?:103|200) /);
    }
  });

  it('undici, with a streamed body and pipelined keep-alive', async (test) => {
    const { port, root } = await start(test);
    const dispatcher = new Agent({ connect: { ca: await root() }, pipelining: 4, connections: 2 });
    test.after(() => dispatcher.destroy());
    const answers = await Promise.all(
      Array.from({ length: 40 }, async (_, index) => {
        const method = index % 2 === 0 ? 'PUT' : 'POST';
        const { statusCode, body, trailers } = await request(`https://localhost:${port}/${index}`, {
          dispatcher,
          method,
          body: Readable.from([Buffer.from(`body ${index}`), Buffer.from(' in two parts')]),
        });
        const received = JSON.parse(await body.text());
        assert.equal(statusCode, 200);
        assert.equal(trailers['x-sum'], String(received.body.length));
        return [received.url, received.body];
      }),
    );
    assert.deepEqual(
      answers,
      Array.from({ length: 40 }, (_, index) => [`/${index}`, `body ${index} in two parts`]),
    );
  });
});

async function start(
  test: TestContext,
): Promise<{ port: number; rootFile: string; root(): Promise<string> }> {
  const server = createServer(app);
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  test.after(() => {
    server.closeAllConnections();
    server.close();
  });
  const address = server.address();
  if (address === null || typeof address === 'string') throw new Error('no port');
  const port = await freePort();
  const { rootFile, root } = await startGateway(
    test,
    `https://localhost:${port} {\n\ttls internal\n\treverse_proxy 127.0.0.1:${address.port}\n}\n`,
  );
  return { port, rootFile, root };
}
