import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer, type IncomingMessage, ServerResponse } from 'node:http';
import { createServer as createHttp2Server } from 'node:http2';
import net from 'node:net';
import { describe, it, type TestContext } from 'node:test';
import tls from 'node:tls';
import {
  carrierOf,
  closeIdle,
  giveConnection,
  goOnReading,
  readInto,
  releaseConnection,
  stopParsingWhen,
  stopReading,
  watchLimits,
  writeAhead,
} from '../../../src/server/node-internals.ts';
import { unparsedOf } from '../../../src/server/strict-request.ts';
import { createCertificateFiles } from '../../support/certificate-files.ts';
import { portOf } from '../http/exchange-server.ts';

/** A port whose connections go to a server that never listens, as the listeners do it. */
async function serve(
  test: TestContext,
  onRequest: (request: IncomingMessage, response: ServerResponse) => void,
): Promise<net.Socket> {
  const http = createServer(onRequest);
  watchLimits(http);
  const port = net.createServer((socket) => giveConnection(http, socket));
  port.listen(0, '127.0.0.1');
  await once(port, 'listening');
  const client = net.connect(portOf(port), '127.0.0.1').setEncoding('latin1');
  client.on('error', () => {});
  test.after(() => {
    client.destroy();
    http.close();
    port.close();
  });
  return client;
}

const GET = 'GET / HTTP/1.1\r\nHost: a\r\n\r\n';

describe(`undocumented behavior of Node ${process.versions.node} that the gateway relies on`, () => {
  it('a server takes a connection that was accepted elsewhere', async (test) => {
    const client = await serve(test, (_request, response) => response.end('ok'));
    client.write(GET);
    assert.match((await once(client, 'data')).join(), /^HTTP\/1\.1 200 OK\r\n/);
  });

  it('an HTTP/2 server does so too, and creates its session in the same turn', () => {
    const server = createHttp2Server();
    let sessions = 0;
    server.on('session', (session) => {
      sessions += 1;
      session.on('error', () => {});
      session.destroy();
    });
    giveConnection(server, new net.Socket());
    assert.equal(sessions, 1);
  });

  it('idle connections that are named stay open when the others are closed', async (test) => {
    const http = createServer((_request, response) => response.end('ok'));
    const sockets: net.Socket[] = [];
    const port = net.createServer((socket) => {
      sockets.push(socket);
      giveConnection(http, socket);
    });
    port.listen(0, '127.0.0.1');
    await once(port, 'listening');
    const [asked, unasked] = [0, 0].map(() => net.connect(portOf(port), '127.0.0.1'));
    assert.ok(asked !== undefined && unasked !== undefined);
    test.after(() => {
      for (const client of [asked, unasked]) client.destroy();
      http.close();
      port.close();
    });
    asked.write(GET);
    await once(asked, 'data');
    asked.resume();
    while (sockets.length < 2) await new Promise((resolve) => setImmediate(resolve));
    const fresh = sockets.filter(({ bytesRead }) => bytesRead === 0);
    assert.equal(fresh.length, 1);
    closeIdle(http, fresh);
    await once(asked, 'close');
    unasked.write(GET);
    assert.match(String((await once(unasked, 'data'))[0]), /^HTTP\/1\.1 200 OK\r\n/);
  });

  it('bytes can be written ahead of a response head, in order', async (test) => {
    const client = await serve(test, (_request, response) => {
      writeAhead(response, 'HTTP/1.1 103 Early Hints\r\n\r\n');
      response.end('ok');
    });
    client.write(GET);
    let text = '';
    while (!text.endsWith('ok')) text += (await once(client, 'data')).join();
    assert.match(text, /^HTTP\/1\.1 103 Early Hints\r\n\r\nHTTP\/1\.1 200 OK\r\n/);
  });

  it('a parser stops after a head, and another execute call continues there', async (test) => {
    const asked: string[] = [];
    const http = createServer((request, response) => {
      asked.push(request.url ?? '');
      if (asked.length === 1) stopParsingWhen(request.socket, () => asked.length === 2);
      response.end();
    });
    let stops = 0;
    http.on('clientError', (error: Error & { code?: string }, socket: net.Socket) => {
      assert.equal(error.code, 'HPE_PAUSED');
      stops += 1;
      stopReading(socket, unparsedOf(error));
      setImmediate(() => {
        assert.equal(asked.length, 2);
        goOnReading(socket);
      });
    });
    const port = net.createServer((socket) => giveConnection(http, socket));
    port.listen(0, '127.0.0.1');
    await once(port, 'listening');
    const client = net.connect(portOf(port), '127.0.0.1').setEncoding('latin1');
    test.after(() => {
      client.destroy();
      http.close();
      port.close();
    });
    client.write(['/1', '/2', '/3', '/4'].map((path) => GET.replace('/', path)).join(''));
    let text = '';
    while (text.split('200 OK').length < 5) text += (await once(client, 'data')).join();
    assert.deepEqual(asked, ['/1', '/2', '/3', '/4']);
    assert.equal(stops, 1);
  });

  for (const isTls of [false, true]) {
    it(`an accepted connection reads into the memory of others${isTls ? ', over TLS' : ''}`, async (test) => {
      const { key, cert } = createCertificateFiles().site;
      const memory = Buffer.alloc(4096);
      const read: string[] = [];
      const accepted = (socket: net.Socket): void => {
        const callback = (count: number): boolean => {
          read.push(memory.toString('latin1', 0, count));
          return true;
        };
        readInto(socket, { buffer: () => memory, callback });
        socket.on('error', () => {}).resume();
        socket.write('ready');
      };
      const server = isTls ? tls.createServer({ key, cert }, accepted) : net.createServer(accepted);
      server.listen(0, '127.0.0.1');
      await once(server, 'listening');
      const address = { port: portOf(server), host: '127.0.0.1' };
      const client = isTls
        ? tls.connect({ ...address, rejectUnauthorized: false })
        : net.connect(address);
      test.after(() => {
        client.destroy();
        server.close();
      });
      await once(client, 'data');
      client.end('into memory');
      await once(client, 'close');
      assert.equal(read.join(''), 'into memory');
    });
  }

  it('a socket without TLS is its own transport', () => {
    const socket = new net.Socket();
    assert.equal(carrierOf(socket), socket);
  });

  it('a released connection keeps no listener, parser or message of its server', async (test) => {
    let resolve: (released: net.Socket) => void = () => {};
    const releasing = new Promise<net.Socket>((done) => {
      resolve = done;
    });
    let closes = 0;
    const client = await serve(test, (request, response) => {
      const { socket } = response;
      assert.ok(socket);
      socket.on('close', () => {
        closes += 1;
      });
      response.writeHead(200, { connection: 'close' });
      response.write('begun');
      setImmediate(() => {
        assert.equal(releaseConnection(request, response), true);
        assert.equal(releaseConnection(request, response), false);
        resolve(socket);
      });
    });
    client.write(GET);
    const socket = await releasing;
    for (const event of ['data', 'drain', 'error', 'timeout', 'pause', 'resume']) {
      assert.deepEqual(socket.listeners(event), [], event);
    }
    assert.equal(socket.listenerCount('end'), 1, 'that of the socket itself');
    assert.equal(socket.listenerCount('close'), 1, 'that of the test');
    for (const key of Reflect.ownKeys(socket)) {
      const value: unknown = Reflect.get(socket, key);
      assert.ok(!(value instanceof ServerResponse), String(key));
      if (key === 'parser') assert.equal(value ?? null, null);
    }
    for (const method of ['on', 'addListener', 'prependListener'] as const) {
      assert.equal(socket[method], net.Socket.prototype[method], method);
    }
    // It can still be written to, and its end is noticed.
    socket.resume();
    socket.write('raw');
    let text = '';
    while (!text.endsWith('raw')) text += (await once(client, 'data')).join();
    client.destroy();
    await once(socket, 'close');
    assert.equal(closes, 1);
  });

  it('an error sent to a released request has no unused stack trace, other errors do', async (test) => {
    const { stackTraceLimit } = Error;
    const client = await serve(test, (request, response) => {
      response.writeHead(200).write('begun');
      setImmediate(() => {
        const { socket } = response;
        request.once('error', (error) => socket?.end(JSON.stringify(error.stack)));
        releaseConnection(request, response);
      });
    });
    client.write(GET);
    let text = '';
    client.on('data', (some) => {
      text += String(some);
    });
    await once(client, 'end');
    assert.match(text, /"Error: aborted"$/);
    assert.equal(Error.stackTraceLimit, stackTraceLimit);
  });
});
