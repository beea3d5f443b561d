import assert from 'node:assert/strict';
import { once } from 'node:events';
import type net from 'node:net';
import { it } from 'node:test';
import tls from 'node:tls';
import { freePort } from '../support/free-port.ts';
import { startGateway } from '../support/gateway.ts';
import { rawOrigin } from '../unit/proxy/gateway.ts';

/** What a TLS client of HTTP/1.0 sees once the upstream has gone in the middle of the body. */
it('a truncated body does not look complete to an HTTP/1.0 client over TLS (RFC 9112 §9.8)', async (t) => {
  let upstreamSocket: net.Socket | undefined;
  await using upstream = await rawOrigin((socket) => {
    upstreamSocket = socket;
    socket.write('HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n');
  });
  const port = await freePort();
  const site = `https://localhost:${port} {\n\ttls internal\n\treverse_proxy ${upstream.url}\n}\n`;
  const running = await startGateway(t, site);
  const client = tls.connect({
    host: '127.0.0.1',
    port,
    servername: 'localhost',
    ca: await running.root(),
  });
  const outcome = new Promise<string>((resolve) => {
    client.once('error', () => resolve('reset'));
    client.once('end', () => resolve('complete'));
  });
  await once(client, 'secureConnect');
  client.write('GET / HTTP/1.0\r\nHost: localhost\r\n\r\n');
  let text = '';
  client.on('data', (chunk: Buffer) => {
    text += chunk.toString('latin1');
    if (text.endsWith('hello')) upstreamSocket?.destroy();
  });
  assert.equal(await outcome, 'reset');
  assert.match(text, /^HTTP\/1\.[01] 200 /);
});
