import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { createServer as createHttp2Server } from 'node:http2';
import net from 'node:net';
import { describe, it, type TestContext } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import {
  carrierOf,
  giveConnection,
  passOptionsOn,
  probe,
  readInto,
  writeAhead,
} from '../../../src/kernel/node-internals.ts';
import { acceptedConnection } from '../../support/accepted-connection.ts';
import { programPath } from '../../support/program.ts';
import { portOf } from '../http/exchange-server.ts';

/** A port whose connections go to a server that never listens, as the listeners do it. */
async function serve(
  test: TestContext,
  onRequest: (request: IncomingMessage, response: ServerResponse) => void,
): Promise<net.Socket> {
  const http = createServer(onRequest);
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

/** TCP_NODELAY, SO_KEEPALIVE, and the seconds and the number of probes, as the system has them. Node cannot read them. */
async function optionsOf(python: string, socket: net.Socket): Promise<string> {
  const program = `
import socket
one, TCP = socket.socket(fileno=3), socket.IPPROTO_TCP
names = socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT
keep = one.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
print(one.getsockopt(TCP, socket.TCP_NODELAY), keep, *(one.getsockopt(TCP, name) for name in names))
`;
  const child = spawn(python, ['-c', program], { stdio: ['ignore', 'pipe', 'inherit', socket] });
  let printed = '';
  child.stdout?.setEncoding('utf8').on('data', (text: string) => (printed += text));
  await once(child, 'close');
  return printed;
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

  it('a listening socket passes its options on to the connections, on Linux', async (test) => {
    if (process.platform !== 'linux') return test.skip('not Linux');
    const python = programPath(test, 'python3');
    if (python === null) return;
    const keepAliveMs = 30_000;
    const server = net.createServer({
      ...{ noDelay: true, keepAlive: true, keepAliveInitialDelay: keepAliveMs },
    });
    test.after(() => server.close());
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    const accept = async (): Promise<string> => {
      const client = net.connect(portOf(server), '127.0.0.1');
      const [accepted] = (await once(server, 'connection')) as [net.Socket];
      const options = await optionsOf(python, accepted);
      client.destroy();
      accepted.destroy();
      return options;
    };
    const byNode = await accept();
    // The first two may have been waiting.
    passOptionsOn(server, 2, keepAliveMs);
    for (const bySystem of [false, false, true, true]) {
      assert.equal(Reflect.get(server, 'noDelay'), !bySystem);
      assert.equal(Reflect.get(server, 'keepAlive'), !bySystem);
      assert.equal(await accept(), byNode);
    }
    assert.match(byNode, /^1 1 30 /);
  });

  for (const isTls of [false, true]) {
    it(`an accepted connection reads into the memory of others${isTls ? ', over TLS' : ''}`, async (test) => {
      const memory = Buffer.alloc(4096);
      const read: string[] = [];
      const { client } = await acceptedConnection(test, isTls, (socket) => {
        const callback = (count: number): boolean => {
          read.push(memory.toString('latin1', 0, count));
          return true;
        };
        readInto(socket, { buffer: () => memory, callback });
        socket.resume().write('ready');
      });
      await once(client, 'data');
      client.end('into memory');
      await once(client, 'close');
      assert.equal(read.join(''), 'into memory');
    });
  }

  for (const isTls of [false, true]) {
    it(`an empty write notices a reset that nobody reads${isTls ? ', over TLS' : ''}`, async (test) => {
      const { accepted, client, reset } = await acceptedConnection(test, isTls);
      client.write(Buffer.alloc(8 * 1024 * 1024));
      await once(accepted, 'data');
      accepted.pause();
      let received = 0;
      client.on('data', (chunk: Buffer) => (received += chunk.length));
      probe(accepted);
      await pause(50);
      assert.equal(accepted.destroyed, false, 'a probe does nothing to a client that is there');
      const closed = new Promise((done) => accepted.once('close', done));
      reset();
      await pause(50);
      assert.equal(accepted.destroyed, false, 'nobody notices');
      probe(accepted);
      await closed;
      assert.equal(received, 0);
      probe(accepted);
    });
  }

  it('a socket without TLS is its own transport', () => {
    const socket = new net.Socket();
    assert.equal(carrierOf(socket), socket);
  });
});
