import assert from 'node:assert/strict';
import { once } from 'node:events';
import net from 'node:net';
import { describe, it } from 'node:test';
import { PROTOCOLS } from '../http/exchange-server.ts';
import { type Overrides, proxyTo, rawOrigin } from './gateway.ts';

const reply =
  (text: string) =>
  (socket: net.Socket, received: string): void => {
    if (received.endsWith('\r\n\r\n')) socket.write(text, 'latin1');
  };

/** One failure takes the upstream out, so that the next request would be 503. */
const UNFORGIVING: Overrides = { passiveHealth: { failDurationMs: 60_000 } };

const CHUNKED_OK = 'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n';

for (const { name, ask, port } of PROTOCOLS) {
  describe(`an odd but readable response, over ${name}`, () => {
    for (const status of [204, 304]) {
      it(`is complete with status ${status} and a length (RFC 9110 §8.6)`, async () => {
        await using upstream = await rawOrigin(
          reply(`HTTP/1.1 ${status} Odd\r\nETag: "a"\r\nContent-Length: 5\r\n\r\n`),
        );
        await using gateway = await proxyTo([upstream.url], UNFORGIVING);
        for (let i = 0; i < 2; i += 1) {
          const answer = await ask(port(gateway));
          assert.equal(answer.status, status);
          assert.equal(answer.broken, false);
          assert.equal(answer.headers['etag'], '"a"');
          const length = status === 304 ? '5' : undefined;
          assert.equal(answer.headers['content-length'], length);
        }
        assert.deepEqual(gateway.faults, []);
      });
    }

    it('is complete when its trailer fields repeat the framing, and these are dropped (RFC 9110 §6.5.1)', async () => {
      await using upstream = await rawOrigin(
        reply(`${CHUNKED_OK}X-Sum: 1\r\nContent-Length: 4\r\n\r\n`),
      );
      await using gateway = await proxyTo([upstream.url], UNFORGIVING);
      for (let i = 0; i < 2; i += 1) {
        const { status, body, broken, trailers } = await ask(port(gateway));
        assert.deepEqual({ status, body, broken }, { status: 200, body: 'ok', broken: false });
        assert.equal(trailers['content-length'], undefined);
      }
    });

    it('may follow a 100 that was not asked for (RFC 9110 §15.2)', async () => {
      await using upstream = await rawOrigin(
        reply(
          'HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nX-A: 1\r\nContent-Length: 2\r\n\r\nok',
        ),
      );
      await using gateway = await proxyTo([upstream.url], UNFORGIVING);
      for (const method of ['GET', 'HEAD', 'OPTIONS', 'GET']) {
        const answer = await ask(port(gateway), { method, path: '/first' });
        assert.equal(answer.status, 200, method);
        assert.equal(answer.headers['x-a'], '1');
        assert.equal(answer.body, method === 'HEAD' ? '' : 'ok');
        assert.deepEqual(answer.informational, []);
      }
      const heads = upstream
        .received()
        .split('\r\n\r\n')
        .filter((head) => head !== '');
      for (const head of heads) assert.doesNotMatch(head, /transfer-encoding|content-length/i);
    });
  });

  describe(`an unreadable response, over ${name}`, () => {
    for (const status of ['099', '000', '042']) {
      it(`leads to 502 with status ${status} (RFC 9110 §15)`, async () => {
        await using upstream = await rawOrigin(
          reply(`HTTP/1.1 ${status} Odd\r\nContent-Length: 2\r\n\r\nok`),
        );
        await using gateway = await proxyTo([upstream.url]);
        assert.equal((await ask(port(gateway))).status, 502);
        assert.deepEqual(gateway.faults, []);
      });
    }

    for (const coding of ['gzip, chunked', 'gzip', 'identity', 'chunked, chunked', 'xchunked']) {
      it(`leads to 502 with the transfer coding ${coding} (RFC 9112 §6.1)`, async () => {
        await using upstream = await rawOrigin(
          reply(`HTTP/1.1 200 OK\r\nTransfer-Encoding: ${coding}\r\n\r\n2\r\nok\r\n0\r\n\r\n`),
        );
        await using gateway = await proxyTo([upstream.url]);
        assert.equal((await ask(port(gateway))).status, 502);
        assert.deepEqual(gateway.faults, []);
      });
    }

    it('is not treated as complete when a chunked body is cut off', async () => {
      const broken = ['2\r\nok\r\n', '2\r\nok\r\nzz\r\n', '5\r\nok\r\n0\r\nContent-Length: 4\r\n'];
      for (const chunks of broken) {
        await using upstream = await rawOrigin((socket, text) => {
          if (!text.endsWith('\r\n\r\n')) return;
          socket.end(`HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n${chunks}`);
        });
        await using gateway = await proxyTo([upstream.url]);
        const answer = await ask(port(gateway));
        assert.equal(answer.broken, true, JSON.stringify(chunks));
      }
    });
  });
}

describe('a 204 over HTTP/1.1', () => {
  it('leaves the client connection usable, without a length (RFC 9110 §8.6)', async () => {
    await using upstream = await rawOrigin(
      reply('HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n'),
    );
    await using gateway = await proxyTo([upstream.url]);
    const socket = net.connect(gateway.http1, '127.0.0.1').setEncoding('latin1');
    for (let i = 0; i < 2; i += 1) {
      socket.write('GET / HTTP/1.1\r\nHost: a\r\n\r\n');
      const [text] = await once(socket, 'data');
      assert.match(text, /^HTTP\/1\.1 204 No Content\r\n[^]*\r\n\r\n$/);
      assert.doesNotMatch(text, /content-length|transfer-encoding/i);
    }
    socket.destroy();
  });
});
