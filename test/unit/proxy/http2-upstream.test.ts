import assert from 'node:assert/strict';
import { once } from 'node:events';
import http from 'node:http';
import http2 from 'node:http2';
import type { Socket } from 'node:net';
import { after, describe, it } from 'node:test';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createServer as createTlsServer, type TLSSocket } from 'node:tls';
import { PassThrough, Writable } from 'node:stream';
import { defaultActiveHealth } from '../../../src/proxy/proxy-config.ts';
import { HeaderList } from '../../../src/http/header-list.ts';
import { systemClock } from '../../../src/kernel/clock.ts';
import { parseUpstream } from '../../../src/proxy/address.ts';
import { MAX_INFORMATIONAL } from '../../../src/proxy/forwarding.ts';
import { openConnections } from '../../../src/proxy/upstreams.ts';
import { createClientAuthority } from '../../support/client-authority.ts';
import { FLAG, frame, FRAME, headers } from '../../support/http2-frames.ts';
import { rawHttp2Origin } from '../../support/raw-http2-origin.ts';
import { TurnedClock } from '../../support/turned-clock.ts';
import { ask1, portOf } from '../http/exchange-server.ts';
import type { Exchange } from '../../../src/http/exchange.ts';
import { Http1Client, LeavingClient } from './http1-client.ts';
import { origin, type Overrides, proxyConfig, proxyTo, until } from './gateway.ts';

const { NGHTTP2_CANCEL, NGHTTP2_REFUSED_STREAM } = http2.constants;

/** More than the window of a stream, so that most of it waits. */
const UPLOAD = Buffer.alloc(256 * 1024);

/** An upstream of Node's that speaks HTTP/2 with prior knowledge. */
async function http2Origin(
  onStream: (stream: http2.ServerHttp2Stream, fields: http2.IncomingHttpHeaders) => void,
  settings: http2.Settings = {},
) {
  const server = http2.createServer({ settings });
  const sessions = new Set<http2.ServerHttp2Session>();
  let opened = 0;
  server.on('session', (session) => {
    opened += 1;
    sessions.add(session);
    session.once('close', () => sessions.delete(session));
  });
  server.on('stream', (stream, fields) => {
    stream.on('error', () => {});
    onStream(stream, fields);
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return {
    url: `h2c://127.0.0.1:${portOf(server)}`,
    sessions,
    opened: () => opened,
    /** Keeps the sessions, and accepts no more. */
    refuse: () => void server.close(),
    [Symbol.asyncDispose]: async () => {
      for (const session of sessions) session.destroy();
      await new Promise((done) => server.close(done));
    },
  };
}

/** A request over HTTP/2 to the gateway. */
function ask2(port: number, fields: http2.OutgoingHttpHeaders, options = {}) {
  const session = http2.connect(`http://127.0.0.1:${port}`);
  const stream = session.request({ ':path': '/', ...fields }, options);
  const answer = new Promise<{
    status: number;
    body: string;
    fields: http2.IncomingHttpHeaders;
    trailers: http2.IncomingHttpHeaders;
    broken: boolean;
  }>((resolve) => {
    let head: http2.IncomingHttpHeaders = {};
    let trailers: http2.IncomingHttpHeaders = {};
    let body = '';
    stream.on('response', (found) => (head = found));
    stream.on('trailers', (found) => (trailers = found));
    stream.on('data', (chunk: Buffer) => (body += chunk.toString()));
    stream.on('error', () => {});
    stream.on('close', () => {
      session.close();
      const status = Number(head[':status'] ?? 0);
      resolve({ status, body, fields: head, trailers, broken: stream.rstCode !== 0 });
    });
  });
  return { session, stream, answer };
}

const answered = (socket: Socket, stream: number): void => {
  socket.write(headers(stream, [[':status', '200']], FLAG.endHeaders));
  socket.write(frame(FRAME.data, FLAG.endStream, stream, 'ok'));
};

const goAway = (lastStream: number, code = 0): Buffer => {
  const payload = Buffer.alloc(8);
  payload.writeUInt32BE(lastStream, 0);
  payload.writeUInt32BE(code, 4);
  return frame(FRAME.goAway, 0, 0, payload);
};

describe('an h2c:// upstream (RFC 9113 §3.3)', () => {
  it('receives method, path, host, fields and body, and its response comes back', async () => {
    await using upstream = await http2Origin((stream, fields) => {
      let body = '';
      stream.on('data', (chunk: Buffer) => (body += chunk.toString()));
      stream.on('end', () => {
        stream.respond({ ':status': 201, 'x-back': 'é', 'set-cookie': ['a=1', 'b=2'] });
        const { ':method': method, ':path': path, ':authority': host, via, connection } = fields;
        stream.end(JSON.stringify({ method, path, host, via, connection, body }));
      });
    });
    await using gateway = await proxyTo([upstream.url]);
    const options = { method: 'POST', path: '/a?b', body: 'hello', headers: { Host: 'site' } };
    const answer = await ask1(gateway.http1, options);
    assert.equal(answer.status, 201);
    assert.deepEqual(JSON.parse(answer.body), {
      ...{ method: 'POST', path: '/a?b', host: 'site', via: '1.1 hubgate', body: 'hello' },
    });
    assert.deepEqual(answer.headers['set-cookie'], ['a=1', 'b=2']);
    assert.equal(answer.headers['x-back'], 'é');
  });

  it('appears in Via with the protocol that it speaks (RFC 9110 §7.6.3)', async () => {
    await using upstream = await http2Origin((stream) => {
      stream.additionalHeaders({ ':status': 103, link: '</a.css>' });
      stream.respond({ ':status': 200, via: '1.1 inner' });
      stream.end();
    });
    await using gateway = await proxyTo([upstream.url]);
    const request = http.get({ host: '127.0.0.1', port: gateway.http1, agent: false });
    const early: unknown[] = [];
    request.on('information', ({ headers }) => early.push(headers.via));
    const [response] = (await once(request, 'response')) as [http.IncomingMessage];
    response.resume();
    assert.equal(response.headers.via, '1.1 inner, 2.0 hubgate');
    assert.deepEqual(early, ['2.0 hubgate']);
  });

  it('streams in both directions at once over one shared session', async () => {
    await using upstream = await http2Origin((stream) => {
      stream.respond({ ':status': 200 });
      stream.pipe(stream);
    });
    await using gateway = await proxyTo([upstream.url]);
    const first = ask2(gateway.http2, { ':method': 'POST' }, { endStream: false });
    for (const word of ['one', 'two']) {
      first.stream.write(word);
      const [chunk] = await once(first.stream, 'data');
      assert.equal(String(chunk), word);
    }
    const second = ask2(gateway.http2, { ':method': 'POST' }, { endStream: false });
    second.stream.end('three');
    assert.equal((await second.answer).body, 'three');
    first.stream.end();
    assert.equal((await first.answer).body, 'onetwo');
    assert.equal(upstream.opened(), 1);
  });

  it('may send trailer fields beside a length (RFC 9113 §8.1)', async () => {
    for (const [type, fields] of [
      ['application/grpc+proto', {}],
      ['text/plain', { trailer: 'grpc-status' }],
    ] as const) {
      await using upstream = await http2Origin((stream) => {
        const head = { ':status': 200, 'content-type': type, 'content-length': 2, ...fields };
        stream.respond(head, { waitForTrailers: true });
        stream.once('wantTrailers', () => stream.sendTrailers({ 'grpc-status': '0' }));
        stream.end('ok');
      });
      await using gateway = await proxyTo([upstream.url]);
      const answer = await ask2(gateway.http2, {}).answer;
      assert.deepEqual([answer.body, answer.fields['content-length']], ['ok', '2']);
      assert.equal(answer.trailers['grpc-status'], '0', type);
    }
  });

  it('carries a gRPC exchange: messages, then the status in trailer fields', async () => {
    await using upstream = await http2Origin((stream, fields) => {
      stream.respond({ 'content-type': 'application/grpc' }, { waitForTrailers: true });
      stream.on('wantTrailers', () =>
        stream.sendTrailers({ 'grpc-status': '0', 'x-te': fields.te }),
      );
      stream.pipe(stream);
    });
    await using gateway = await proxyTo([upstream.url]);
    const fields = { ':method': 'POST', te: 'trailers', 'content-type': 'application/grpc' };
    const call = ask2(gateway.http2, fields, { endStream: false });
    call.stream.end('\0\0\0\0\x01m');
    const { body, trailers } = await call.answer;
    assert.equal(body, '\0\0\0\0\x01m');
    assert.equal(trailers['grpc-status'], '0');
    assert.equal(trailers['x-te'], 'trailers');
  });

  it('that puts everything in its head, as gRPC servers may, has that passed on to the client', async () => {
    await using upstream = await http2Origin((stream) => {
      const head = {
        'content-type': 'application/grpc',
        'grpc-status': '12',
        'grpc-message': 'no',
      };
      stream.respond(head, { endStream: true });
    });
    await using gateway = await proxyTo([upstream.url]);
    const call = ask2(gateway.http2, { ':method': 'POST', te: 'trailers' }, { endStream: true });
    const [[, flags], { fields, trailers }] = await Promise.all([
      once(call.stream, 'response') as Promise<[unknown, number]>,
      call.answer,
    ]);
    assert.equal(flags & http2.constants.NGHTTP2_FLAG_END_STREAM, 1);
    assert.deepEqual([fields['grpc-status'], fields['grpc-message']], ['12', 'no']);
    assert.deepEqual({ ...trailers }, {});
  });

  it('that sends nothing after its head may still have content inserted into its response', async () => {
    await using upstream = await http2Origin((stream) => {
      stream.respond({ 'content-type': 'text/plain' }, { endStream: true });
    });
    const before = (exchange: Exchange): void =>
      exchange.onHead(() => (body) => {
        body.write('more');
        return body;
      });
    await using gateway = await proxyTo([upstream.url], {}, { before });
    const { body } = await ask2(gateway.http2, {}, { endStream: true }).answer;
    assert.equal(body, 'more');
  });

  it('receives the trailer fields that a request announces', async () => {
    let found: http2.IncomingHttpHeaders = {};
    await using upstream = await http2Origin((stream) => {
      stream.on('trailers', (trailers) => (found = trailers));
      stream.resume().on('end', () => stream.respond({}, { endStream: true }));
    });
    await using gateway = await proxyTo([upstream.url]);
    const fields = { ':method': 'POST', trailer: 'x-sum' };
    const call = ask2(gateway.http2, fields, { endStream: false, waitForTrailers: true });
    call.stream.on('wantTrailers', () => call.stream.sendTrailers({ 'x-sum': '7', 'x-no': '1' }));
    call.stream.end('body');
    assert.equal((await call.answer).status, 200);
    assert.deepEqual(Object.entries(found), [['x-sum', '7']]);
  });

  it('has its 103 passed on, and the body is requested for a request with Expect: 100-continue', async () => {
    await using upstream = await http2Origin((stream, fields) => {
      if (fields.expect !== undefined) stream.additionalHeaders({ ':status': 100 });
      stream.additionalHeaders({ ':status': 103, link: '</a.css>' });
      stream.respond({ ':status': 200 });
      stream.pipe(stream);
    });
    await using gateway = await proxyTo([upstream.url]);
    const request = http.request({
      ...{ host: '127.0.0.1', port: gateway.http1, method: 'POST', agent: false },
      headers: { Expect: '100-continue', 'Content-Length': '4' },
    });
    const informed: number[] = [];
    request.on('information', ({ statusCode }) => informed.push(statusCode));
    const answered = once(request, 'response') as Promise<[http.IncomingMessage]>;
    request.flushHeaders();
    await once(request, 'continue');
    request.end('body');
    const [response] = await answered;
    const chunks = await response.toArray();
    assert.equal(Buffer.concat(chunks).toString(), 'body');
    assert.ok(informed.includes(103));
  });

  for (const status of [100, 103]) {
    it(`gets 502 for a flood of ${status}, but not for as many as are allowed`, async () => {
      for (const [count, wanted] of [
        [MAX_INFORMATIONAL, 200],
        [MAX_INFORMATIONAL + 1, 502],
      ] as const) {
        await using upstream = await http2Origin((stream) => {
          for (let i = 0; i < count; i += 1) stream.additionalHeaders({ ':status': status });
          stream.respond({ ':status': 200 }, { endStream: true });
        });
        await using gateway = await proxyTo([upstream.url]);
        const request = http.get({ host: '127.0.0.1', port: gateway.http1, agent: false });
        const [response] = (await once(request, 'response')) as [http.IncomingMessage];
        assert.equal(response.statusCode, wanted);
        response.resume();
      }
    });
  }

  for (const [how, end] of [
    [
      'a reset that names no error',
      (socket: Socket) => socket.write(frame(FRAME.reset, 0, 1, Buffer.alloc(4))),
    ],
    ['the end of its connection', (socket: Socket) => socket.end()],
  ] as const) {
    it(`causes the client’s response to be aborted if ${how} cuts its own short`, async () => {
      await using upstream = await rawHttp2Origin((socket, { type, stream }) => {
        if (type !== FRAME.headers) return;
        socket.write(headers(stream, [[':status', '200']], FLAG.endHeaders));
        socket.write(frame(FRAME.data, 0, stream, 'half'), () => end(socket));
      });
      await using gateway = await proxyTo([upstream.url]);
      const { status, broken } = await ask2(gateway.http2, {}).answer;
      assert.deepEqual({ status, broken }, { status: 200, broken: true });
    });
  }

  it('is notified when a client disconnects', async () => {
    let code = -1;
    await using upstream = await http2Origin((stream) => {
      stream.respond({ ':status': 200 });
      stream.write('first');
      stream.on('close', () => (code = stream.rstCode));
    });
    await using gateway = await proxyTo([upstream.url]);
    const { stream, session } = ask2(gateway.http2, {});
    await once(stream, 'data');
    session.destroy();
    await until(() => code !== -1, 'the stream ends');
    assert.equal(code, NGHTTP2_CANCEL);
    assert.equal(upstream.sessions.size, 1);
  });

  for (const [pieces, bytes] of [
    [12, 16_384],
    [3, 100],
  ] as const) {
    it(`gives a client that is slower than its connection all ${pieces * bytes} bytes`, async () => {
      let isClosed = false;
      await using upstream = await rawHttp2Origin((socket, { type, stream }) => {
        if (type !== FRAME.headers) return;
        socket.once('close', () => (isClosed = true));
        const frames = [headers(stream, [[':status', '200']], FLAG.endHeaders)];
        for (let i = 1; i <= pieces; i += 1) {
          const flags = i === pieces ? FLAG.endStream : 0;
          frames.push(frame(FRAME.data, flags, stream, Buffer.alloc(bytes)));
        }
        socket.end(Buffer.concat(frames));
      });
      const { transport } = proxyConfig([]);
      const connections = openConnections(parseUpstream(upstream.url), transport, null);
      let taken = 0;
      const body = new Writable({
        highWaterMark: 1,
        write: (chunk: Buffer, _encoding, done) => {
          taken += chunk.length;
          void until(() => isClosed, 'the connection has ended').then(() => done());
        },
      });
      const request = {
        ...{
          method: 'GET',
          target: '/',
          headers: new HeaderList(),
          body: null,
          contentLength: null,
          isRepeated: false,
        },
        ...{ trailers: () => new HeaderList(), clock: systemClock },
        client: { abandoned: false, onAbandoned: () => () => {} },
      };
      await connections.forward(request, {
        onInformation: () => {},
        onHead: () => body,
        onEnd: () => body.end(),
      });
      await once(body, 'finish');
      connections.destroy();
      assert.equal(taken, pieces * bytes);
    });
  }

  it('may listen on a Unix socket, and is health-checked over HTTP/2 too', async () => {
    const directory = mkdtempSync(join(tmpdir(), 'hubgate-up-socket-'));
    const server = http2.createServer();
    const asked: string[] = [];
    server.on('stream', (stream, fields) => {
      asked.push(String(fields[':path']));
      stream.respond({ ':status': 204 }, { endStream: true });
    });
    try {
      const path = join(directory, 'app.sock');
      server.listen(path);
      await once(server, 'listening');
      const activeHealth = { ...defaultActiveHealth, uri: '/up' };
      await using gateway = await proxyTo([`unix+h2c:${path}`], { activeHealth });
      await until(() => asked.includes('/up'), 'the check came');
      assert.equal((await ask1(gateway.http1)).status, 204);
    } finally {
      server.close();
      rmSync(directory, { recursive: true, force: true });
    }
  });
});

describe('a request that failed at an HTTP/2 upstream', () => {
  it('is retried elsewhere if it was refused, whatever its method (RFC 9113 §8.7)', async () => {
    await using refusing = await http2Origin((stream) => stream.close(NGHTTP2_REFUSED_STREAM));
    await using good = await http2Origin((stream) => stream.respond({ ':status': 204 }));
    await using gateway = await proxyTo([refusing.url, good.url], {
      passiveHealth: { failDurationMs: 60_000 },
    });
    assert.equal((await ask1(gateway.http1, { method: 'POST' })).status, 204);
    assert.equal(gateway.registry.upstreams()[0]?.failuresSince(0), 0);
  });

  for (const code of [http2.constants.NGHTTP2_NO_ERROR, http2.constants.NGHTTP2_INTERNAL_ERROR]) {
    it(`is retried over a new session when the old one sent GOAWAY without processing it, with code ${code} (§6.8)`, async () => {
      await using upstream = await rawHttp2Origin((socket, { type, stream }, connection) => {
        if (type !== FRAME.headers) return;
        if (connection === 1) socket.end(goAway(0, code));
        else answered(socket, stream);
      });
      await using gateway = await proxyTo([upstream.url]);
      assert.equal((await ask1(gateway.http1, { method: 'POST' })).body, 'ok');
      assert.deepEqual(upstream.requests, ['1/1', '2/1']);
    });
  }

  it('is not sent over a session that has received GOAWAY, whose streams still finish', async () => {
    const held: (() => void)[] = [];
    await using upstream = await rawHttp2Origin((socket, { type, stream }, connection) => {
      // The ping is answered by one who has read what came before it.
      if (type === FRAME.ping) held.push(() => answered(socket, 1));
      if (type !== FRAME.headers) return;
      if (connection > 1) answered(socket, stream);
      else socket.write(Buffer.concat([goAway(stream), frame(FRAME.ping, 0, 0, Buffer.alloc(8))]));
    });
    await using gateway = await proxyTo([upstream.url]);
    const first = ask1(gateway.http1);
    await until(() => held.length === 1, 'the session is known to go');
    assert.equal((await ask1(gateway.http1)).body, 'ok');
    for (const release of held) release();
    assert.equal((await first).body, 'ok');
    assert.deepEqual(upstream.requests, ['1/1', '2/1']);
  });

  it('fails if the connection fails after GOAWAY, and nothing of it stays open', {
    // Node 20 leaves a session as it is whose connection has failed, until it does not answer.
    skip: Number.parseInt(process.versions.node, 10) < 22,
  }, async () => {
    for (const when of ['before', 'after']) {
      const sockets: Socket[] = [];
      await using upstream = await rawHttp2Origin((socket, { type, stream }) => {
        // The ping is answered by one who has read what came before it. The second one is too long.
        if (type === FRAME.ping) socket.write(frame(FRAME.ping, 0, 0, Buffer.alloc(9)));
        if (type !== FRAME.headers) return;
        sockets.push(socket);
        if (when === 'after') socket.write(headers(stream, [[':status', '200']], FLAG.endHeaders));
        socket.write(Buffer.concat([goAway(stream), frame(FRAME.ping, 0, 0, Buffer.alloc(8))]));
      });
      await using gateway = await proxyTo([upstream.url]);
      const { status, broken } = await ask1(gateway.http1, { method: 'POST' });
      assert.deepEqual([status, broken], when === 'before' ? [502, false] : [200, true]);
      await until(() => sockets[0]?.destroyed === true, 'the connection is closed');
    }
  });

  it('is not retried if it may have been processed, unless its method is safe', async () => {
    await using upstream = await rawHttp2Origin((socket, { type, stream }, connection) => {
      if (type !== FRAME.headers) return;
      if (connection === 1) socket.end(goAway(stream));
      else if (connection === 2) socket.destroy();
      else answered(socket, stream);
    });
    await using gateway = await proxyTo([upstream.url]);
    assert.equal((await ask1(gateway.http1, { method: 'POST' })).status, 502);
    assert.deepEqual(upstream.requests, ['1/1']);
    assert.equal((await ask1(gateway.http1)).body, 'ok');
    assert.deepEqual(upstream.requests, ['1/1', '2/1', '3/1']);
  });

  it('ends with 504 when its session is dead, which a ping detects', async () => {
    const clock = new TurnedClock();
    let pings = 0;
    await using upstream = await rawHttp2Origin((_, { type, flags }) => {
      if (type === FRAME.ping && flags === 0) pings += 1;
    });
    await using gateway = await proxyTo([upstream.url], {}, { clock });
    const answer = ask1(gateway.http1, { method: 'POST' });
    await until(() => upstream.requests.length === 1, 'the request is there');
    clock.turn(31_000);
    await until(() => pings === 1, 'the ping is there');
    clock.turn(31_000);
    assert.equal((await answer).status, 504);
  });

  it('gets 502 if the upstream does not speak HTTP/2', async () => {
    await using upstream = await origin((_, response) => response.end());
    await using gateway = await proxyTo([upstream.url.replace('http', 'h2c')]);
    assert.equal((await ask1(gateway.http1)).status, 502);
  });
});

describe('sessions with an HTTP/2 upstream', () => {
  const holding = async (allowed: number) => {
    const held: http2.ServerHttp2Stream[] = [];
    let most = 0;
    let now = 0;
    const upstream = await http2Origin(
      (stream) => {
        now += 1;
        most = Math.max(most, now);
        held.push(stream);
        stream.once('close', () => (now -= 1));
      },
      { maxConcurrentStreams: allowed },
    );
    const release = (): void => {
      for (const stream of held.splice(0)) stream.respond({ ':status': 204 }, { endStream: true });
    };
    return { upstream, held, most: () => most, release };
  };

  it('are opened once if the upstream allows no streams, and the request does not wait forever', async () => {
    const { upstream } = await holding(0);
    await using _ = upstream;
    await using gateway = await proxyTo([upstream.url], { transport: { dialTimeoutMs: 300 } });
    assert.equal((await ask1(gateway.http1)).status, 504);
    assert.equal(upstream.opened(), 1);
  });

  it('are used as soon as the upstream allows streams', async () => {
    await using upstream = await http2Origin((stream) => stream.respond({}, { endStream: true }), {
      maxConcurrentStreams: 0,
    });
    // Longer than the timers of Node.
    const transport = { dialTimeoutMs: 2 ** 40 };
    await using gateway = await proxyTo([upstream.url], { transport });
    const asked = ask1(gateway.http1);
    await until(() => upstream.sessions.size === 1, 'the upstream is dialed');
    for (const session of upstream.sessions) session.settings({ maxConcurrentStreams: 5 });
    assert.equal((await asked).status, 200);
    assert.equal(upstream.opened(), 1);
  });

  it('have as many streams as the upstream allows; more requests open another session', async () => {
    const { upstream, held, release } = await holding(2);
    await using _ = upstream;
    await using gateway = await proxyTo([upstream.url]);
    const answers = Array.from({ length: 5 }, () => ask1(gateway.http1));
    await until(() => held.length === 5, 'all are there');
    assert.equal(upstream.opened(), 3);
    release();
    for (const { status } of await Promise.all(answers)) assert.equal(status, 204);
  });

  it('are limited to max_conns_per_host; further requests wait for a stream', async () => {
    const { upstream, held, most, release } = await holding(2);
    await using _ = upstream;
    await using gateway = await proxyTo([upstream.url], {
      transport: { maxConnectionsPerHost: 1 },
    });
    const answers = Array.from({ length: 3 }, () => ask1(gateway.http1));
    await until(() => held.length === 2, 'two are there');
    release();
    await until(() => held.length === 1, 'the third is there');
    release();
    for (const { status } of await Promise.all(answers)) assert.equal(status, 204);
    assert.deepEqual([upstream.opened(), most()], [1, 2]);
  });

  it('end when they have been idle for the time set by keepalive', async () => {
    const clock = new TurnedClock();
    await using upstream = await http2Origin((stream) => stream.respond({}, { endStream: true }));
    const overrides: Overrides = { transport: { keepAliveMs: 60_000 } };
    await using gateway = await proxyTo([upstream.url], overrides, { clock });
    await ask1(gateway.http1);
    assert.equal(upstream.sessions.size, 1);
    clock.turn(61_000);
    await until(() => upstream.sessions.size === 0, 'the session has ended');
  });

  for (const keepAliveMs of [0, 50]) {
    it(`end although all clients have left before the upstream allows streams, keepalive ${keepAliveMs}`, async () => {
      await using upstream = await http2Origin(
        (stream) => stream.respond({}, { endStream: true }),
        {
          maxConcurrentStreams: 0,
        },
      );
      using client = new Http1Client(upstream.url, { keepAliveMs });
      const leaving = new LeavingClient();
      const asked = client.ask({ client: leaving });
      await until(() => upstream.sessions.size === 1, 'the upstream is dialed');
      leaving.leave();
      assert.equal((await asked).failure, 'upstream-aborted unsent');
      for (const session of upstream.sessions) session.settings({ maxConcurrentStreams: 5 });
      await until(() => upstream.sessions.size === 0, 'the session has ended');
    });
  }

  it('are used further although clients have cancelled many uploads', async () => {
    let uploads = 0;
    await using upstream = await http2Origin((stream, { ':path': path }) => {
      if (path === '/upload') uploads += 1;
      else stream.respond({ ':status': 204 }, { endStream: true });
    });
    using client = new Http1Client(upstream.url);
    for (let round = 1; round <= 4; round += 1) {
      const leaving = new LeavingClient();
      const asked = Array.from({ length: 50 }, () => {
        const body = new PassThrough({ highWaterMark: UPLOAD.length });
        body.write(UPLOAD);
        return client.ask({ method: 'POST', target: '/upload', body, client: leaving });
      });
      await until(() => uploads === 50 * round, 'all of them have arrived');
      leaving.leave();
      for (const { failure } of await Promise.all(asked)) {
        assert.equal(failure, 'upstream-aborted sent');
      }
    }
    const { status, failure } = await client.ask();
    assert.deepEqual({ status, failure }, { status: 204, failure: null });
  });

  describe('without a stream and without room', () => {
    /** One request waits, and the only session has been told to open no more streams. Without a limit, a dial fails. */
    const waiting = async (transport: Overrides['transport'] = {}) => {
      const upstream = await http2Origin((stream) => stream.respond({}, { endStream: true }));
      const client = new Http1Client(upstream.url, transport);
      assert.equal((await client.ask()).status, 200);
      const [session] = upstream.sessions;
      assert.ok(session !== undefined);
      session.settings({ maxConcurrentStreams: 0 });
      await once(session, 'localSettings');
      if (transport.maxConnectionsPerHost === undefined) upstream.refuse();
      const leaving = new LeavingClient();
      return { upstream, client, leaving, asked: client.ask({ client: leaving }) };
    };

    it('end after a reload when the last waiting request has failed', async () => {
      const { upstream, client, asked } = await waiting();
      await using _ = upstream;
      using closing = client;
      closing.close();
      assert.equal((await asked).failure, 'upstream-broken unsent');
      await until(() => upstream.sessions.size === 0, 'the session has ended');
    });

    it('end after a reload when the last waiting client has left', async () => {
      const { upstream, client, leaving, asked } = await waiting({ maxConnectionsPerHost: 1 });
      await using _ = upstream;
      using closing = client;
      closing.close();
      leaving.leave();
      assert.equal((await asked).failure, 'upstream-aborted unsent');
      await until(() => upstream.sessions.size === 0, 'the session has ended');
    });

    it('end with the gateway, and no other is opened for the requests that wait', async () => {
      const { upstream, client, asked } = await waiting({ maxConnectionsPerHost: 1 });
      await using _ = upstream;
      client.destroy();
      assert.equal((await asked).failure, 'upstream-broken unsent');
      assert.equal(upstream.opened(), 1);
    });
  });
});

describe('the HTTP version for a TLS upstream (RFC 7301)', () => {
  const directory = mkdtempSync(join(tmpdir(), 'hubgate-up-versions-'));
  after(() => rmSync(directory, { recursive: true, force: true }));
  const authority = createClientAuthority(directory, 'authority');
  const certificate = authority.issue('localhost', 'serverAuth');
  assert.ok(readFileSync(authority.file).length > 0);

  const secureOrigin = async (protocols: readonly string[]) => {
    const [first, second] = [http.createServer(), http2.createServer()];
    let handshakes = 0;
    first.on('request', (_, response) => response.end('1.1'));
    second.on('stream', (stream) => {
      stream.respond({});
      stream.end('2');
    });
    const sockets = new Set<TLSSocket>();
    const server = createTlsServer({ ...certificate, ALPNProtocols: [...protocols] }, (socket) => {
      sockets.add(socket);
      socket.on('error', () => {});
      (socket.alpnProtocol === 'h2' ? second : first).emit('connection', socket);
    });
    server.on('connection', () => (handshakes += 1));
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    return {
      url: `https://127.0.0.1:${portOf(server)}`,
      handshakes: () => handshakes,
      [Symbol.asyncDispose]: async () => {
        for (const socket of sockets) socket.destroy();
        await new Promise((done) => server.close(done));
      },
    };
  };
  const speaking = (versions: readonly ('1.1' | '2')[]): Overrides => ({
    transport: { versions, tlsServerName: 'localhost', tlsTrustPoolFiles: [authority.file] },
  });

  for (const [offered, known, spoken] of [
    [['1.1'], ['h2', 'http/1.1'], '1.1'],
    [['1.1', '2'], ['h2', 'http/1.1'], '2'],
    [['1.1', '2'], ['http/1.1'], '1.1'],
    [['2'], ['h2', 'http/1.1'], '2'],
  ] as const) {
    it(`is ${spoken} if ${offered.join(' and ')} is offered and the upstream supports ${known.join(' and ')}`, async () => {
      await using upstream = await secureOrigin(known);
      await using gateway = await proxyTo([upstream.url], speaking(offered));
      assert.equal((await ask1(gateway.http1)).body, spoken);
      assert.equal((await ask1(gateway.http1)).body, spoken);
    });
  }

  it('is negotiated only once if the upstream has chosen HTTP/1.1', async () => {
    await using upstream = await secureOrigin(['http/1.1']);
    await using gateway = await proxyTo([upstream.url], speaking(['1.1', '2']));
    for (let i = 0; i < 3; i += 1) await ask1(gateway.http1);
    assert.equal(upstream.handshakes(), 2);
  });

  it('leads to 502 if only HTTP/2 is offered and the upstream does not support it', async () => {
    await using upstream = await secureOrigin(['http/1.1']);
    await using gateway = await proxyTo([upstream.url], speaking(['2']));
    assert.equal((await ask1(gateway.http1)).status, 502);
  });
});
