import assert from 'node:assert/strict';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import http2 from 'node:http2';
import http from 'node:http';
import https from 'node:https';
import type net from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, describe, it } from 'node:test';
import type { TLSSocket } from 'node:tls';
import { systemClock } from '../../../src/kernel/clock.ts';
import { LocalAuthority } from '../../../src/tls/local-authority.ts';
import { portOf } from '../http/exchange-server.ts';
import { freePort } from '../../support/free-port.ts';
import { origin, type Overrides, proxyTo, rawOrigin, type TestGateway, until } from './gateway.ts';

const MIB = 1024 * 1024;
const directory = mkdtempSync(join(tmpdir(), 'hubgate-trailers-'));
after(() => rmSync(directory, { recursive: true, force: true }));

type Fields = Record<string, string>;

/** What a client sends, and how it gets its answer; both protocols alike. */
interface Sending {
  readonly write: (chunk: string | Buffer) => boolean;
  /** Ends the body with these trailer fields. */
  readonly end: (trailers: Fields) => void;
  readonly leave: () => void;
  readonly informed: Promise<number>;
  readonly answer: Promise<{ status: number; body: string; trailers: Fields; broken: boolean }>;
}

function send1(gateway: TestGateway, headers: Fields, method = 'POST'): Sending {
  const request = http.request({
    ...{ host: '127.0.0.1', port: gateway.http1, path: '/first', method, agent: false },
    headers: { Host: 'site', 'Transfer-Encoding': 'chunked', ...headers },
  });
  request.flushHeaders();
  const informed = new Promise<number>((resolve) => {
    request.once('information', ({ statusCode }) => resolve(statusCode));
  });
  const answer = new Promise<Awaited<Sending['answer']>>((resolve) => {
    const none = { status: 0, body: '', trailers: {}, broken: true };
    request.on('error', () => resolve(none));
    request.on('response', (response) => {
      let body = '';
      response.on('data', (chunk: Buffer) => (body += chunk.toString()));
      response.on('error', () => {});
      response.on('close', () => {
        const { statusCode: status = 0, trailers, complete } = response;
        resolve({ status, body, trailers: { ...trailers } as Fields, broken: !complete });
      });
    });
  });
  return {
    write: (chunk) => request.write(chunk),
    end: (trailers) => {
      request.addTrailers(trailers);
      request.end();
    },
    leave: () => request.destroy(),
    informed,
    answer,
  };
}

function send2(gateway: TestGateway, headers: Fields, method = 'POST'): Sending {
  const session = http2.connect(`http://127.0.0.1:${gateway.http2}`, { maxSessionMemory: 100 });
  session.on('error', () => {});
  const stream = session.request(
    { ':method': method, ':path': '/first', ':authority': 'site', ...headers },
    { endStream: false, waitForTrailers: true },
  );
  let trailing: Fields = {};
  stream.on('wantTrailers', () => stream.sendTrailers(trailing));
  const informed = new Promise<number>((resolve) => {
    stream.once('headers', (fields) => resolve(Number(fields[':status'])));
  });
  const answer = new Promise<Awaited<Sending['answer']>>((resolve) => {
    let status = 0;
    let body = '';
    let trailers: Fields = {};
    let failed = false;
    stream.on('response', (fields) => (status = Number(fields[':status'])));
    stream.on('trailers', (fields) => (trailers = JSON.parse(JSON.stringify(fields))));
    stream.on('data', (chunk: Buffer) => (body += chunk.toString()));
    stream.on('error', () => (failed = true));
    stream.on('close', () => {
      session.close();
      resolve({ status, body, trailers, broken: failed || stream.rstCode !== 0 });
    });
  });
  return {
    write: (chunk) => stream.write(chunk),
    end: (trailers) => {
      trailing = trailers;
      stream.end();
    },
    leave: () => session.destroy(),
    informed,
    answer,
  };
}

const complete = (text: string): boolean => /\r\n0\r\n(?:[^\r\n]+\r\n)*\r\n$/.test(text);
const OK = 'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok';
const answering = (socket: net.Socket, text: string): void => {
  if (complete(text)) socket.write(OK);
};

for (const { name, send } of [
  { name: 'HTTP/1.1', send: send1 },
  { name: 'HTTP/2', send: send2 },
]) {
  describe(`trailer fields of a request over ${name} (RFC 9110 §6.5)`, () => {
    for (const method of ['POST', 'DELETE', 'GET']) {
      it(`arrive after the chunks of a ${method}, byte for byte`, async () => {
        await using upstream = await rawOrigin(answering);
        await using gateway = await proxyTo([upstream.url]);
        const request = send(gateway, { Trailer: 'X-Sum, X-Other' }, method);
        request.write('hello');
        request.end({ 'x-sum': '42', 'x-other': '\u00e9' });
        const { status, body } = await request.answer;
        assert.deepEqual({ status, body }, { status: 200, body: 'ok' });
        const [head = '', ...rest] = upstream.received().split('\r\n\r\n');
        assert.ok(head.startsWith(`${method} /first HTTP/1.1\r\n`), head);
        assert.match(head, /\r\nhost: site(\r\n|$)/i);
        assert.match(head, /\r\nTrailer: X-Sum, X-Other(\r\n|$)/);
        assert.equal(head.match(/transfer-encoding: chunked/gi)?.length, 1);
        assert.doesNotMatch(head, /content-length/i);
        assert.equal(head.match(/connection:/gi)?.length, 1);
        assert.equal(
          rest.join('\r\n\r\n'),
          '5\r\nhello\r\n0\r\nx-sum: 42\r\nx-other: \u00e9\r\n\r\n',
        );
        assert.deepEqual(gateway.faults, []);
      });
    }

    it('do not arrive unless announced, or if they frame, route or authenticate (§6.5.1)', async () => {
      await using upstream = await rawOrigin(answering);
      await using gateway = await proxyTo([upstream.url]);
      const announced = 'X-Sum, Content-Length, Authorization, X-Forwarded-For, Host, If-Match';
      const request = send(gateway, { Trailer: announced });
      request.write('hello');
      request.end({
        'x-sum': '42',
        'x-surprise': '1',
        authorization: 'Bearer x',
        'x-forwarded-for': '6.6.6.6',
        'if-match': '*',
      });
      assert.equal((await request.answer).status, 200);
      assert.match(upstream.received(), /\r\nTrailer: X-Sum\r\n/);
      assert.ok(upstream.received().endsWith('\r\n0\r\nx-sum: 42\r\n\r\n'), upstream.received());
    });

    it('cannot contain what header_up sets or deletes', async () => {
      await using upstream = await rawOrigin(answering);
      await using gateway = await proxyTo([upstream.url], {
        headerUp: [
          { kind: 'set', name: 'X-User', value: 'alice' },
          { kind: 'delete', name: 'X-Admin' },
        ],
      });
      const request = send(gateway, { Trailer: 'X-User, X-Admin, X-Sum' });
      request.write('hello');
      request.end({ 'x-user': 'mallory', 'x-admin': '1', 'x-sum': '42' });
      assert.equal((await request.answer).status, 200);
      assert.ok(upstream.received().endsWith('\r\n0\r\nx-sum: 42\r\n\r\n'), upstream.received());
    });

    it('are dropped if they were not announced, and the connection to the upstream is kept', async () => {
      await using upstream = await rawOrigin(answering);
      await using gateway = await proxyTo([upstream.url]);
      const request = send(gateway, {});
      request.write('hello');
      request.end({ 'x-sum': '42' });
      assert.equal((await request.answer).status, 200);
      assert.doesNotMatch(upstream.received(), /trailer|x-sum|connection: close/i);
    });

    it('leave 1xx and the response trailers unchanged, except for forbidden ones', async () => {
      await using upstream = await rawOrigin((socket, text) => {
        if (!complete(text)) return;
        socket.write(
          'HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\n\r\n' +
            'HTTP/1.1 200 OK\r\nTrailer: X-Back\r\nTransfer-Encoding: chunked\r\n\r\n' +
            '2\r\nok\r\n0\r\nX-Back: 7\r\nSet-Cookie: a=b\r\n\r\n',
        );
      });
      await using gateway = await proxyTo([upstream.url]);
      const request = send(gateway, { Trailer: 'X-Sum' });
      request.end({ 'x-sum': '42' });
      assert.equal(await request.informed, 103);
      const { body, trailers, broken } = await request.answer;
      assert.deepEqual(
        { body, back: trailers['x-back'], cookie: trailers['set-cookie'], broken },
        { body: 'ok', back: '7', cookie: undefined, broken: false },
      );
    });

    it('go to the next upstream with the body when the first cannot be reached', async () => {
      await using upstream = await rawOrigin(answering);
      const gone = `http://127.0.0.1:${await freePort()}`;
      await using gateway = await proxyTo([gone, upstream.url]);
      const request = send(gateway, { Trailer: 'X-Sum' });
      request.write('hello');
      request.end({ 'x-sum': '42' });
      assert.equal((await request.answer).status, 200);
      assert.ok(upstream.received().endsWith('5\r\nhello\r\n0\r\nx-sum: 42\r\n\r\n'));
    });

    it('lead to 502 when the upstream hangs up, does not speak HTTP or switches protocols', async () => {
      const switching = 'HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n';
      const replies = ['', 'SSH-2.0-OpenSSH\r\n', `${switching}\r\n`];
      for (const reply of [...replies, `${switching}Connection: Upgrade\r\n\r\n`]) {
        await using upstream = await rawOrigin((socket, text) => {
          if (complete(text)) socket.end(reply);
        });
        await using gateway = await proxyTo([upstream.url]);
        const request = send(gateway, { Trailer: 'X-Sum' });
        request.end({ 'x-sum': '42' });
        assert.equal((await request.answer).status, 502, JSON.stringify(reply));
        assert.deepEqual(gateway.faults, []);
      }
    });

    it('lead to 504 when no head arrives within response_header_timeout', async () => {
      await using upstream = await rawOrigin(() => {});
      await using gateway = await proxyTo([upstream.url], {
        transport: { responseHeaderTimeoutMs: 50 },
      });
      const request = send(gateway, { Trailer: 'X-Sum' });
      request.end({ 'x-sum': '42' });
      assert.equal((await request.answer).status, 504);
    });

    it('leave a response incomplete that stops in the middle, through a crash or silence', async () => {
      for (const dies of [true, false]) {
        await using upstream = await rawOrigin((socket, text) => {
          if (!complete(text)) return;
          socket.write('HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello');
          if (dies) socket.end();
        });
        await using gateway = await proxyTo([upstream.url], { transport: { readTimeoutMs: 50 } });
        const request = send(gateway, { Trailer: 'X-Sum' });
        request.end({ 'x-sum': '42' });
        const { status, broken } = await request.answer;
        assert.deepEqual({ status, broken }, { status: 200, broken: true });
      }
    });

    it('end at the upstream when the client disconnects, before and during the response', async () => {
      for (const begun of [false, true]) {
        let closed = false;
        await using upstream = await rawOrigin((socket, text) => {
          socket.once('close', () => (closed = true));
          if (begun && text.endsWith('hello\r\n')) socket.write('HTTP/1.1 200 OK\r\n\r\nhalf');
        });
        await using gateway = await proxyTo([upstream.url]);
        const request = send(gateway, { Trailer: 'X-Sum' });
        request.write('hello');
        await until(() => upstream.received().endsWith('hello\r\n'), 'the upstream has the body');
        request.leave();
        await until(() => closed, 'the upstream connection is closed');
        await until(
          () => gateway.registry.upstreams().every((one) => one.inFlight === 0),
          'the upstream counts as idle',
        );
        assert.doesNotMatch(upstream.received(), /\r\n0\r\n/);
        assert.deepEqual(gateway.faults, []);
      }
    });

    it('lead to 504 when the upstream accepts no more of the body for longer than write_timeout', async () => {
      await using upstream = await origin((incoming) => incoming.pause());
      await using gateway = await proxyTo([upstream.url], { transport: { writeTimeoutMs: 50 } });
      const request = send(gateway, { Trailer: 'X-Sum' });
      request.write(Buffer.alloc(16 * MIB));
      await until(() => gateway.statuses.includes(504), 'the gateway has answered 504');
      request.leave();
      await request.answer;
    });

    it('follow a body of any size, and so does the response, at the reader’s pace', async () => {
      let held: { incoming: http.IncomingMessage; response: http.ServerResponse } | undefined;
      await using upstream = await origin((incoming, response) => {
        held = { incoming, response };
      });
      await using gateway = await proxyTo([upstream.url]);
      const request = send(gateway, { Trailer: 'X-Sum' });
      const body = Buffer.alloc(16 * MIB, 'abcdefg');
      assert.equal(request.write(body), false);
      request.end({ 'x-sum': '42' });
      await until(() => held !== undefined, 'the upstream has the head');
      held?.incoming.pipe(held.response);
      const answer = await request.answer;
      assert.ok(answer.body === body.toString(), `${answer.body.length} bytes came back`);
      assert.equal(held?.incoming.trailers['x-sum'], '42');
    });
  });
}

describe('trailer fields of a request to other upstreams', () => {
  const echo: http.RequestListener = (incoming, response) => {
    incoming.resume();
    incoming.on('end', () => response.end(incoming.trailers['x-sum']));
  };
  const ask = async (url: string, overrides: Overrides = {}) => {
    await using gateway = await proxyTo([url], overrides);
    const request = send1(gateway, { Trailer: 'X-Sum' });
    request.write('hello');
    request.end({ 'x-sum': '42' });
    return await request.answer;
  };

  it('pass through a Unix socket', async () => {
    const path = join(directory, 'app.sock');
    const server = http.createServer(echo).listen(path);
    await once(server, 'listening');
    assert.equal((await ask(`unix:${path}`)).body, '42');
    server.close();
  });

  it('pass through verified TLS, by the configured name', async () => {
    const authority = new LocalAuthority(directory, systemClock);
    const { chain, key } = await authority.issue(['app.internal']);
    const names: (string | false | null)[] = [];
    const server = https.createServer({ cert: chain, key }, (incoming, response) => {
      // The server's sockets are TLS sockets, which the type of the request does not say.
      names.push((incoming.socket as TLSSocket).servername);
      echo(incoming, response);
    });
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    const url = `https://127.0.0.1:${portOf(server)}`;
    const tlsTrustPoolFiles = [authority.rootFile];
    const named = { tlsTrustPoolFiles, tlsServerName: 'app.internal' };
    assert.equal((await ask(url, { transport: named })).body, '42');
    assert.deepEqual(names, ['app.internal']);
    assert.equal((await ask(url, { transport: { tlsTrustPoolFiles } })).status, 502);
    assert.equal((await ask(url)).status, 502);
    server.close();
  });
});
