import assert from 'node:assert/strict';
import http from 'node:http';
import http2 from 'node:http2';
import { PassThrough, Transform } from 'node:stream';
import { text } from 'node:stream/consumers';
import { setImmediate as turn } from 'node:timers/promises';
import { describe, it } from 'node:test';
import type { Exchange, Handler } from '../../src/http/exchange.ts';
import { HeaderList } from '../../src/http/header-list.ts';
import { systemClock } from '../../src/kernel/clock.ts';
import { SubExchange } from '../../src/site/sub-exchange.ts';
import { deferred } from '../unit/discovery/site.ts';
import { PROTOCOLS, serveExchanges, serveMounted } from '../unit/http/exchange-server.ts';

/** Answers as part of another answer, as `handle_errors` does. */
const onBehalf =
  (handler: Handler): Handler =>
  (exchange, next) => {
    const { method, target } = exchange;
    const inner: Exchange = new SubExchange(exchange, {
      method,
      target,
      hasBody: false,
    });
    return handler(inner, next);
  };

/** Every implementation of an exchange, over both protocols. */
const WAYS = PROTOCOLS.flatMap(({ name, ...protocol }) => [
  {
    ...protocol,
    name: `over ${name}`,
    serve: (handler: Handler) => serveExchanges(handler, { limitMs: 60_000, clock: systemClock }),
  },
  { ...protocol, name: `mounted in a server for ${name}`, serve: serveMounted },
  {
    ...protocol,
    name: `on behalf of one over ${name}`,
    serve: (handler: Handler) => serveExchanges(onBehalf(handler)),
  },
]);

const respond =
  (status: number, fields: Record<string, string | string[]>, body = ''): Handler =>
  (exchange) => {
    exchange.begin({ status, headers: HeaderList.of(fields), source: 'gateway' }).end(body);
  };

/** Asks, and leaves when the first bytes are here. */
async function leave(port: number, isHttp2: boolean): Promise<void> {
  if (isHttp2) {
    const session = http2.connect(`http://127.0.0.1:${port}`);
    const stream = session.request({ ':path': '/' });
    await new Promise<void>((resolve) => void stream.once('data', () => resolve()));
    stream.on('error', () => {});
    stream.close(http2.constants.NGHTTP2_CANCEL);
    session.close();
    return;
  }
  await new Promise<void>((resolve) => {
    const request = http.get({ port, host: '127.0.0.1', agent: false }, (response) => {
      response.once('data', () => {
        request.destroy();
        resolve();
      });
    });
    request.on('error', () => {});
  });
}

for (const { name, ask, port, serve } of WAYS) {
  describe(`an exchange ${name}`, () => {
    it('keeps several Set-Cookie fields apart', async () => {
      await using server = await serve(
        respond(200, { 'Set-Cookie': ['a=1; Expires=Wed, 01 Jan 2031 00:00:00 GMT', 'b=2'] }, 'x'),
      );
      const answer = await ask(port(server));
      assert.deepEqual(answer.headers['set-cookie'], [
        'a=1; Expires=Wed, 01 Jan 2031 00:00:00 GMT',
        'b=2',
      ]);
    });

    it('joins other fields that occur twice, if the protocol requires one (RFC 9110 §5.3)', async () => {
      await using server = await serve(
        respond(200, { 'Content-Type': 'text/plain', Age: ['1', '1'], 'X-Two': ['1', '2'] }, 'x'),
      );
      const answer = await ask(port(server));
      assert.equal(answer.headers['x-two'], '1, 2');
      assert.equal(answer.status, 200);
      assert.deepEqual(server.faults, []);
    });

    it('never throws for fields that HTTP/2 forbids (RFC 9113 §8.2.2)', async () => {
      await using server = await serve((exchange) => {
        const headers = HeaderList.of({
          'X-Ok': 'yes',
          'Keep-Alive': 'timeout=9',
          'Proxy-Connection': 'keep-alive',
          'HTTP2-Settings': 'AAMAAABk',
          TE: 'gzip',
          Trailer: 'X-Sum',
          'Content-Length': '1',
        });
        if (exchange.httpVersion === '2.0') {
          headers.append('Connection', 'Upgrade');
          headers.append('Upgrade', 'h2c');
          headers.append('Transfer-Encoding', 'chunked');
        }
        exchange.begin({ status: 200, headers, source: 'upstream' }).end('x');
      });
      const answer = await ask(port(server));
      assert.deepEqual(server.faults, []);
      assert.equal(answer.status, 200);
      assert.equal(answer.headers['x-ok'], 'yes');
      assert.equal(answer.body, 'x');
    });

    for (const status of [204, 205, 304]) {
      it(`discards the body of a ${status} (RFC 9110 §15)`, async () => {
        await using server = await serve(respond(status, { ETag: '"1"' }, 'forbidden'));
        const answer = await ask(port(server));
        assert.equal(answer.status, status);
        assert.equal(answer.body, '');
        assert.equal(answer.broken, false);
      });
    }

    it('keeps Content-Length and discards the body in responses to HEAD (RFC 9110 §9.3.2)', async () => {
      await using server = await serve(respond(200, { 'Content-Length': '9' }, 'forbidden'));
      const answer = await ask(port(server), { method: 'HEAD' });
      assert.equal(answer.headers['content-length'], '9');
      assert.equal(answer.body, '');
      assert.equal(answer.broken, false);
    });

    it('sends 103 before the response, whatever its Link looks like (RFC 8297)', async () => {
      await using server = await serve((exchange) => {
        exchange.inform(103, HeaderList.of({ Link: '</a.css>; rel=preload' }));
        exchange.inform(103, HeaderList.of({ Link: 'not a link at all' }));
        return respond(200, {}, 'x')(exchange, () => Promise.resolve());
      });
      const answer = await ask(port(server));
      assert.deepEqual(server.faults, []);
      assert.deepEqual(answer.informational[0], { status: 103, link: '</a.css>; rel=preload' });
      assert.equal(answer.body, 'x');
    });

    it('sends trailer fields after a body of unknown length', async () => {
      await using server = await serve((exchange) => {
        const body = exchange.begin({ status: 200, headers: new HeaderList(), source: 'gateway' });
        body.write('x');
        exchange.end(body, HeaderList.of({ 'X-Sum': '42', Connection: 'x' }));
      });
      const answer = await ask(port(server));
      assert.equal(answer.trailers['x-sum'], '42');
      assert.equal(answer.body, 'x');
    });

    it('makes an aborted response look incomplete to the client', async () => {
      await using server = await serve((exchange) => {
        const body = exchange.begin({ status: 200, headers: new HeaderList(), source: 'gateway' });
        body.write('half', () => exchange.abort());
      });
      const answer = await ask(port(server));
      assert.equal(answer.status, 200);
      assert.equal(answer.broken, true);
    });

    it('runs head transforms once, the last registered first, and applies their wrappers', async () => {
      const order: string[] = [];
      await using server = await serve((exchange) => {
        for (const one of ['first', 'second']) {
          exchange.onHead((head) => {
            order.push(one);
            head.headers.append('X-Seen', one);
            return undefined;
          });
        }
        return respond(200, {}, 'x')(exchange, () => Promise.resolve());
      });
      const answer = await ask(port(server));
      assert.deepEqual(order, ['second', 'first']);
      assert.equal(answer.headers['x-seen'], 'second, first');
    });

    it('hands the response to an interceptor of its head, which then sends another one', async () => {
      const seen: unknown[] = [];
      await using server = await serve(async (exchange, next) => {
        const dropped = new PassThrough().resume();
        const release = exchange.interceptHead(({ status }) => (status === 500 ? dropped : null));
        await respond(500, { 'Content-Type': 'text/plain' }, 'failed')(exchange, next);
        exchange.abort();
        seen.push(exchange.begun, exchange.status);
        release();
        seen.push(exchange.begun, exchange.status);
        exchange.preset.append('X-Set', 'before');
        await respond(203, { 'X-Own': 'a', Vary: 'Accept' }, 'instead')(exchange, next);
      });
      const answer = await ask(port(server));
      assert.deepEqual([answer.status, answer.body], [203, 'instead']);
      assert.equal(answer.headers['x-set'], 'before');
      assert.deepEqual(seen, [true, 500, false, 0]);
    });

    it('puts fields that were set earlier before those of an app, and keeps its own unchanged', async () => {
      await using server = await serve((exchange) => {
        for (const name of ['X-Both', 'Content-Type', 'Vary']) exchange.preset.append(name, 'set');
        const isBesidePreset = exchange.target.startsWith('/app');
        const headers = HeaderList.of({ 'X-Both': 'own', 'Content-Type': 'text/css', Vary: 'own' });
        const head = { status: 200, headers, source: 'upstream' } as const;
        exchange.begin(isBesidePreset ? { ...head, isBesidePreset } : head).end();
      });
      const app = await ask(port(server), { path: '/app' });
      assert.deepEqual(
        [app.headers['x-both'], app.headers['content-type'], app.headers.vary],
        ['set, own', 'set', 'set, own'],
      );
      const own = await ask(port(server), { path: '/' });
      assert.deepEqual(
        [own.headers['x-both'], own.headers['content-type'], own.headers.vary],
        ['own', 'text/css', 'set, own'],
      );
    });

    it('refuses a second head with the code response-begun', async () => {
      await using server = await serve((exchange) => {
        const head = { status: 200, headers: new HeaderList(), source: 'gateway' } as const;
        exchange.begin(head).end();
        assert.throws(() => exchange.begin(head), { code: 'response-begun' });
      });
      assert.equal((await ask(port(server))).status, 200);
      assert.deepEqual(server.faults, []);
    });

    it('sends a status beyond 599 without throwing (RFC 9110 §15)', async () => {
      await using server = await serve(respond(999, {}, 'x'));
      const answer = await ask(port(server));
      assert.ok(answer.status === 999 || answer.status === 500, String(answer.status));
      assert.deepEqual(server.faults, []);
    });

    it('withholds a field from the head, from informational responses and from trailers', async () => {
      await using server = await serve((exchange) => {
        exchange.withhold(['X-Inside']);
        const read: (string | undefined)[] = [];
        exchange.onTrailers((trailers) => read.push(trailers.get('X-Inside')));
        exchange.inform(103, HeaderList.of({ Link: '</a.css>; rel=preload', 'X-Inside': '1' }));
        const headers = HeaderList.of({ 'X-Inside': '2', 'X-Ok': 'yes' });
        const body = exchange.begin({ status: 200, headers, source: 'upstream' });
        body.write('x');
        exchange.end(body, HeaderList.of({ 'X-Inside': '3', 'X-Sum': '42' }));
        assert.deepEqual(read, ['3']);
      });
      const answer = await ask(port(server));
      assert.deepEqual(server.faults, []);
      assert.equal(answer.headers['x-ok'], 'yes');
      assert.equal(answer.headers['x-inside'], undefined);
      assert.deepEqual(answer.trailers, { 'x-sum': '42' });
    });

    it('delays the response for an asynchronous transform', async () => {
      await using server = await serve((exchange) => {
        exchange.onHead(async (head) => {
          await turn();
          head.headers.set('X-Asked', 'yes');
        });
        const headers = new HeaderList();
        const body = exchange.begin({ status: 200, headers, source: 'upstream' });
        body.write('one ');
        body.end('two');
      });
      const answer = await ask(port(server));
      assert.equal(answer.headers['x-asked'], 'yes');
      assert.equal(answer.body, 'one two');
    });

    it('wraps the body in the order of the transforms, each inside the previous one', async () => {
      await using server = await serve((exchange) => {
        for (const mark of ['a', 'b']) {
          exchange.onHead(() => (body) => {
            const wrapper = new Transform({
              transform: (chunk, _encoding, done) => done(null, `${mark}(${chunk})`),
            });
            wrapper.pipe(body);
            return wrapper;
          });
        }
        return respond(200, {}, 'x')(exchange, () => Promise.resolve());
      });
      assert.equal((await ask(port(server))).body, 'a(b(x))');
    });

    it('lends its body, if it has one, to one reader after another until one consumes it', async () => {
      await using server = await serve(async (exchange, next) => {
        const loan = { onWanted: () => {}, stall: null };
        exchange.lendBody(loan)?.destroy();
        exchange.lendBody(loan)?.resume().destroy(new Error('the upstream hung up'));
        const body = exchange.lendBody(loan);
        assert.equal(body === null, !exchange.hasBody);
        const lent = body === null ? 'none' : await text(body);
        const rest = exchange.lendBody(loan);
        // What is left must not look like all of it.
        if (rest !== null) await assert.rejects(text(rest), { status: 502 });
        return respond(200, {}, lent)(exchange, next);
      });
      const expected = name.includes('on behalf') ? 'none' : 'hello';
      assert.equal((await ask(port(server), { method: 'POST', body: 'hello' })).body, expected);
      assert.equal((await ask(port(server))).body, 'none');
      assert.deepEqual(server.faults, []);
    });

    it('leaves the rest of a lent body to the code that reads the body itself', async () => {
      await using server = await serve(async (exchange, next) => {
        exchange.lendBody({ onWanted: () => {}, stall: null })?.destroy();
        const { body } = exchange;
        assert.equal(exchange.body, body, 'the same, however often it is asked for');
        return respond(200, {}, await text(body))(exchange, next);
      });
      const expected = name.includes('on behalf') ? '' : 'hello';
      assert.equal((await ask(port(server), { method: 'POST', body: 'hello' })).body, expected);
    });

    it('reports its status, and whether the response has begun', async () => {
      const seen: unknown[] = [];
      await using server = await serve((exchange) => {
        seen.push(exchange.status, exchange.begun);
        exchange
          .begin({ status: 201, headers: new HeaderList(), source: 'gateway' })
          .end('x', () => seen.push('sent'));
        seen.push(exchange.status, exchange.begun);
      });
      await ask(port(server));
      assert.deepEqual(seen.slice(0, 4), [0, false, 201, true]);
    });

    it('notifies listeners once that the client has left, including late ones, but not removed ones', async () => {
      const told: string[] = [];
      const { promise, resolve } = deferred();
      await using server = await serve(async (exchange) => {
        const body = exchange.begin({
          status: 200,
          headers: new HeaderList(),
          source: 'gateway',
        });
        body.on('error', () => {});
        body.write('first');
        exchange.onAbandoned(() => told.push('nobody'))();
        await new Promise<void>((left) => {
          exchange.onAbandoned(() => {
            told.push('one');
            left();
          });
        });
        assert.equal(exchange.abandoned, true);
        await new Promise<void>((late) => void exchange.onAbandoned(late));
        resolve();
      });
      await leave(port(server), name.includes('HTTP/2'));
      await promise;
      assert.deepEqual(told, ['one']);
      assert.deepEqual(server.faults, []);
    });
  });
}
