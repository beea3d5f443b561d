import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:http';
import { connect, constants } from 'node:http2';
import { createServer as createTcpServer, type AddressInfo, type Server } from 'node:net';
import { describe, it, type TestContext } from 'node:test';
import { freePort } from '../support/free-port.ts';
import { startGateway } from '../support/gateway.ts';

/** An HTTP/2 connection to a gateway in front of an app that listens. */
async function connectTo(test: TestContext, app: Server) {
  const port = await freePort();
  const upstream = `127.0.0.1:${(app.address() as AddressInfo).port}`;
  await startGateway(
    test,
    `https://localhost:${port} {\n\ttls internal\n\treverse_proxy ${upstream}\n}\n`,
  );
  const session = connect(`https://localhost:${port}`, { rejectUnauthorized: false });
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
