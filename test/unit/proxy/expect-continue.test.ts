import assert from 'node:assert/strict';
import { once } from 'node:events';
import http from 'node:http';
import http2 from 'node:http2';
import net from 'node:net';
import { describe, it } from 'node:test';
import { TestClock } from '../../support/test-clock.ts';
import { ask1 } from '../http/exchange-server.ts';
import { freePort } from '../../support/free-port.ts';
import { origin, type Overrides, proxyTo, rawOrigin, type TestGateway, until } from './gateway.ts';

/** A client that sends `Expect: 100-continue` and, but for `early`, its body only when told to. */
interface Client {
  /** Statuses in order, the final one last. */
  readonly statuses: readonly number[];
  /** All of the final response has come. */
  readonly answered: Promise<{ body: string; broken: boolean }>;
  send(body: string): void;
  end(): void;
  leave(): void;
}

const FIELDS = { Expect: '100-continue', 'Content-Length': '5', 'X-Bytes': 'caf\u00e9' };

function client1(gateway: TestGateway, fields: Record<string, string> = FIELDS): Client {
  const statuses: number[] = [];
  const request = http.request({
    ...{ host: '127.0.0.1', port: gateway.http1, path: '/first', method: 'PUT', agent: false },
    headers: Object.entries({ Host: 'site', ...fields }).flat(),
  });
  request.once('socket', (socket) => socket.setDefaultEncoding('latin1'));
  request.on('information', ({ statusCode }) => statuses.push(statusCode));
  const answered = new Promise<{ body: string; broken: boolean }>((resolve) => {
    request.on('error', () => resolve({ body: '', broken: true }));
    request.on('response', (response) => {
      statuses.push(response.statusCode ?? 0);
      let body = '';
      response.on('data', (chunk: Buffer) => (body += chunk.toString()));
      response.on('error', () => {});
      response.on('close', () => resolve({ body, broken: !response.complete }));
    });
  });
  request.flushHeaders();
  return {
    statuses,
    answered,
    send: (body) => void request.write(body),
    end: () => void request.end(),
    leave: () => void request.destroy(),
  };
}

function client2(gateway: TestGateway, fields: Record<string, string> = FIELDS): Client {
  const statuses: number[] = [];
  const session = http2.connect(`http://127.0.0.1:${gateway.http2}`);
  session.on('error', () => {});
  const head = { ':method': 'PUT', ':path': '/first', ':authority': 'site', ...fields };
  const stream = session.request(head, { endStream: false });
  stream.on('headers', (headers) => statuses.push(Number(headers[':status'])));
  stream.on('response', (headers) => statuses.push(Number(headers[':status'])));
  const answered = new Promise<{ body: string; broken: boolean }>((resolve) => {
    let body = '';
    let failed = false;
    stream.on('data', (chunk: Buffer) => (body += chunk.toString()));
    stream.on('error', () => (failed = true));
    stream.on('close', () => {
      session.close();
      resolve({ body, broken: failed || stream.rstCode !== 0 });
    });
  });
  return {
    statuses,
    answered,
    send: (body) => void stream.write(body),
    end: () => void stream.end(),
    leave: () => session.destroy(),
  };
}

const OK = 'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok';
const HEAD_END = '\r\n\r\n';

for (const { name, connect } of [
  { name: 'HTTP/1.1', connect: client1 },
  { name: 'HTTP/2', connect: client2 },
]) {
  describe(`Expect: 100-continue over ${name} (RFC 9110 §10.1.1)`, () => {
    for (const [framing, fields, body] of [
      ['a length', FIELDS, 'hello'],
      ['chunks', { Expect: '100-continue', 'X-Bytes': 'caf\u00e9' }, '5\r\nhello\r\n0\r\n\r\n'],
    ] as const) {
      it(`is forwarded, and the client sends its body, with ${framing}, when the upstream asks for it`, async () => {
        let goOn = (): void => {};
        await using upstream = await rawOrigin((socket, text) => {
          if (text.endsWith(HEAD_END)) {
            goOn = () => socket.write('HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n');
          }
          if (text.endsWith(HEAD_END + body)) socket.write(OK);
        });
        // The clock stands still: nobody but the upstream can ask for the body.
        await using gateway = await proxyTo([upstream.url], {}, { clock: new TestClock() });
        const chunked = { 'Transfer-Encoding': 'chunked' };
        const isHttp1Chunked = name === 'HTTP/1.1' && framing === 'chunks';
        const client = connect(gateway, { ...fields, ...(isHttp1Chunked ? chunked : {}) });
        await until(() => upstream.received().endsWith(HEAD_END), 'the upstream has the head');
        assert.deepEqual(client.statuses, []);
        goOn();
        await until(() => client.statuses.length === 1, 'the client is told');
        client.send('hello');
        client.end();
        assert.deepEqual(await client.answered, { body: 'ok', broken: false });
        assert.deepEqual(client.statuses, [100, 200]);
        const [head = ''] = upstream.received().split(HEAD_END);
        assert.ok(head.startsWith('PUT /first HTTP/1.1\r\n'), head);
        assert.equal(head.match(/\r\nExpect: 100-continue/g)?.length, 1);
        assert.match(head, /\r\nx-bytes: caf\u00e9(\r\n|$)/i);
        assert.equal(head.match(/content-length|transfer-encoding/gi)?.length, 1);
        assert.ok(upstream.received().endsWith(HEAD_END + body));
        assert.deepEqual(gateway.faults, []);
      });
    }

    for (const status of [413, 417, 200]) {
      it(`is answered by the final ${status} of an upstream that does not want the body`, async () => {
        let closed = false;
        await using upstream = await rawOrigin((socket, text) => {
          socket.once('close', () => (closed = true));
          if (!text.endsWith(HEAD_END)) return;
          const final = `HTTP/1.1 ${status} Whatever\r\nContent-Length: 6\r\n\r\nenough`;
          socket.write(`HTTP/1.1 103 Early Hints\r\n\r\n${final}`);
        });
        await using gateway = await proxyTo([upstream.url], {}, { clock: new TestClock() });
        const client = connect(gateway);
        const { body, broken } = await client.answered;
        assert.deepEqual({ body, broken }, { body: 'enough', broken: false });
        assert.deepEqual(client.statuses, [103, status]);
        await until(() => closed, 'the upstream connection, that awaits a body, is closed');
        assert.ok(upstream.received().endsWith(HEAD_END));
        assert.deepEqual(gateway.faults, []);
      });
    }

    it('is met with 100 after a while when the upstream says nothing', async () => {
      await using upstream = await rawOrigin((socket, text) => {
        if (text.endsWith('hello')) socket.write(OK);
      });
      const clock = new TestClock();
      await using gateway = await proxyTo([upstream.url], {}, { clock });
      const client = connect(gateway);
      await until(() => upstream.received().endsWith(HEAD_END), 'the upstream has the head');
      clock.advance(999);
      assert.deepEqual(client.statuses, []);
      clock.advance(1);
      await until(() => client.statuses.length === 1, 'the client is told');
      client.send('hello');
      client.end();
      assert.equal((await client.answered).body, 'ok');
      assert.deepEqual(client.statuses, [100, 200]);
    });

    it('is answered by a final response without a body, such as a 204', async () => {
      await using upstream = await rawOrigin((socket) => {
        socket.write('HTTP/1.1 204 No Content\r\n\r\n');
      });
      await using gateway = await proxyTo([upstream.url], {}, { clock: new TestClock() });
      const client = connect(gateway);
      assert.deepEqual(await client.answered, { body: '', broken: false });
      assert.deepEqual(client.statuses, [204]);
    });

    it('goes to the next upstream when the first cannot be reached', async () => {
      await using upstream = await rawOrigin((socket, text) => {
        if (text.endsWith(HEAD_END)) socket.write('HTTP/1.1 100 Continue\r\n\r\n');
        if (text.endsWith('hello')) socket.write(OK);
      });
      const gone = `http://127.0.0.1:${await freePort()}`;
      await using gateway = await proxyTo([gone, upstream.url], {}, { clock: new TestClock() });
      const client = connect(gateway);
      await until(() => client.statuses.length === 1, 'the client is told');
      client.send('hello');
      client.end();
      assert.equal((await client.answered).body, 'ok');
    });

    it('leads to 502, without a retry, when the upstream has the head and hangs up', async () => {
      await using upstream = await rawOrigin((socket, text) => {
        if (text.endsWith(HEAD_END)) socket.end();
      });
      await using gateway = await proxyTo([upstream.url], {}, { clock: new TestClock() });
      const client = connect(gateway);
      await client.answered;
      assert.deepEqual(client.statuses, [502]);
      assert.equal(upstream.connections(), 1);
    });

    it('ends at the upstream when the client disconnects while it waits', async () => {
      let closed = false;
      await using upstream = await rawOrigin((socket) => {
        socket.once('close', () => (closed = true));
      });
      await using gateway = await proxyTo([upstream.url], {}, { clock: new TestClock() });
      const client = connect(gateway);
      await until(() => upstream.received().endsWith(HEAD_END), 'the upstream has the head');
      client.leave();
      await until(() => closed, 'the upstream connection is closed');
      await until(
        () => gateway.registry.upstreams().every((one) => one.inFlight === 0),
        'the upstream counts as idle',
      );
      assert.deepEqual(gateway.faults, []);
    });

    it('leads to 502 at once, without asking for the body, when no upstream can be reached', async () => {
      await using gateway = await proxyTo([`http://127.0.0.1:${await freePort()}`]);
      const client = connect(gateway);
      assert.equal((await client.answered).broken, false);
      assert.deepEqual(client.statuses, [502]);
    });

    for (const [what, overrides] of [
      ['when header_up deletes it', { headerUp: [{ kind: 'delete', name: 'Expect' }] }],
      ['with request_buffers', { requestBuffers: 2 }],
    ] as const satisfies readonly (readonly [string, Overrides])[]) {
      it(`is not forwarded ${what}, and the gateway asks for the body itself`, async () => {
        await using upstream = await rawOrigin((socket, text) => {
          if (text.endsWith('hello')) socket.write(OK);
        });
        await using gateway = await proxyTo([upstream.url], overrides, { clock: new TestClock() });
        const client = connect(gateway);
        await until(() => client.statuses.length === 1, 'the client is told');
        client.send('hello');
        client.end();
        assert.equal((await client.answered).body, 'ok');
        assert.doesNotMatch(upstream.received(), /expect/i);
      });
    }
  });
}

describe('Expect: 100-continue of an HTTP/1.1 client', () => {
  const talk = async (version: string, upstreamUrl: string) => {
    await using gateway = await proxyTo([upstreamUrl], {}, { clock: new TestClock() });
    const socket = net.connect(gateway.http1, '127.0.0.1').setEncoding('latin1');
    const fields = 'Host: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n';
    socket.write(`PUT / HTTP/${version}\r\n${fields}\r\n${version === '1.0' ? 'hello' : ''}`);
    let text = '';
    socket.on('data', (chunk: string) => (text += chunk));
    await once(socket, 'end');
    return text;
  };

  it('closes the connection of a client that was not asked for its body (RFC 9110 §10.1.1)', async () => {
    await using upstream = await rawOrigin((socket) => {
      socket.write('HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n');
    });
    assert.match(
      await talk('1.1', upstream.url),
      /^HTTP\/1\.1 413 [^]*\r\nConnection: close\r\n\r\n$/,
    );
  });

  it('leaves the connection of a client that was asked for its body open', async () => {
    await using upstream = await rawOrigin((socket, text) => {
      if (text.endsWith(HEAD_END)) socket.write('HTTP/1.1 100 Continue\r\n\r\n');
      if (text.endsWith('hello')) socket.write(OK);
    });
    await using gateway = await proxyTo([upstream.url], {}, { clock: new TestClock() });
    const socket = net.connect(gateway.http1, '127.0.0.1').setEncoding('latin1');
    for (let i = 0; i < 2; i += 1) {
      socket.write(
        'PUT / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n',
      );
      assert.match((await once(socket, 'data')).join(), /^HTTP\/1\.1 100 Continue\r\n\r\n$/);
      socket.write('hello');
      let answer = '';
      while (!answer.endsWith('ok')) answer += (await once(socket, 'data')).join();
      assert.match(answer, /^HTTP\/1\.1 200 /);
      assert.doesNotMatch(answer, /connection: close/i);
    }
    socket.destroy();
  });

  it('is ignored in an HTTP/1.0 request', async () => {
    await using upstream = await rawOrigin((socket, text) => {
      if (text.endsWith('hello')) socket.write(OK);
    });
    assert.match(await talk('1.0', upstream.url), /^HTTP\/1\.[01] 200 [^]*ok$/);
    assert.doesNotMatch(upstream.received(), /expect/i);
  });

  it('is dropped if no body follows', async () => {
    await using upstream = await rawOrigin((socket, text) => {
      if (text.endsWith(HEAD_END)) socket.write(OK);
    });
    await using gateway = await proxyTo([upstream.url]);
    const answer = await ask1(gateway.http1, { headers: { Expect: '100-continue' } });
    assert.equal(answer.body, 'ok');
    assert.doesNotMatch(upstream.received(), /expect/i);
  });

  it('works with Node as upstream, which sends 100 by itself', async () => {
    let expectation: string | undefined;
    await using upstream = await origin((request, response) => {
      expectation = request.headers.expect;
      request.pipe(response);
    });
    await using gateway = await proxyTo([upstream.url], {}, { clock: new TestClock() });
    const client = client1(gateway);
    await until(() => client.statuses.length === 1, 'the client is told');
    client.send('hello');
    client.end();
    assert.equal((await client.answered).body, 'hello');
    assert.equal(expectation, '100-continue');
  });
});
