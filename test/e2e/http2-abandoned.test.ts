import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:http';
import { connect, constants, type Settings } from 'node:http2';
import { createServer as createTcpServer, type AddressInfo, type Server } from 'node:net';
import { describe, it, type TestContext } from 'node:test';
import { freePort } from '../support/free-port.ts';
import { startGateway } from '../support/gateway.ts';

/** An HTTP/2 connection to a gateway in front of an app that listens. */
async function connectTo(test: TestContext, app: Server, settings: Settings = {}) {
  const port = await freePort();
  const upstream = `127.0.0.1:${(app.address() as AddressInfo).port}`;
  await startGateway(
    test,
    `https://localhost:${port} {\n\ttls internal\n\treverse_proxy ${upstream}\n}\n`,
  );
  const options = { rejectUnauthorized: false, settings };
  const session = connect(`https://localhost:${port}`, options);
  test.after(() => session.destroy());
  return { session, port };
}

describe('a client that resets its HTTP/2 stream without an error', () => {
  for (const method of ['GET', 'HEAD', 'POST']) {
    it(`ends its ${method} at the app as well`, async (test) => {
      const app = createServer();
      app.listen(0, '127.0.0.1');
      await once(app, 'listening');
      test.after(() => {
        app.closeAllConnections();
        app.close();
      });
      const { session } = await connectTo(test, app);
      const stream = session.request({ ':method': method, ':path': '/' }, { endStream: true });
      stream.on('error', () => {});
      const [request] = await once(app, 'request');
      const left = once(request.socket, 'close');
      stream.close(constants.NGHTTP2_NO_ERROR);
      await left;
    });
  }
});

/** Bytes of each response that its client does not read, and the number of such responses. */
const UNREAD_BYTES = 200 * 1024;
const UNREAD = 240;

describe('a client that reads nothing of many responses over one HTTP/2 connection', () => {
  for (const isCancelled of [true, false]) {
    it(`gets the next one as well, if it has ${isCancelled ? 'cancelled' : 'kept'} them`, async (test) => {
      const body = Buffer.alloc(UNREAD_BYTES);
      const app = createServer((request, response) => {
        response.end(request.url === '/next' ? '' : body);
      });
      app.listen(0, '127.0.0.1');
      await once(app, 'listening');
      test.after(() => {
        app.closeAllConnections();
        app.close();
      });
      const { session } = await connectTo(test, app, { initialWindowSize: 0 });
      const streams = Array.from({ length: UNREAD }, () => session.request({ ':path': '/page' }));
      for (const stream of streams) stream.on('error', () => {});
      await Promise.all(streams.map((stream) => once(stream, 'response')));
      // By now, what can be sent has been written to the streams.
      await new Promise((answered) => session.ping(answered));
      if (isCancelled) {
        await Promise.all(
          streams.map((stream) => {
            stream.close(constants.NGHTTP2_CANCEL);
            return once(stream, 'close');
          }),
        );
      }
      const next = session.request({ ':path': '/next' });
      const [fields] = await once(next, 'response');
      assert.equal(fields[':status'], 200);
    });
  }
});

describe('an app that sends informational responses without end during an upgrade', () => {
  it('is given up', async (test) => {
    const early = `HTTP/1.1 103 Early Hints\r\nLink: </${'a'.repeat(1000)}>; rel=preload\r\n\r\n`;
    const app = createTcpServer((socket) => {
      const send = (): void => {
        while (socket.writable && socket.write(early));
        if (socket.writable) socket.once('drain', send);
      };
      socket.on('error', () => {}).once('data', send);
    });
    const left = new Promise((resolve) => {
      app.once('connection', (socket) => socket.once('close', resolve));
    });
    app.listen(0, '127.0.0.1');
    await once(app, 'listening');
    test.after(() => app.close());
    const { session, port } = await connectTo(test, app);
    await once(session, 'remoteSettings');
    const stream = session.request({
      ...{ ':method': 'CONNECT', ':protocol': 'websocket', ':path': '/', ':scheme': 'https' },
      ...{ ':authority': `localhost:${port}`, 'sec-websocket-version': '13' },
    });
    let hints = 0;
    stream.on('headers', () => (hints += 1));
    const [head] = await once(stream, 'response');
    assert.equal(head[':status'], 502);
    assert.ok(hints > 0 && hints < 100, `${hints} hints`);
    await left;
  });
});
