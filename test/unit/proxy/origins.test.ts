import assert from 'node:assert/strict';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import http from 'node:http';
import https from 'node:https';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import tls, { type TLSSocket } from 'node:tls';
import { WebSocket, WebSocketServer } from 'ws';
import { systemClock } from '../../../src/kernel/clock.ts';
import { parseUpstream } from '../../../src/proxy/address.ts';
import { ForwardError } from '../../../src/proxy/forward-error.ts';
import { LocalAuthority } from '../../../src/tls/local-authority.ts';
import { createCertificateFiles } from '../../support/certificate-files.ts';
import { ask1, portOf } from '../http/exchange-server.ts';
import { type Overrides, proxyTo } from './gateway.ts';

let directory = '';
before(async () => {
  directory = await mkdtemp(join(tmpdir(), 'hubgate-origins-'));
});
after(() => rm(directory, { recursive: true }));

describe('the address of an upstream', () => {
  for (const [text, hostport, protocol, port] of [
    ['http://localhost:3000', 'localhost:3000', 'http:', 3000],
    ['https://app.example', 'app.example:443', 'https:', 443],
    ['http://10.0.0.1', '10.0.0.1:80', 'http:', 80],
    ['http://[::1]:8080', '[::1]:8080', 'http:', 8080],
    ['unix:/run/app.sock', 'unix:/run/app.sock', 'http:', 80],
    ['unix://run/app.sock', 'unix:/run/app.sock', 'http:', 80],
  ] as const) {
    it(`${text} is ${hostport}`, () => {
      const address = parseUpstream(text);
      assert.deepEqual(
        [address.hostport, address.protocol, address.port],
        [hostport, protocol, port],
      );
    });
  }

  for (const text of [
    'localhost:3000',
    'ftp://a',
    'http://a/path',
    'http://u@a',
    'unix:',
    'unix:a',
    '',
  ]) {
    it(`cannot be "${text}"`, () => {
      assert.throws(() => parseUpstream(text), { code: 'invalid-upstream' });
    });
  }
});

describe('an upstream on a Unix socket', () => {
  it('handles requests and WebSockets', async () => {
    const path = join(directory, 'app.sock');
    const server = http.createServer((request, response) => response.end(request.headers.host));
    const sockets = new WebSocketServer({ server });
    sockets.on('connection', (socket) => socket.send('hello'));
    server.listen(path);
    await once(server, 'listening');
    await using gateway = await proxyTo([`unix:${path}`]);
    const answer = await ask1(gateway.http1, { headers: { Host: 'site.example' } });
    assert.equal(answer.body, 'site.example');
    const client = new WebSocket(`ws://127.0.0.1:${gateway.http1}/`);
    assert.equal(String((await once(client, 'message'))[0]), 'hello');
    client.terminate();
    server.close();
  });
});

describe('an HTTPS upstream', () => {
  const names: (string | false | null)[] = [];
  let server: https.Server;
  let port = 0;
  let rootFile = '';

  before(async () => {
    const authority = new LocalAuthority(directory, systemClock);
    const { chain, key } = await authority.issue(['app.internal', '127.0.0.1']);
    rootFile = authority.rootFile;
    server = https.createServer({ cert: chain, key }, (request, response) => {
      // The server's sockets are TLS sockets, which the type of the request does not say.
      names.push((request.socket as TLSSocket).servername);
      response.end(request.headers.host);
    });
    const sockets = new WebSocketServer({ server });
    sockets.on('connection', (socket) => socket.send('hello'));
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    port = portOf(server);
  });
  after(() => {
    server.closeAllConnections();
    server.close();
  });

  const ask = async (transport: NonNullable<Overrides['transport']>, more: Overrides = {}) => {
    await using gateway = await proxyTo([`https://127.0.0.1:${port}`], { ...more, transport });
    return await ask1(gateway.http1, { headers: { Host: 'site.example' } });
  };

  it('is verified, against the platform’s authorities by default', async () => {
    assert.equal((await ask({})).status, 502);
  });

  it('is verified against tls_trust_pool; Host is its own address', async () => {
    const answer = await ask({ tlsTrustPoolFiles: [rootFile] });
    assert.equal(answer.status, 200);
    assert.equal(answer.body, `127.0.0.1:${port}`);
  });

  it('gets the client’s Host if header_up says so, and is still verified by its own name', async () => {
    const answer = await ask(
      { tlsTrustPoolFiles: [rootFile] },
      { headerUp: [{ kind: 'set', name: 'Host', value: '{host}' }] },
    );
    assert.equal(answer.status, 200);
    assert.equal(answer.body, 'site.example');
  });

  it('keeps its connections whatever Host clients send', async () => {
    let connections = 0;
    const count = (): void => {
      connections += 1;
    };
    server.on('secureConnection', count);
    await using gateway = await proxyTo([`https://127.0.0.1:${port}`], {
      headerUp: [{ kind: 'set', name: 'Host', value: '{host}' }],
      transport: { tlsTrustPoolFiles: [rootFile] },
    });
    for (const host of ['one.example', 'two.example', 'three.example']) {
      assert.equal((await ask1(gateway.http1, { headers: { Host: host } })).body, host);
    }
    server.off('secureConnection', count);
    assert.equal(connections, 1);
  });

  it('is verified against tls_server_name, which is sent as SNI', async () => {
    assert.equal(
      (await ask({ tlsTrustPoolFiles: [rootFile], tlsServerName: 'app.internal' })).status,
      200,
    );
    assert.equal(names.at(-1), 'app.internal');
    assert.equal(
      (await ask({ tlsTrustPoolFiles: [rootFile], tlsServerName: 'other.internal' })).status,
      502,
    );
  });

  it('is not verified with tls_insecure_skip_verify', async () => {
    assert.equal((await ask({ tlsInsecureSkipVerify: true })).status, 200);
  });

  it('accepts WebSockets, verified the same way', async () => {
    const open = async (transport: NonNullable<Overrides['transport']>): Promise<string> => {
      await using gateway = await proxyTo([`https://127.0.0.1:${port}`], { transport });
      const client = new WebSocket(`ws://127.0.0.1:${gateway.http1}/`);
      const outcome = await Promise.race([
        once(client, 'message').then(([data]) => String(data)),
        new Promise<string>((resolve) => client.once('error', (error) => resolve(error.message))),
      ]);
      client.terminate();
      return outcome;
    };
    assert.equal(await open({ tlsTrustPoolFiles: [rootFile] }), 'hello');
    assert.match(await open({}), /502/);
    assert.match(await open({ tlsTrustPoolFiles: [rootFile], tlsServerName: 'other' }), /502/);
    assert.equal(await open({ tlsInsecureSkipVerify: true }), 'hello');
  });

  it('is rejected when the proxy is built if its trust pool cannot be read', async () => {
    await assert.rejects(ask({ tlsTrustPoolFiles: ['/nonexistent.pem'] }), {
      code: 'unreadable-trust-pool',
    });
  });
});

describe('the message about a TLS handshake with an upstream that fails', () => {
  const messageOf = async (port: number): Promise<string> => {
    const socket = tls.connect({ port, host: '127.0.0.1', rejectUnauthorized: false });
    const [error] = await once(socket, 'error');
    return new ForwardError('upstream-broken', 'unsent', error).message;
  };

  it('says that the upstream does not speak TLS', async (test) => {
    const server = http.createServer((_request, response) => response.end());
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    test.after(() => server.close());
    assert.match(await messageOf(portOf(server)), /the upstream does not speak TLS on this port/);
  });

  it('says that the upstream may require a client certificate', async (test) => {
    const { key, cert } = createCertificateFiles().site;
    const server = tls.createServer({ key, cert, requestCert: true, rejectUnauthorized: true });
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    test.after(() => server.close());
    server.on('tlsClientError', () => {});
    assert.match(await messageOf(portOf(server)), /may require a client certificate/);
  });
});
