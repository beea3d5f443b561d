import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { limitRequestBody } from '../../../src/directives/request-body.ts';
import { HeaderList } from '../../../src/http/header-list.ts';
import { TestClock } from '../../support/test-clock.ts';
import { PROTOCOLS, serveExchanges } from '../http/exchange-server.ts';

const HANDLER = 'request_body';

describe('write_timeout of request_body', () => {
  for (const { name, ask, port } of PROTOCOLS) {
    it(`applies to a request whose body is limited and has arrived, over ${name}`, async () => {
      const clock = new TestClock();
      const limits = { maxSize: 100, readTimeoutMs: 0, writeTimeoutMs: 1000 };
      const handler = limitRequestBody({ kind: HANDLER, ...limits }, { clock });
      await using server = await serveExchanges((exchange) =>
        handler(exchange, async () => {
          for await (const _ of exchange.body);
          exchange.begin({ status: 200, headers: new HeaderList(), source: 'gateway' });
          // A turn later the body has closed as well.
          await new Promise((turn) => setImmediate(turn));
          const left = new Promise<void>((resolve) => exchange.onAbandoned(resolve));
          clock.advance(1000);
          await left;
        }),
      );
      const { status, broken } = await ask(port(server), { method: 'POST', body: 'short' });
      assert.deepEqual([status, broken], [200, true]);
    });
  }
});
