import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect } from 'node:net';
import { describe, it } from 'node:test';
import { limitRequestBody } from '../../../src/directives/request-body.ts';
import { HttpError } from '../../../src/http/errors.ts';
import type { Exchange } from '../../../src/http/exchange.ts';
import { HeaderList } from '../../../src/http/header-list.ts';
import { systemClock } from '../../../src/kernel/clock.ts';
import { TestClock } from '../../support/test-clock.ts';
import { PROTOCOLS, serveExchanges } from '../http/exchange-server.ts';

const HANDLER = 'request_body';
const CRLF = Buffer.from('\r\n');

function answer(exchange: Exchange): void {
  exchange.begin({ status: 200, headers: new HeaderList(), source: 'gateway' }).end();
}

/** Reads some of the body as a proxy does whose upstream answers before it has read everything. */
async function readSome(exchange: Exchange): Promise<void> {
  const body = exchange.lendBody({ onWanted: () => {}, stall: null });
  assert.ok(body);
  await once(body, 'data');
  body.destroy();
}

/** Sends a whole POST with this body and then a GET; resolves to the statuses of the responses. */
async function statusesOf(port: number, framing: string, ...body: Buffer[]): Promise<string[]> {
  const socket = connect(port, '127.0.0.1');
  socket.write(`POST / HTTP/1.1\r\nHost: a\r\n${framing}\r\n\r\n`);
  for (const part of body) socket.write(part);
  // The gateway reads this request after the body.
  socket.write('GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n');
  let received = '';
  for await (const chunk of socket.setEncoding('latin1')) received += chunk;
  return Array.from(received.matchAll(/HTTP\/1\.1 (\d+)/g), ([, status]) => status ?? '');
}

const SILENCE = { limitMs: 60_000, clock: systemClock, over: () => new Error('silent') };

describe('max_size of request_body', () => {
  it('lets a client send the rest of a body that turns out to be too long', async () => {
    const limits = { maxSize: 100_000, readTimeoutMs: 0, writeTimeoutMs: 0 };
    const limit = limitRequestBody({ kind: HANDLER, ...limits }, { clock: systemClock });
    await using server = await serveExchanges(
      (exchange) =>
        limit(exchange, async () => {
          for await (const _ of exchange.body);
          answer(exchange);
        }),
      SILENCE,
    );
    const chunk = Buffer.concat([Buffer.from('10000\r\n'), Buffer.alloc(0x10000), CRLF]);
    const body = [...Array.from({ length: 16 }, () => chunk), Buffer.from('0\r\n\r\n')];
    const statuses = await statusesOf(server.http1, 'Transfer-Encoding: chunked', ...body);
    assert.deepEqual(statuses, ['413', '200']);
  });

  const handlers: Record<string, (exchange: Exchange) => void | Promise<void>> = {
    'answers without it': answer,
    'fails without it': () => {
      throw new HttpError(403, 'no');
    },
    'answers after a part of it': async (exchange) => {
      await readSome(exchange);
      answer(exchange);
    },
    'fails after a part of it': async (exchange) => {
      await readSome(exchange);
      throw new HttpError(502, 'gone');
    },
  };
  for (const [name, handle] of Object.entries(handlers)) {
    it(`lets a client send the rest of a body if a handler ${name}`, async () => {
      const limits = { maxSize: 10_000_000, readTimeoutMs: 0, writeTimeoutMs: 0 };
      const limit = limitRequestBody({ kind: HANDLER, ...limits }, { clock: systemClock });
      await using server = await serveExchanges(
        (exchange) => limit(exchange, () => (exchange.hasBody ? handle : answer)(exchange)),
        SILENCE,
      );
      const size = 1_000_000;
      const statuses = await statusesOf(
        server.http1,
        `Content-Length: ${size}`,
        Buffer.alloc(size),
      );
      assert.equal(statuses.length, 2);
      assert.deepEqual(server.faults, []);
    });
  }
});

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
