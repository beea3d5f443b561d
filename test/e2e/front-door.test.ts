import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { once } from 'node:events';
import { createServer, type RequestListener, type Server } from 'node:http';
import { connect as connectHttp2, constants } from 'node:http2';
import { connect } from 'node:net';
import { join } from 'node:path';
import { describe, it, type TestContext } from 'node:test';
import { connect as connectTls, type PeerCertificate } from 'node:tls';
import { promisify } from 'node:util';
import { WebSocket, WebSocketServer } from 'ws';
import { freePort } from '../support/free-port.ts';
import { startGateway, startLibraryGateway } from '../support/gateway.ts';
import { send } from '../support/http.ts';
import { signToken } from '../support/hub-server.ts';
import { cli, root, TestProcess } from '../support/process.ts';
import { temporaryDirectory } from '../support/temporary-directory.ts';

const run = promisify(execFile);
const freePorts = async () =>
  [await freePort(), await freePort(), await freePort(), await freePort()] as const;

describe('front door: connections', () => {
  // A process that is restarted, or busy for a moment, accepts nobody for that long.
  for (const workers of [1, 2]) {
    it(`wait in the system while the gateway is busy, a thousand of them, with workers ${workers}`, {
      timeout: 60_000,
    }, async (test) => {
      const most = Number(readFileSync('/proc/sys/net/core/somaxconn', 'utf8'));
      const directory = await temporaryDirectory(test);
      const port = await freePort();
      const hubfile = join(directory, 'Hubfile');
      await writeFile(
        hubfile,
        `{\n\tadmin off\n\tstorage ${directory}\n\tworkers ${workers}\n}\nhttp://localhost:${port} {\n\trespond ok\n}\n`,
      );
      const args = [cli, 'run', '--config', hubfile];
      const gateway = new TestProcess(args, {}, root, { detached: true });
      const group = -(gateway.child.pid ?? 0);
      test.after(async () => {
        process.kill(group, 'SIGKILL');
        await gateway.exited();
      });
      await gateway.says('Listening on');
      process.kill(group, 'SIGSTOP');
      const clients = Array.from({ length: Math.min(1_000, most) }, () =>
        connect(port, '127.0.0.1').on('error', () => {}),
      );
      test.after(() => clients.forEach((client) => client.destroy()));
      await Promise.all(clients.map((client) => once(client, 'connect')));
    });
  }
});

describe('front door: TLS with the local authority', () => {
  it('gives each name a certificate that is signed by the root', async (test) => {
    const port = await freePort();
    const { rootFile, root } = await startGateway(
      test,
      `https://localhost:${port}, https://*.localhost:${port}, https://127.0.0.1:${port} {\n\ttls internal\n\trespond "{host} {scheme}"\n}\n`,
    );
    const curl = async (url: string, ...flags: string[]): Promise<string> =>
      (await run('curl', ['-sS', '--cacert', rootFile, ...flags, url])).stdout;
    assert.equal(await curl(`https://localhost:${port}/`), 'localhost https');
    const resolve = `a.localhost:${port}:127.0.0.1`;
    const sub = await curl(`https://a.localhost:${port}/`, '--resolve', resolve);
    assert.equal(sub, 'a.localhost https');
    // curl sends no server name to an address.
    assert.equal(await curl(`https://127.0.0.1:${port}/`), '127.0.0.1 https');
    const certificate = await peerCertificate(port, 'a.localhost', await root());
    assert.equal(certificate.subjectaltname, 'DNS:a.localhost');
  });

  it('refuses a handshake for a name that no site has, and continues to serve', async (test) => {
    const port = await freePort();
    const { root } = await startGateway(
      test,
      `https://localhost:${port} {\n\ttls internal\n\trespond ok\n}\n`,
    );
    const ca = await root();
    await assert.rejects(peerCertificate(port, 'other.example', ca));
    assert.equal((await peerCertificate(port, 'localhost', ca)).subjectaltname, 'DNS:localhost');
  });

  it('speaks HTTP/1.1 and HTTP/2 on one port', async (test) => {
    const port = await freePort();
    const { rootFile } = await startGateway(
      test,
      `https://localhost:${port} {\n\ttls internal\n\trespond ok\n}\n`,
    );
    for (const [flag, version] of [
      ['--http1.1', '1.1'],
      ['--http2', '2'],
    ] as const) {
      const { stdout } = await run('curl', [
        ...['-sS', '--cacert', rootFile, flag, '-o', '/dev/null', '-w', '%{http_version}'],
        `https://localhost:${port}/`,
      ]);
      assert.equal(stdout, version);
    }
  });

  it('tells a client that speaks HTTP without TLS what is wrong, as Caddy does', async (test) => {
    const port = await freePort();
    await startGateway(test, `https://localhost:${port} {\n\ttls internal\n\trespond ok\n}\n`);
    for (const body of ['', 'x'.repeat(1024 * 1024)]) {
      const answer = await send(`http://localhost:${port}/`, { method: 'POST', body });
      assert.equal(answer.status, 400);
      assert.equal(answer.body, 'Client sent an HTTP request to an HTTPS server.\n');
      assert.match(String(answer.headers.date), / GMT$/);
    }
  });

  it('reports the real client address, with and without trusted proxies', async (test) => {
    for (const servers of ['', '\tservers {\n\t\ttrusted_proxies static 127.0.0.1/32 ::1\n\t}\n']) {
      const port = await freePort();
      const site = `http://localhost:${port} {\n\trespond "{client_ip} {remote_host}"\n}\n`;
      await startGateway(test, site, servers);
      // All interfaces are listened on, so IPv4 comes in by an IPv6 socket.
      const answer = await send(`http://127.0.0.1:${port}/`, { headers: [['Host', 'localhost']] });
      assert.equal(answer.body, '127.0.0.1 127.0.0.1');
    }
  });

  it('passes client_ip_headers on to the app only from trusted proxies', async (test) => {
    const app = await startUpstream(test, (request, response) => {
      const { 'cf-connecting-ip': connecting, 'x-real-ip': real } = request.headers;
      response.end(`${String(connecting)} ${String(real)}`);
    });
    const headers = [
      ['Host', 'localhost'],
      ['CF-Connecting-IP', '198.51.100.1'],
      ['X-Real-IP', '198.51.100.2'],
    ] as const;
    for (const [trust, expected] of [
      ['', 'undefined 198.51.100.2'],
      ['trusted_proxies static 192.0.2.0/24', 'undefined 198.51.100.2'],
      ['trusted_proxies static 127.0.0.1', '198.51.100.1 198.51.100.2'],
    ] as const) {
      const port = await freePort();
      await startGateway(
        test,
        `http://localhost:${port} {\n\treverse_proxy 127.0.0.1:${app.port}\n}\n`,
        `\tservers {\n\t\t${trust}\n\t\tclient_ip_headers CF-Connecting-IP\n\t}\n`,
      );
      const { body } = await send(`http://127.0.0.1:${port}/`, { headers });
      assert.equal(body, expected, trust);
    }
  });

  it('knows the client address although Connection names the fields that have it', async (test) => {
    const app = await startUpstream(test, (request, response) => {
      response.end(String(request.headers['x-forwarded-for']));
    });
    for (const name of ['X-Forwarded-For', 'CF-Connecting-IP']) {
      const port = await freePort();
      const site = `http://localhost:${port} {\n\t@app path /app\n\treverse_proxy @app 127.0.0.1:${app.port}\n\trespond {client_ip}\n}\n`;
      const trust = 'trusted_proxies static 127.0.0.1';
      await startGateway(
        test,
        site,
        `\tservers {\n\t\t${trust}\n\t\tclient_ip_headers ${name}\n\t}\n`,
      );
      const headers = [
        ['Host', 'localhost'],
        [name, '198.51.100.1'],
        ['Connection', `upgrade, ${name}`],
      ] as const;
      const { body } = await send(`http://127.0.0.1:${port}/`, { headers });
      assert.equal(body, '198.51.100.1');
      if (name !== 'X-Forwarded-For') continue;
      const forwarded = await send(`http://127.0.0.1:${port}/app`, { headers });
      assert.equal(forwarded.body, '198.51.100.1');
    }
  });

  it('redirects HTTP to HTTPS, with the path', async (test) => {
    const [https, http] = [await freePort(), await freePort()];
    await startGateway(
      test,
      'localhost {\n\ttls internal\n\trespond ok\n}\n',
      `\thttp_port ${http}\n\thttps_port ${https}\n`,
    );
    const response = await fetch(`http://localhost:${http}/a/b?c=d`, { redirect: 'manual' });
    assert.equal(response.status, 308);
    assert.equal(response.headers.get('location'), 'https://localhost/a/b?c=d');
  });

  it('redirects a name to the HTTPS port, else to its first port, and every name if a site has none', async (test) => {
    for (const [addresses, expected] of [
      [['https://'], 'https://a.example/x'],
      [[':8443'], 'https://a.example:8443/x'],
      [['a.example', ':8443'], 'https://a.example/x'],
      [['b.example', ':8443'], 'https://a.example:8443/x'],
      [[':8443', 'https://'], 'https://a.example/x'],
      [['a.example', 'a.example:8443'], 'https://a.example/x'],
      [['a.example:8443', 'a.example'], 'https://a.example/x'],
      [['a.example:8443', 'a.example:8444'], 'https://a.example:8443/x'],
    ] as const) {
      const [http, https, first, second] = await freePorts();
      const own = (text: string): string =>
        text.replace('8443', String(first)).replace('8444', String(second));
      const sites = addresses.map(
        (address) => `${own(address)} {\n\ttls internal\n\trespond ok\n}\n`,
      );
      const { stop } = await startLibraryGateway(
        test,
        sites.join(''),
        `\thttp_port ${http}\n\thttps_port ${https}\n`,
      );
      const origin = `http://127.0.0.1:${http}`;
      const answer = await send(`${origin}/x`, { headers: [['Host', 'a.example']] });
      assert.equal(answer.status, 308, addresses.join());
      assert.equal(answer.headers.location, own(expected));
      await stop();
    }
  });

  it('redirects the names of HTTPS sites before a site for any host, and after sites with the name', async (test) => {
    const [http, https] = await freePorts();
    await startLibraryGateway(
      test,
      `a.example, *.b.example {\n\ttls internal\n\trespond secure\n}
http://x.b.example {\n\trespond x\n}
http:// {\n\trespond any\n}
https:// {\n\ttls internal\n\trespond secure\n}\n`,
      `\thttp_port ${http}\n\thttps_port ${https}\n`,
    );
    const answers = await Promise.all(
      ['a.example', 'y.b.example', 'x.b.example', 'b.example', '127.0.0.1'].map((host) =>
        send(`http://127.0.0.1:${http}/q`, { headers: [['Host', host]] }),
      ),
    );
    assert.deepEqual(
      answers.map(({ status, headers, body }) => headers.location ?? `${status} ${body}`),
      ['https://a.example/q', 'https://y.b.example/q', '200 x', '200 any', '200 any'],
    );
  });

  it('does not redirect a request that names no host', async (test) => {
    const [http, https] = await freePorts();
    await startLibraryGateway(
      test,
      'https:// {\n\ttls internal\n\trespond ok\n}\n',
      `\thttp_port ${http}\n\thttps_port ${https}\n`,
    );
    const { stdout } = await run('curl', [
      ...[
        '-sS',
        '--http1.0',
        '-H',
        'Host:',
        '-w',
        '%{http_code} %{redirect_url}',
        '-o',
        '/dev/null',
      ],
      `http://127.0.0.1:${http}/x`,
    ]);
    assert.equal(stdout, '421 ');
  });
});

describe('front door: routing and proxy', () => {
  it('carries WebSockets over HTTP/1.1 to the app', async (test) => {
    const upstream = await startUpstream(test, (_request, response) => response.end());
    const sockets = new WebSocketServer({ server: upstream.server });
    test.after(() => sockets.close());
    sockets.on('connection', (socket) => socket.on('message', (data) => socket.send(data)));
    const port = await freePort();
    const { root } = await startGateway(
      test,
      `https://localhost:${port} {\n\ttls internal\n\treverse_proxy 127.0.0.1:${upstream.port}\n}\n`,
    );
    const client = new WebSocket(`wss://localhost:${port}/echo`, { ca: await root() });
    test.after(() => client.terminate());
    await once(client, 'open');
    client.send('hello');
    const [data] = await once(client, 'message');
    assert.equal(String(data), 'hello');
  });

  it('streams both ways over HTTP/2, and notifies the app when the client disconnects', async (test) => {
    let left: () => void = () => {};
    const appSawTheEnd = new Promise<void>((resolve) => {
      left = resolve;
    });
    const upstream = await startUpstream(test, (request, response) => {
      response.writeHead(200, { 'content-type': 'text/plain' });
      request.on('data', (chunk: Buffer) => response.write(chunk));
      response.on('close', left);
    });
    const port = await freePort();
    const { root } = await startGateway(
      test,
      `https://localhost:${port} {\n\ttls internal\n\treverse_proxy 127.0.0.1:${upstream.port}\n}\n`,
    );
    const session = connectHttp2(`https://localhost:${port}`, { ca: await root() });
    test.after(() => session.destroy());
    const stream = session.request({ ':method': 'POST', ':path': '/' }, { endStream: false });
    for (const text of ['one', 'two']) {
      stream.write(text);
      const [chunk] = await once(stream, 'data');
      assert.equal(String(chunk), text);
    }
    stream.close(constants.NGHTTP2_CANCEL);
    await appSawTheEnd;
  });

  it('sends 100 Continue when the app or the hub reads the body', async (test) => {
    const upstream = await startUpstream(test, (request, response) => request.pipe(response));
    const port = await freePort();
    const key = 'a key for this test, of 32 bytes and more';
    await startGateway(
      test,
      `http://localhost:${port} {\n\thub {\n\t\tissuer i {\n\t\t\tpublisher {\n\t\t\t\tjwt "${key}"\n\t\t\t}\n\t\t}\n\t\tanonymous\n\t\ttransport memory\n\t}\n\treverse_proxy 127.0.0.1:${upstream.port}\n}\n`,
    );
    const ask = async (path: string, ...more: string[]): Promise<string> => {
      // curl's patience is longer than its limit: without the 100 this fails.
      const { stdout } = await run('curl', [
        ...['-sS', '-i', '-m', '10', '--expect100-timeout', '60', '-H', 'Expect: 100-continue'],
        ...['-d', 'topic=a', ...more, `http://localhost:${port}${path}`],
      ]);
      return stdout;
    };
    assert.match(
      await ask('/echo'),
      /^HTTP\/1\.1 100 Continue\r\n\r\nHTTP\/1\.1 200 OK[^]*topic=a$/,
    );
    const aud = `http://localhost:${port}/.well-known/hub`;
    const token = await signToken(key, {
      iss: 'i',
      aud,
      authorization_details: [
        { type: 'urn:hub:authorization-detail', actions: ['publish'], topics: [{ match: '*' }] },
      ],
    });
    const published = await ask('/.well-known/hub', '-H', `Authorization: Bearer ${token}`);
    assert.match(published, /^HTTP\/1\.1 100 Continue\r\n\r\nHTTP\/1\.1 200 OK[^]*urn:uuid:/);
    assert.match(await ask('/.well-known/hub'), /^HTTP\/1\.1 401 /, 'no body is asked for in vain');
  });

  it('rejects a request with two Host fields', async (test) => {
    const port = await freePort();
    await startGateway(test, `http://localhost:${port} {\n\trespond ok\n}\n`);
    const answer = await send(`http://localhost:${port}/`, {
      headers: [
        ['Host', `localhost:${port}`],
        ['Host', 'other.example'],
      ],
    });
    assert.equal(answer.status, 400);
  });

  it('responds 421 for a host that no site has', async (test) => {
    const port = await freePort();
    await startGateway(test, `http://localhost:${port} {\n\trespond ok\n}\n`);
    const response = await fetch(`http://127.0.0.1:${port}/`);
    assert.equal(response.status, 421);
  });

  it('responds 502 when the app is down, and keeps running', async (test) => {
    const [port, nobody] = [await freePort(), await freePort()];
    await startGateway(
      test,
      `http://localhost:${port} {\n\treverse_proxy 127.0.0.1:${nobody}\n}\n`,
    );
    for (let i = 0; i < 3; i += 1) {
      assert.equal((await fetch(`http://localhost:${port}/`)).status, 502);
    }
  });
});

async function startUpstream(
  test: TestContext,
  listener: RequestListener,
): Promise<{ readonly server: Server; readonly port: number }> {
  const server = createServer(listener);
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  test.after(() => {
    server.closeAllConnections();
    server.close();
  });
  const address = server.address();
  if (address === null || typeof address === 'string') throw new Error('no port');
  return { server, port: address.port };
}

/** The certificate that a server shows to a client which knows only this authority. */
async function peerCertificate(
  port: number,
  servername: string,
  ca: string,
): Promise<PeerCertificate> {
  const socket = connectTls({ host: '127.0.0.1', port, servername, ca });
  try {
    await once(socket, 'secureConnect');
    return socket.getPeerCertificate();
  } finally {
    socket.destroy();
  }
}
