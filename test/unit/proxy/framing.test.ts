import assert from 'node:assert/strict';
import { once } from 'node:events';
import http from 'node:http';
import net from 'node:net';
import { describe, it } from 'node:test';
import { ask1, ask2, PROTOCOLS } from '../http/exchange-server.ts';
import { proxyTo, rawOrigin, until } from './gateway.ts';

/** The bytes of a request that would do harm if its sender's connection lost its framing. */
const SMUGGLED = 'GET /victim HTTP/1.1\r\nHost: evil\r\n\r\n';

/** Answers each complete message, a body in one chunk included. */
const answering = (socket: net.Socket, text: string): void => {
  const complete = text.includes('transfer-encoding: chunked')
    ? text.endsWith('\r\n0\r\n\r\n')
    : text.includes('\r\n\r\n');
  if (complete) socket.write('HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok');
};

describe('the framing of a request to the upstream (RFC 9112 §6)', () => {
  for (const method of ['DELETE', 'OPTIONS', 'GET', 'POST', 'PATCH', 'REPORT']) {
    it(`sends the chunked body of a ${method} over HTTP/1.1 as chunks, never as a second request`, async () => {
      await using upstream = await rawOrigin(answering);
      await using gateway = await proxyTo([upstream.url]);
      const answer = await ask1(gateway.http1, {
        method,
        path: '/first',
        chunked: true,
        body: SMUGGLED,
        headers: { Host: 'site' },
      });
      assert.equal(answer.body, 'ok');
      const [head = '', ...rest] = upstream.received().split('\r\n\r\n');
      assert.ok(head.startsWith(`${method} /first HTTP/1.1\r\n`), head);
      assert.equal(head.match(/transfer-encoding: chunked/gi)?.length, 1);
      assert.doesNotMatch(head, /content-length/i);
      const size = SMUGGLED.length.toString(16);
      assert.equal(rest.join('\r\n\r\n'), `${size}\r\n${SMUGGLED}\r\n0\r\n\r\n`);
    });
  }

  for (const method of ['GET', 'HEAD', 'DELETE', 'OPTIONS', 'POST']) {
    it(`sends the body of a ${method} without length over HTTP/2 as chunks`, async () => {
      await using upstream = await rawOrigin((socket, text) => {
        if (text.endsWith('\r\n0\r\n\r\n')) {
          socket.write('HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n');
        }
      });
      await using gateway = await proxyTo([upstream.url]);
      const answer = await ask2(gateway.http2, { method, path: '/first', body: SMUGGLED });
      assert.equal(answer.status, 200);
      const [head = '', ...rest] = upstream.received().split('\r\n\r\n');
      assert.equal(head.match(/transfer-encoding: chunked/gi)?.length, 1);
      assert.doesNotMatch(head, /content-length/i);
      const size = SMUGGLED.length.toString(16);
      assert.equal(rest.join('\r\n\r\n'), `${size}\r\n${SMUGGLED}\r\n0\r\n\r\n`);
    });
  }

  for (const { name, ask, port } of PROTOCOLS) {
    it(`keeps a declared length over ${name}`, async () => {
      await using upstream = await rawOrigin((socket, text) => {
        if (text.endsWith('hello')) socket.write('HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok');
      });
      await using gateway = await proxyTo([upstream.url]);
      const headers = { 'content-length': '5' };
      await ask(port(gateway), { method: 'PUT', headers, body: 'hello' });
      assert.equal(upstream.received().match(/content-length: 5\r\n/gi)?.length, 1);
      assert.doesNotMatch(upstream.received(), /transfer-encoding/i);
    });

    it(`sends no framing for a request without a body over ${name}`, async () => {
      await using upstream = await rawOrigin(answering);
      await using gateway = await proxyTo([upstream.url]);
      await ask(port(gateway));
      assert.doesNotMatch(upstream.received(), /transfer-encoding|content-length/i);
    });
  }

  it('ignores configured changes to fields that frame the message', async () => {
    await using upstream = await rawOrigin(answering);
    await using gateway = await proxyTo([upstream.url], {
      headerUp: [
        { kind: 'set', name: 'Content-Length', value: '0' },
        { kind: 'set', name: 'Transfer-Encoding', value: 'identity' },
        { kind: 'set', name: 'Connection', value: 'close' },
      ],
    });
    await ask1(gateway.http1, { method: 'POST', chunked: true, body: SMUGGLED });
    const [head = ''] = upstream.received().split('\r\n\r\n');
    assert.equal(head.match(/transfer-encoding: chunked/gi)?.length, 1);
    assert.doesNotMatch(head, /content-length|identity|connection: close/i);
  });

  it('aborts the request at the upstream when the client disconnects in the middle of it', async () => {
    let destroyed = false;
    await using upstream = await rawOrigin((socket) => {
      socket.once('close', () => {
        destroyed = true;
      });
    });
    await using gateway = await proxyTo([upstream.url]);
    const socket = net.connect(gateway.http1, '127.0.0.1');
    socket.write('POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nhalf');
    await until(() => upstream.received().endsWith('half'), 'the upstream has the first half');
    socket.destroy();
    await until(() => destroyed, 'the upstream connection is closed');
    assert.doesNotMatch(upstream.received(), /half.+/s);
  });

  it('does not reuse the connection when the response came before the whole request was sent', async () => {
    await using upstream = await rawOrigin((socket, text, connection) => {
      if (connection === 1 && text.includes('\r\n\r\n')) {
        socket.write('HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n');
      } else if (connection === 2) {
        answering(socket, text);
      }
    });
    await using gateway = await proxyTo([upstream.url]);
    const agent = new http.Agent({ keepAlive: true, maxSockets: 1 });
    const request = http.request({
      port: gateway.http1,
      host: '127.0.0.1',
      method: 'POST',
      agent,
      headers: { 'content-length': '40' },
    });
    request.write('half of it');
    const [response] = await once(request, 'response');
    assert.equal(response.statusCode, 413);
    response.resume();
    request.end('x'.repeat(30));
    await once(response, 'close');
    agent.destroy();
    assert.equal((await ask1(gateway.http1)).body, 'ok');
    assert.equal(upstream.connections(), 2);
  });
});
