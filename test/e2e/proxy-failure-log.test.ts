import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:http';
import { connect as connectHttp2 } from 'node:http2';
import { type AddressInfo, connect, createServer as createNetServer } from 'node:net';
import { describe, it, type TestContext } from 'node:test';
import { freePort } from '../support/free-port.ts';
import { startLibraryGateway } from '../support/gateway.ts';
import { send } from '../support/http.ts';
import { type LogLine, recorder } from '../support/hub-server.ts';

describe('the log of requests that the proxy could not answer', () => {
  it('contains a 502 with the request id that the client received', async (test) => {
    const { port, lines } = await start(test, await freePort());
    const { status, headers } = await send(`http://localhost:${port}/shop?token=s3cret`);
    assert.equal(status, 502);
    const failed = lines.filter(({ message }) => message === 'The request failed');
    assert.deepEqual(
      failed.map(({ level, fields }) => [level, fields['status'], fields['request']]),
      [['warn', 502, headers['x-request-id']]],
    );
    // One line for an operator: which request it was, and whose fault it is.
    const told = lines.filter(({ level, fields }) => level !== 'debug' && 'request' in fields);
    assert.deepEqual(told, failed);
    const { method, host, path, upstream, error } = failed[0]?.fields ?? {};
    assert.deepEqual([method, host, path], ['GET', `localhost:${port}`, '/shop']);
    assert.match(String(upstream), /^127\.0\.0\.1:\d+$/);
    assert.match(String(error), /^the request was not sent: .*ECONNREFUSED/);
  });

  it('names the method and the host of the client, whatever the site makes of them', async (test) => {
    const changes = '\tmethod PUT\n\trequest_header Host other.example\n';
    const { port, lines } = await start(test, await freePort(), 'HTTP/1.1', changes);
    assert.equal((await send(`http://localhost:${port}/`)).status, 502);
    const failed = lines.find(({ message }) => message === 'The request failed');
    const { method, host } = failed?.fields ?? {};
    assert.deepEqual([method, host], ['GET', `localhost:${port}`]);
  });

  it('says that an upstream expects TLS, if that answers with an alert', async (test) => {
    const upstream = createNetServer((socket) => {
      socket.on('error', () => {});
      // A fatal unexpected_message (RFC 8446 §6).
      socket.once('data', () => socket.end(Buffer.from([21, 3, 3, 0, 2, 2, 10])));
    });
    upstream.listen(0, '127.0.0.1');
    await once(upstream, 'listening');
    test.after(() => upstream.close());
    const { port: upstreamPort } = upstream.address() as AddressInfo;
    const { port, lines } = await start(test, upstreamPort);
    assert.equal((await send(`http://localhost:${port}/`)).status, 502);
    const failed = lines.find(({ message }) => message === 'The request failed');
    assert.match(String(failed?.fields['error']), /answered with TLS; write https:\/\//);
  });

  for (const protocol of ['HTTP/1.1', 'HTTP/2']) {
    it(`contains a 499 when the client disconnected before its response, over ${protocol}`, async (test) => {
      const upstream = createServer();
      upstream.listen(0, '127.0.0.1');
      await once(upstream, 'listening');
      test.after(() => {
        upstream.closeAllConnections();
        upstream.close();
      });
      // An upstream that listens on TCP has an AddressInfo.
      const { port: upstreamPort } = upstream.address() as AddressInfo;
      const { port, lines, logged, root } = await start(test, upstreamPort, protocol);
      const arrived = once(upstream, 'request');
      if (protocol === 'HTTP/1.1') {
        const client = connect(port, '127.0.0.1');
        client.write(`GET /slow HTTP/1.1\r\nHost: localhost:${port}\r\n\r\n`);
        await arrived;
        client.destroy();
      } else {
        const session = connectHttp2(`https://localhost:${port}`, { ca: await root() });
        const stream = session.request({ ':path': '/slow' });
        stream.on('error', () => {});
        await arrived;
        session.destroy();
      }
      const isOurs = ({ fields }: LogLine): boolean => fields['status'] === 499;
      await logged(isOurs);
      const ours = lines.filter(isOurs);
      assert.deepEqual(
        ours.map(({ level, message }) => [level, message]),
        [['info', 'The connection ended before the response']],
      );
      assert.match(String(ours[0]?.fields['request']), /^[0-9a-f-]{36}$/);
    });
  }
});

async function start(test: TestContext, upstreamPort: number, protocol = 'HTTP/1.1', changes = '') {
  const lines: LogLine[] = [];
  let onLine = (): void => {};
  const log = recorder({
    push: (line) => {
      const length = lines.push(line);
      onLine();
      return length;
    },
  });
  const port = await freePort();
  const [scheme, tls] = protocol === 'HTTP/2' ? ['https', '\ttls internal\n'] : ['http', ''];
  const site = `${scheme}://localhost:${port} {\n${tls}${changes}\treverse_proxy 127.0.0.1:${upstreamPort}\n}\n`;
  const { root } = await startLibraryGateway(test, site, undefined, log);
  /** Resolves once such a line is there. */
  const logged = (wanted: (line: LogLine) => boolean): Promise<void> =>
    new Promise((resolve) => {
      onLine = () => {
        if (lines.some(wanted)) resolve();
      };
      onLine();
    });
  return { port, lines, logged, root };
}
