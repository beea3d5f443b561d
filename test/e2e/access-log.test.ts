import assert from 'node:assert/strict';
import { once } from 'node:events';
import { mkdtemp, readFile, stat, writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import http2 from 'node:http2';
import { get } from 'node:https';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { freePort } from '../support/free-port.ts';
import { cli, startProcess } from '../support/process.ts';
import { removeWith } from '../support/temporary-directory.ts';

/** Bytes of the content of a response, which may be cut off. */
async function bytesOverHttp1(port: number, path: string): Promise<number> {
  // The response of the app to `/cut` is not encoded, so its length shows that it is cut off.
  const headers = path === '/page' ? { 'accept-encoding': 'gzip' } : {};
  const request = get({ host: 'localhost', port, path, headers, rejectUnauthorized: false });
  const [response]: AsyncIterable<Buffer>[] = await once(request, 'response');
  return count(response ?? assert.fail());
}

async function bytesOverHttp2(port: number, path: string): Promise<number> {
  const session = http2.connect(`https://localhost:${port}`, { rejectUnauthorized: false });
  const coding = path === '/page' ? { 'accept-encoding': 'gzip' } : {};
  const bytes = await count(session.request({ ':path': path, ...coding }));
  session.destroy();
  return bytes;
}

async function count(content: AsyncIterable<Buffer>): Promise<number> {
  let bytes = 0;
  try {
    for await (const piece of content) bytes += piece.length;
  } catch {
    // It was cut off.
  }
  return bytes;
}

describe('access log', () => {
  it('writes a line for each exchange, without credentials', async (test) => {
    const directory = await mkdtemp(join(tmpdir(), 'hubgate-access-'));
    removeWith(test, directory);
    const port = await freePort();
    const [file, hubfile] = [join(directory, 'access.log'), join(directory, 'Hubfile')];
    await writeFile(
      hubfile,
      `{\n\tstorage ${directory}\n\tadmin off\n}\nhttp://localhost:${port} {\n\tlog {\n\t\toutput file ${file}\n\t\tformat json\n\t}\n\tlog_skip /skipped/*\n\terror /skipped/broken 503\n\terror /broken 503\n\trespond ok\n}\n`,
    );
    const gateway = startProcess(test, [cli, 'run', '--config', hubfile]);
    await gateway.says(`:${port}`);
    const url = `http://localhost:${port}`;
    await fetch(`${url}/a?x=1&access_token=top-secret&y=2`, {
      headers: {
        authorization: 'Bearer top-secret',
        cookie: 'session=top-secret',
        'x-plain': 'shown',
      },
    });
    await fetch(`${url}/b?%61uthorization=top-secret&Token=top-secret&=&a&b+c=d?e`);
    await fetch(`${url}/skipped/x`);
    await fetch(`${url}/skipped/broken`);
    await fetch(`${url}/broken`);
    assert.equal(await gateway.end('SIGTERM'), 0);
    const text = await readFile(file, 'utf8');
    assert.equal(text.includes('top-secret'), false);
    const lines = text
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line));
    assert.deepEqual(
      lines.map((line) => [
        line['level'],
        line['http.request.method'],
        line['url.path'],
        line['url.query'],
        line['http.response.status_code'],
        line['http.response.body.size'],
        line['http.request.header.x-plain'],
      ]),
      [
        ['info', 'GET', '/a', 'x=1&access_token=REDACTED&y=2', 200, 2, ['shown']],
        [
          'info',
          'GET',
          '/b',
          '%61uthorization=REDACTED&Token=REDACTED&=&a&b+c=d?e',
          200,
          2,
          undefined,
        ],
        ['error', 'GET', '/broken', undefined, 503, 20, undefined],
      ],
    );
    assert.deepEqual(lines[0]['http.request.header.authorization'], ['REDACTED']);
    assert.match(lines[0].trace_id, /^[0-9a-f]{32}$/);
    assert.equal(lines[0]['network.protocol.version'], '1.1');
    assert.equal(lines[0]['client.address'], '127.0.0.1');
    assert.equal((await stat(file)).mode & 0o777, 0o600);
  });

  it('has the bytes that the client has got, also behind encode and of what is cut off', async (test) => {
    const directory = await mkdtemp(join(tmpdir(), 'hubgate-access-'));
    removeWith(test, directory);
    const page = 'a line of the page\n'.repeat(300);
    const app = createServer((request, response) => {
      response.setHeader('Content-Type', 'text/plain');
      if (request.url === '/page') response.end(page);
      else {
        // It ends in the middle of what it has announced.
        response.setHeader('Content-Length', 1_000_000);
        response.write('x'.repeat(300_000), () => setTimeout(() => response.destroy(), 50));
      }
    });
    app.listen(0, '127.0.0.1');
    await once(app, 'listening');
    test.after(() => app.close());
    const { port: appPort } = app.address() as AddressInfo;
    const port = await freePort();
    const [file, hubfile] = [join(directory, 'access.log'), join(directory, 'Hubfile')];
    const log = `log {\n\t\toutput file ${file}\n\t\tformat json\n\t}`;
    await writeFile(
      hubfile,
      `{\n\tstorage ${directory}\n\tadmin off\n\tauto_https disable_redirects\n}\nhttps://localhost:${port} {\n\ttls internal\n\t${log}\n\tencode gzip\n\treverse_proxy 127.0.0.1:${appPort}\n}\n`,
    );
    const gateway = startProcess(test, [cli, 'run', '--config', hubfile]);
    await gateway.says(`:${port}`);
    const received: number[] = [];
    for (const path of ['/page', '/cut']) {
      for (const ask of [bytesOverHttp1, bytesOverHttp2]) received.push(await ask(port, path));
    }
    assert.equal(await gateway.end('SIGTERM'), 0);
    const lines = (await readFile(file, 'utf8'))
      .trim()
      .split('\n')
      .map((line) => Number(JSON.parse(line)['http.response.body.size']));
    assert.equal(lines.length, received.length);
    assert.deepEqual(lines.slice(0, 2), received.slice(0, 2));
    assert.ok(received.every((bytes) => bytes > 0));
    // The end of what was sent may be lost with the connection.
    for (const [index, bytes] of lines.entries()) {
      assert.ok(bytes >= (received[index] ?? 0) && bytes <= 300_000, `${bytes}`);
    }
  });

  it('has the bytes of a response that is logged while the system takes it', async (test) => {
    const directory = await mkdtemp(join(tmpdir(), 'hubgate-access-'));
    removeWith(test, directory);
    const port = await freePort();
    const [file, hubfile] = [join(directory, 'access.log'), join(directory, 'Hubfile')];
    const limit =
      'rate_limit {\n\t\tzone a {\n\t\t\tkey all\n\t\t\tevents 2\n\t\t\twindow 1h\n\t\t}\n\t}';
    await writeFile(
      hubfile,
      `{\n\tstorage ${directory}\n\tadmin off\n}\nhttp://localhost:${port} {\n\tlog {\n\t\toutput file ${file}\n\t\tformat json\n\t}\n\t${limit}\n\trespond "hello"\n}\n`,
    );
    const gateway = startProcess(test, [cli, 'run', '--config', hubfile]);
    await gateway.says(`:${port}`);
    const received: number[] = [];
    for (let count = 0; count < 3; count += 1) {
      const answer = await fetch(`http://localhost:${port}/`);
      received.push((await answer.arrayBuffer()).byteLength);
    }
    assert.equal(await gateway.end('SIGTERM'), 0);
    const lines = (await readFile(file, 'utf8')).trim().split('\n');
    const logged = lines.map((line) => JSON.parse(line)['http.response.body.size']);
    assert.deepEqual(logged, received);
  });

  it('has the method and the host that the client sent, whatever directives change', async (test) => {
    const directory = await mkdtemp(join(tmpdir(), 'hubgate-access-'));
    removeWith(test, directory);
    const port = await freePort();
    const [file, hubfile] = [join(directory, 'access.log'), join(directory, 'Hubfile')];
    await writeFile(
      hubfile,
      `{\n\tstorage ${directory}\n\tadmin off\n}\nhttp://localhost:${port} {\n\tlog {\n\t\toutput file ${file}\n\t\tformat json\n\t}\n\tmethod PUT\n\trequest_header Host internal.example\n\trespond "{method} {host}"\n}\n`,
    );
    const gateway = startProcess(test, [cli, 'run', '--config', hubfile]);
    await gateway.says(`:${port}`);
    const answer = await fetch(`http://localhost:${port}/`);
    assert.equal(await answer.text(), 'PUT internal.example');
    assert.equal(await gateway.end('SIGTERM'), 0);
    const line = JSON.parse(await readFile(file, 'utf8'));
    assert.equal(line['http.request.method'], 'GET');
    assert.equal(line['server.address'], `localhost:${port}`);
  });
});
