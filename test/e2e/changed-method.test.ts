import assert from 'node:assert/strict';
import { once } from 'node:events';
import { mkdtemp, writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import { connect as connectHttp2 } from 'node:http2';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, it, type TestContext } from 'node:test';
import { freePort } from '../support/free-port.ts';
import { startGateway } from '../support/gateway.ts';
import { removeWith } from '../support/temporary-directory.ts';

/** A directory with `a.txt`, and an app that declares the length of `hello`. */
async function parts(test: TestContext): Promise<{ root: string; app: string; methods: string[] }> {
  const root = await mkdtemp(join(tmpdir(), 'hubgate-method-'));
  removeWith(test, root);
  await writeFile(join(root, 'a.txt'), 'a line of text\n'.repeat(200));
  const methods: string[] = [];
  const server = createServer(({ method, url }, response) => {
    methods.push(method ?? '');
    const coding = url === '/coded' ? { 'Content-Encoding': 'gzip' } : {};
    response.writeHead(200, { 'Content-Type': 'text/plain', 'Content-Length': '5', ...coding });
    response.end('hello');
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  test.after(() => server.close());
  const address = server.address();
  assert.ok(address !== null && typeof address === 'object');
  return { root, app: `127.0.0.1:${address.port}`, methods };
}

/** The responses to two requests on one connection, which shows that the client has found the end of the first. */
async function twice(port: number, head: string): Promise<string[]> {
  const socket = connect(port, 'localhost').setEncoding('latin1');
  socket.write(`${head}\r\nHost: localhost:${port}\r\n\r\n`);
  socket.write('GET /end HTTP/1.1\r\nHost: other\r\nConnection: close\r\n\r\n');
  let text = '';
  for await (const piece of socket) text += String(piece);
  return text.split(/(?=^HTTP\/1\.1 )/m);
}

async function overHttp2(port: number, path: string) {
  const session = connectHttp2(`https://localhost:${port}`, { rejectUnauthorized: false });
  const stream = session.request({ ':path': path, 'accept-encoding': 'gzip' });
  let bytes = 0;
  stream.on('data', (piece: Buffer) => (bytes += piece.length)).on('error', () => {});
  let fields: Record<string, unknown> = {};
  stream.on('response', (head) => (fields = { ...head }));
  await once(stream, 'close');
  session.close();
  const { ':status': status, 'content-length': length } = fields;
  return { status, length, bytes, code: stream.rstCode };
}

describe('a GET that a directive has changed to HEAD', () => {
  const cases: Readonly<Record<string, (root: string, app: string) => string>> = {
    'is answered by file_server': (root) => `method HEAD\nroot * ${root}\nfile_server`,
    'is answered by file_server behind encode': (root) =>
      `method HEAD\nencode gzip\nroot * ${root}\nfile_server`,
    'is answered by file_server behind cache': (root) =>
      `route {\ncache\nmethod HEAD\nroot * ${root}\nfile_server\n}`,
    'goes to an app': (_root, app) => `method HEAD\nreverse_proxy ${app}`,
    'goes to an app by an option of the proxy': (_root, app) =>
      `reverse_proxy ${app} {\nmethod HEAD\n}`,
    'goes to an app behind encode': (_root, app) =>
      `encode {\nminimum_length 1\n}\nreverse_proxy ${app} {\nmethod HEAD\n}`,
    'goes to an app behind cache': (_root, app) =>
      `cache {\nttl 1m\n}\nreverse_proxy ${app} {\nmethod HEAD\n}`,
    'gets the stored response': (_root, app) =>
      `route {\nmethod /a.txt HEAD\ncache {\nttl 1m\n}\nreverse_proxy ${app}\n}`,
    'is answered by routes of handle_response': (root, app) =>
      `reverse_proxy ${app} {\n@all status 2xx\nhandle_response @all {\nmethod HEAD\nroot * ${root}\nfile_server\n}\n}`,
    'gets the response of the app by copy_response': (_root, app) =>
      `reverse_proxy ${app} {\nmethod HEAD\n@all status 2xx\nhandle_response @all {\ncopy_response\n}\n}`,
    'is answered by routes of intercept': (root) =>
      `method HEAD\nintercept {\n@gone status 404\nhandle_response @gone {\nroot * ${root}\nfile_server\n}\n}\nrespond 404`,
  };
  for (const [what, directives] of Object.entries(cases)) {
    it(`${what}, and the response is empty and complete`, async (test) => {
      const { root, app } = await parts(test);
      const [port, tlsPort] = [await freePort(), await freePort()];
      const rules = `discovery off\n${directives(root, app)}`;
      await startGateway(
        test,
        `http://localhost:${port} {\n${rules}\n}
        https://localhost:${tlsPort} {\ntls internal\n${rules}\n}
        http://other:${port} {\nrespond end\n}\n`,
      );
      for (let round = 0; round < 2; round += 1) {
        const [first = '', second = ''] = await twice(port, 'GET /a.txt HTTP/1.1');
        assert.match(first, /^HTTP\/1\.1 200 /);
        assert.match(first, /^content-length: 0\r$/im);
        assert.match(first, /\r\n\r\n$/);
        assert.match(second, /\r\n\r\nend$/);
        const { status, length, bytes, code } = await overHttp2(tlsPort, '/a.txt');
        assert.deepEqual(
          { status, length, bytes, code },
          { status: 200, length: '0', bytes: 0, code: 0 },
        );
      }
      // A cache that has stored the empty response has no other length.
      if (what === 'goes to an app behind cache') return;
      const [head = ''] = await twice(port, 'HEAD /a.txt HTTP/1.1');
      assert.match(head, /^content-length: (?:3000|5)\r$/im, 'the length for a HEAD of the client');
    });
  }

  it('is no longer encoded, because nothing decodes an empty content', async (test) => {
    const { app, methods } = await parts(test);
    const port = await freePort();
    await startGateway(test, `http://localhost:${port} {\nmethod HEAD\nreverse_proxy ${app}\n}\n`);
    const response = await fetch(`http://localhost:${port}/coded`);
    assert.deepEqual([response.status, await response.text()], [200, '']);
    assert.equal(response.headers.get('content-encoding'), null);
    assert.deepEqual(methods, ['HEAD']);
  });
});
