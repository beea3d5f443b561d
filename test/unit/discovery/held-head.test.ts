import assert from 'node:assert/strict';
import { once } from 'node:events';
import http from 'node:http';
import { describe, it } from 'node:test';
import { HeaderList } from '../../../src/http/header-list.ts';
import type { Exchange } from '../../../src/http/exchange.ts';
import { PROTOCOLS, serveExchanges } from '../http/exchange-server.ts';
import { deferred } from './site.ts';

const head = (fields: Record<string, string> = {}, status = 200) => ({
  status,
  headers: HeaderList.of(fields),
  source: 'upstream' as const,
});

for (const { name, ask, port } of PROTOCOLS) {
  describe(`a delayed head, over ${name}`, () => {
    it('holds the body back, and runs the later transforms when it is released', async () => {
      const token = deferred();
      const order: string[] = [];
      await using server = await serveExchanges(async (exchange) => {
        exchange.withhold(['x-secret']);
        exchange.onHead(({ headers }) => {
          order.push('after');
          headers.append('x-after', headers.get('x-token') ?? 'none');
          return undefined;
        });
        exchange.onHead(({ headers }) =>
          token.promise.then(() => {
            order.push('waited');
            headers.append('x-token', 't');
          }),
        );
        exchange.onHead(() => {
          order.push('before');
          return undefined;
        });
        const body = exchange.begin(head({ trailer: 'x-sum', 'x-secret': '1' }));
        assert.equal(exchange.begun, true);
        body.write('one ');
        await new Promise((resolve) => setImmediate(resolve));
        assert.deepEqual(order, ['before']);
        token.resolve();
        body.write('two');
        exchange.end(body, HeaderList.of({ 'x-sum': '7', 'x-secret': '2' }));
      });
      const answer = await ask(port(server), { headers: { te: 'trailers' } });
      assert.deepEqual(order, ['before', 'waited', 'after']);
      assert.equal(answer.headers['x-after'], 't');
      assert.equal(answer.headers['x-secret'], undefined);
      assert.equal(answer.body, 'one two');
      assert.equal(answer.trailers['x-sum'], '7');
      assert.equal(answer.trailers['x-secret'], undefined);
      assert.equal(answer.broken, false);
      assert.deepEqual(server.faults, []);
    });

    it('passes on a body larger than the buffers, complete and in order', async () => {
      const chunks = Array.from({ length: 64 }, (_, index) => Buffer.alloc(40_000, 65 + index));
      await using server = await serveExchanges(async (exchange) => {
        exchange.onHead(() => Promise.resolve());
        const body = exchange.begin(head());
        for (const chunk of chunks) if (!body.write(chunk)) await once(body, 'drain');
        body.end();
      });
      const answer = await ask(port(server));
      assert.equal(answer.body, Buffer.concat(chunks).toString());
    });

    it('sends no body if there is none', async () => {
      await using server = await serveExchanges((exchange) => {
        exchange.onHead(() => Promise.resolve());
        exchange.begin(head({}, exchange.target === '/304' ? 304 : 200)).end('not for HEAD');
      });
      assert.equal((await ask(port(server), { method: 'HEAD' })).body, '');
      assert.equal((await ask(port(server), { path: '/304' })).status, 304);
    });

    it('aborts a response that cannot be sent in the end', async () => {
      await using server = await serveExchanges((exchange) => {
        exchange.onHead(() => Promise.reject(new Error('against the contract')));
        exchange.begin(head()).end('body');
      });
      const answer = await ask(port(server)).catch(() => null);
      assert.ok(answer === null || answer.broken);
      assert.deepEqual(server.faults, []);
    });
  });
}

describe('a delayed head', () => {
  it('notices when the client disconnects meanwhile', async () => {
    const token = deferred();
    const seen = deferred();
    let exchange: Exchange | undefined;
    await using server = await serveExchanges((given) => {
      exchange = given;
      given.onHead(() => token.promise);
      given.begin(head()).end('body');
      seen.resolve();
    });
    const request = http.get({ port: server.http1, host: '127.0.0.1' });
    request.on('error', () => {});
    await seen.promise;
    const { signal } = exchange ?? assert.fail();
    request.destroy();
    if (!signal.aborted) await once(signal, 'abort');
    token.resolve();
    await new Promise((resolve) => setImmediate(resolve));
    assert.deepEqual(server.faults, []);
  });
});
