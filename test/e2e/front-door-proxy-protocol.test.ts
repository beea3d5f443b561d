import assert from 'node:assert/strict';
import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import { connect as connectHttp2 } from 'node:http2';
import { connect, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, it, type TestContext } from 'node:test';
import { connect as connectTls } from 'node:tls';
import { promisify } from 'node:util';
import { freePort } from '../support/free-port.ts';
import { startGateway, startLibraryGateway, type TestGateway } from '../support/gateway.ts';
import { parseHubfile } from '../support/installed-package.ts';
import { programPath } from '../support/program.ts';

const run = promisify(execFile);
const HEADER = 'PROXY TCP4 192.0.2.7 127.0.0.1 4711 443\r\n';
/** Binary, the same addresses. */
const HEADER_2 = Buffer.from('0d0a0d0a000d0a515549540a2111000cc00002077f000001126701bb', 'hex');
const WHO = 'respond "{remote_host} {client_ip} {scheme}"';

describe('PROXY protocol: the address in the header is the peer everywhere', () => {
  for (const [version, header] of [
    ['1', Buffer.from(HEADER, 'latin1')],
    ['2', HEADER_2],
  ] as const) {
    it(`version ${version} before HTTP/1.1, in one packet and byte by byte`, async (test) => {
      const { http } = await startSites(test);
      const request = 'GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n';
      const bytes = Buffer.concat([header, Buffer.from(request, 'latin1')]);
      const at = { port: http, host: '127.0.0.1' };
      for (const step of [bytes.length, header.length, header.length + 3, 1]) {
        assert.match(
          await talk(at, bytes, step),
          /^HTTP\/1\.1 200 [^]*192\.0\.2\.7 192\.0\.2\.7 http$/,
        );
      }
    });

    it(`version ${version} before TLS, for HTTP/1.1 and for each stream of HTTP/2`, async (test) => {
      const { https, gateway } = await startSites(test);
      const ca = await gateway.root();
      for (const step of [header.length, 1]) {
        const socket = await dial({ port: https, host: '127.0.0.1' });
        test.after(() => socket.destroy());
        await write(socket, header, step);
        const session = connectHttp2(`https://localhost:${https}`, {
          createConnection: () =>
            connectTls({ socket, servername: 'localhost', ca, ALPNProtocols: ['h2'] }),
        });
        for (let i = 0; i < 2; i += 1) {
          const stream = session.request({ ':path': '/' });
          let text = '';
          for await (const chunk of stream) text += String(chunk);
          assert.equal(text, '192.0.2.7 192.0.2.7 https');
        }
        session.close();
      }
      const plain = await dial({ port: https, host: '127.0.0.1' });
      plain.write(header);
      const socket = connectTls({ socket: plain, servername: 'localhost', ca });
      socket.write('GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n');
      let text = '';
      for await (const chunk of socket) text += String(chunk);
      assert.match(text, /192\.0\.2\.7 192\.0\.2\.7 https$/);
    });
  }

  it('the app receives it, and trusted_proxies checks it instead of the connection', async (test) => {
    const app = createServer((request, response) => {
      response.end(String(request.headers['x-forwarded-for']));
    });
    app.listen(0, '127.0.0.1');
    await once(app, 'listening');
    test.after(() => app.close());
    const address = app.address();
    assert.ok(address !== null && typeof address === 'object');
    const port = await freePort();
    const start = (trusted: string): Promise<TestGateway> =>
      startGateway(
        test,
        `http://localhost:${port} {\n\treverse_proxy 127.0.0.1:${address.port}\n}\n`,
        `\tservers {\n\t\tproxy_protocol 127.0.0.0/8\n\t\ttrusted_proxies static ${trusted}\n\t}\n`,
      );
    const request = `${HEADER}GET / HTTP/1.1\r\nHost: localhost\r\nX-Forwarded-For: 198.51.100.9\r\nConnection: close\r\n\r\n`;
    const at = { port, host: '127.0.0.1' };
    const first = await start('127.0.0.0/8');
    assert.match(await talk(at, Buffer.from(request)), /\r\n\r\n192\.0\.2\.7$/);
    await first.stop();
    await start('192.0.2.0/24');
    assert.match(await talk(at, Buffer.from(request)), /\r\n\r\n198\.51\.100\.9, 192\.0\.2\.7$/);
  });

  it('a header for the proxy’s own connection leaves the address unchanged', async (test) => {
    const { http } = await startSites(test);
    const request = 'GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n';
    const local = Buffer.from('0d0a0d0a000d0a515549540a20000000', 'hex');
    for (const header of [Buffer.from('PROXY UNKNOWN\r\n'), local]) {
      const bytes = Buffer.concat([header, Buffer.from(request)]);
      assert.match(
        await talk({ port: http, host: '127.0.0.1' }, bytes),
        /127\.0\.0\.1 127\.0\.0\.1 http$/,
      );
    }
  });
});

describe('PROXY protocol: the connections that begin with a header', () => {
  it('it is required from a configured range: a missing or malformed header closes the connection', async (test) => {
    const { http, https } = await startSites(test);
    const request = 'GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n';
    for (const start of [
      '',
      'PROXY TCP4 x y 1 2\r\n',
      'PROXY  ',
      '\r\n\r\n\0\r\nQUIT\nX'.repeat(2),
    ]) {
      for (const port of [http, https]) {
        assert.equal(await talk({ port, host: '127.0.0.1' }, Buffer.from(start + request)), '');
      }
    }
    const silent = await dial({ port: http, host: '127.0.0.1' });
    silent.end('PROXY TCP4 192.0.2.7');
    silent.resume();
    await once(silent, 'close');
  });

  it('the operator learns about a sender without a header, but not about connections without a byte', async (test) => {
    const [port, metricsPort] = [await freePort(), await freePort()];
    const { process } = await startGateway(
      test,
      `http://localhost:${port} {\n\t${WHO}\n}\n`,
      `\tmetrics 127.0.0.1:${metricsPort}\n\tservers {\n\t\tproxy_protocol 127.0.0.0/8\n\t}\n`,
    );
    const at = { port, host: '127.0.0.1' };
    const silent = await dial(at);
    silent.end();
    silent.resume();
    await once(silent, 'close');
    const before = process.output.length;
    await talk(at, Buffer.from('GET / HTTP/1.1\r\nHost: localhost\r\n\r\n'));
    const line = await process.lineWith(['"A connection without a valid PROXY protocol'], before);
    const { level, times, remoteAddress, error, fix } = JSON.parse(line) as Record<string, unknown>;
    assert.deepEqual(
      { level, times, error },
      {
        level: 'warn',
        times: 1,
        error: 'Invalid PROXY protocol header: the connection does not begin with a header',
      },
    );
    assert.match(String(remoteAddress), /127\.0\.0\.1$/);
    assert.match(String(fix), /proxy_protocol/);
    const metrics = await (await fetch(`http://127.0.0.1:${metricsPort}/metrics`)).text();
    assert.match(metrics, /turned_away_total\{reason="proxy_header"\} 1\n/);
  });

  it('a header that does not arrive closes the connection after read_header', async (test) => {
    const port = await freePort();
    await startGateway(
      test,
      `http://localhost:${port} {\n\t${WHO}\n}\n`,
      '\tservers {\n\t\tproxy_protocol 127.0.0.0/8\n\t\ttimeouts {\n\t\t\tread_header 50ms\n\t\t}\n\t}\n',
    );
    for (const start of ['', 'PROXY TCP4 ']) {
      const socket = await dial({ port, host: '127.0.0.1' });
      socket.write(start);
      socket.resume();
      await once(socket, 'close');
    }
  });

  it('from other addresses it is a request with an unknown method, over TLS too', async (test) => {
    const { http, https, gateway } = await startSites(test, '10.0.0.0/8');
    const request = 'GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n';
    const at = { port: http, host: '127.0.0.1' };
    assert.match(await talk(at, Buffer.from(HEADER + request)), /^HTTP\/1\.1 501 /);
    assert.match(
      await talk(at, Buffer.concat([HEADER_2, Buffer.from(request)])),
      /^HTTP\/1\.1 400 /,
    );
    const ca = await gateway.root();
    const socket = await dial({ port: https, host: '127.0.0.1' });
    socket.write(HEADER);
    const secure = connectTls({ socket, servername: 'localhost', ca });
    await assert.rejects(once(secure, 'secureConnect'));
  });

  it('the configuration in force decides', async (test) => {
    const port = await freePort();
    const sites = `http://localhost:${port} {\n\t${WHO}\n}\n`;
    const option = '\tservers {\n\t\tproxy_protocol 127.0.0.0/8\n\t}\n';
    const { gateway, reload, storage } = await startLibraryGateway(test, sites, option);
    const request = 'GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n';
    const at = { port, host: '127.0.0.1' };
    assert.equal(await talk(at, Buffer.from(request)), '');
    await gateway.reload(
      parseHubfile(`{\n\tadmin off\n\tstorage ${storage}\n}\n${sites}`, { env: {} }),
    );
    assert.match(await talk(at, Buffer.from(request)), /127\.0\.0\.1 127\.0\.0\.1 http$/);
    await reload(sites);
    assert.match(await talk(at, Buffer.from(HEADER + request)), /192\.0\.2\.7/);
  });

  it('the connections of a client are counted by the address in the header', async (test) => {
    const port = await freePort();
    await startGateway(
      test,
      `http://localhost:${port} {\n\t${WHO}\n}\n`,
      '\tservers {\n\t\tproxy_protocol 127.0.0.0/8\n\t\tmax_connections_per_client 1\n\t}\n',
    );
    const request = 'GET / HTTP/1.1\r\nHost: localhost\r\n\r\n';
    const first = await dial({ port, host: '127.0.0.1' });
    test.after(() => first.destroy());
    first.write(HEADER + request);
    await once(first, 'data');
    assert.equal(await talk({ port, host: '127.0.0.1' }, Buffer.from(HEADER + request)), '');
    const other = await dial({ port, host: '127.0.0.1' });
    test.after(() => other.destroy());
    other.write(HEADER.replace('192.0.2.7', '192.0.2.8') + request);
    assert.match(String(await once(other, 'data')), /192\.0\.2\.8/);
  });
});

describe('PROXY protocol: third-party senders', () => {
  it('curl --haproxy-protocol, over HTTP/1.1, TLS and HTTP/2', async (test) => {
    const { http, https, gateway } = await startSites(test);
    const curl = async (...flags: string[]): Promise<string> =>
      (await run('curl', ['-sS', '--haproxy-protocol', '--cacert', gateway.rootFile, ...flags]))
        .stdout;
    assert.equal(await curl(`http://localhost:${http}/`), '127.0.0.1 127.0.0.1 http');
    for (const version of ['--http1.1', '--http2']) {
      assert.equal(await curl(version, `https://localhost:${https}/`), '127.0.0.1 127.0.0.1 https');
    }
  });

  for (const [version, send] of [
    ['1', 'send-proxy'],
    ['2', 'send-proxy-v2 proxy-v2-options ssl,unique-id,crc32c'],
  ] as const) {
    it(`haproxy, version ${version}, before the gateway's own TLS`, async (test) => {
      const haproxy = programPath(test, 'haproxy');
      if (haproxy === null) return;
      const { http, https, gateway } = await startSites(test);
      const [front, secureFront] = [await freePort(), await freePort()];
      await startHaproxy(test, haproxy, [
        [front, http, send],
        [secureFront, https, send],
      ]);
      const curl = async (...flags: string[]): Promise<string> =>
        // Its address as haproxy sees it is one that no other sender here has.
        (
          await run('curl', [
            '-sS',
            '--interface',
            '127.0.0.9',
            '--cacert',
            gateway.rootFile,
            ...flags,
          ])
        ).stdout;
      assert.equal(
        await curl('-H', `Host: localhost:${http}`, `http://127.0.0.1:${front}/`),
        '127.0.0.9 127.0.0.9 http',
      );
      for (const flag of ['--http1.1', '--http2']) {
        const url = `https://localhost:${https}/`;
        const via = `localhost:${https}:127.0.0.1:${secureFront}`;
        assert.equal(await curl(flag, '--connect-to', via, url), '127.0.0.9 127.0.0.9 https');
      }
    });
  }
});

interface Sites {
  readonly http: number;
  readonly https: number;
  readonly gateway: TestGateway;
}

async function startSites(test: TestContext, ranges = '127.0.0.0/8'): Promise<Sites> {
  const [http, https] = [await freePort(), await freePort()];
  const gateway = await startGateway(
    test,
    `http://localhost:${http} {\n\t${WHO}\n}\nhttps://localhost:${https} {\n\ttls internal\n\t${WHO}\n}\n`,
    `\tauto_https disable_redirects\n\tservers {\n\t\tproxy_protocol ${ranges}\n\t}\n`,
  );
  return { http, https, gateway };
}

/** Sends bytes in steps of so many and reads to the end; nothing when the connection is cut. */
async function talk(
  at: { readonly port: number; readonly host: string },
  bytes: Buffer,
  step = bytes.length,
): Promise<string> {
  const socket = await dial(at);
  let text = '';
  socket.on('data', (chunk: Buffer) => (text += chunk.toString('latin1')));
  const closed = once(socket, 'close');
  await write(socket, bytes, step);
  await closed;
  return text;
}

async function dial(at: { readonly port: number; readonly host: string }): Promise<Socket> {
  const socket = connect(at);
  socket.setNoDelay(true);
  await once(socket, 'connect');
  // A connection that is cut may be reset.
  socket.on('error', () => {});
  return socket;
}

async function write(socket: Socket, bytes: Buffer, step: number): Promise<void> {
  for (let at = 0; at < bytes.length && socket.writable; at += step) {
    await new Promise<void>((resolve) => {
      socket.write(bytes.subarray(at, at + step), () => resolve());
    });
    // Lets the gateway, in this same process, read what has been written.
    await new Promise((resolve) => setImmediate(resolve));
  }
}

async function startHaproxy(
  test: TestContext,
  program: string,
  fronts: readonly (readonly [front: number, back: number, send: string])[],
): Promise<void> {
  const directory = await mkdtemp(join(tmpdir(), 'hubgate-haproxy-'));
  const file = join(directory, 'haproxy.cfg');
  const sections = fronts.map(
    ([front, back, send]) =>
      `listen from-${front}\n\tbind 127.0.0.1:${front}\n\tserver gateway 127.0.0.1:${back} ${send}\n`,
  );
  await writeFile(
    file,
    `global\n\tmaxconn 100\ndefaults\n\tmode tcp\n\ttimeout connect 10s\n\ttimeout client 30s\n\ttimeout server 30s\n${sections.join('')}`,
  );
  const child = spawn(program, ['-db', '-f', file], { stdio: ['ignore', 'ignore', 'inherit'] });
  test.after(async () => {
    if (child.exitCode === null) {
      child.kill('SIGKILL');
      await once(child, 'exit');
    }
    await rm(directory, { recursive: true, force: true });
  });
  for (const [front] of fronts) await untilOpen(front, child.exitCode === null);
}

/** Resolves when something listens on a port of loopback. */
async function untilOpen(port: number, isRunning: boolean): Promise<void> {
  assert.ok(isRunning, 'haproxy has ended');
  for (;;) {
    const socket = connect(port, '127.0.0.1');
    const [event] = await Promise.race([
      once(socket, 'connect').then(() => ['connect']),
      once(socket, 'error').then(() => ['error']),
    ]).catch(() => ['error']);
    socket.destroy();
    if (event === 'connect') return;
  }
}
