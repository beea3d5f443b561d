import assert from 'node:assert/strict';
import { once } from 'node:events';
import net from 'node:net';
import { describe, it, type TestContext } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import { answer } from '../../../src/http/answer.ts';
import type { Exchange, Handler } from '../../../src/http/exchange.ts';
import { MAX_BEGUN, MAX_PIPELINED } from '../../../src/server/pipelined-requests.ts';
import { settled } from '../../support/settled.ts';
import { serveExchanges } from '../http/exchange-server.ts';

const BURST = 20_000;
const GET = 'GET / HTTP/1.1\r\nHost: a\r\n\r\n';

async function serve(test: TestContext, handler: Handler): Promise<net.Socket> {
  const server = await serveExchanges(handler);
  const client = net.connect(server.http1, '127.0.0.1').setEncoding('latin1');
  client.on('error', () => {});
  test.after(async () => {
    client.destroy();
    await server.close();
  });
  await once(client, 'connect');
  return client;
}

const ok = (exchange: Exchange): void => answer(exchange, 200, {}, 'ok');

describe('requests that a client pipelines over HTTP/1.1', () => {
  it('are not even parsed while too many earlier ones wait, and all get a response in the end', async (test) => {
    const waiting: Exchange[] = [];
    let all = 0;
    const taken = (): number => all;
    const client = await serve(test, (exchange) => {
      all += 1;
      waiting.push(exchange);
    });
    let text = '';
    client.on('data', (chunk: string) => (text += chunk));
    client.write(GET.repeat(BURST));
    while (taken() <= MAX_PIPELINED) await turn();
    await settled(taken);
    assert.equal(taken(), MAX_PIPELINED + 1);
    for (let rounds = 0; rounds < 5; rounds += 1) {
      for (const exchange of waiting.splice(0, 100)) ok(exchange);
      await settled(taken);
      assert.ok(waiting.length <= MAX_PIPELINED + 1, String(waiting.length));
    }
    for (const rest = waiting; text.split('HTTP/1.1 200 OK').length <= BURST; await turn()) {
      for (const exchange of rest.splice(0)) ok(exchange);
    }
    assert.equal(text.split('HTTP/1.1 200 OK').length - 1, BURST);
  });

  it('wait for the previous one even if they could be answered at once', async (test) => {
    const taken: Exchange[] = [];
    const client = await serve(test, (exchange) => {
      if (taken.push(exchange) > 1) ok(exchange);
    });
    client.resume();
    client.write(GET.repeat(BURST));
    while (taken.length <= MAX_BEGUN) await turn();
    await settled(() => taken.length);
    // Node itself stops where 16 KiB of answers wait.
    assert.ok(taken.length > MAX_BEGUN && taken.length <= MAX_PIPELINED + 1, String(taken.length));
    for (const first of taken.slice(0, 1)) ok(first);
    while (taken.length < BURST) await turn();
  });

  it('are taken a few per turn of the event loop', async (test) => {
    const turns: number[] = [];
    let inTurn = 0;
    const client = await serve(test, (exchange) => {
      if (inTurn === 0) {
        setImmediate(() => {
          turns.push(inTurn);
          inTurn = 0;
        });
      }
      inTurn += 1;
      ok(exchange);
    });
    client.resume();
    client.write(GET.repeat(BURST));
    const sum = (): number => turns.reduce((all, one) => all + one, 0);
    while (sum() < BURST) await turn();
    await settled(sum);
    assert.equal(sum(), BURST);
    assert.ok(Math.max(...turns) <= MAX_BEGUN, String(Math.max(...turns)));
  });

  it('are read whole if they have bodies', async (test) => {
    const bodies: string[] = [];
    const client = await serve(test, async (exchange) => {
      let body = '';
      for await (const chunk of exchange.body) body += String(chunk);
      bodies.push(body);
      ok(exchange);
    });
    client.resume();
    const expected = Array.from({ length: 1000 }, (_, n) => `${n}`.repeat(1 + (n % 200)));
    for (const body of expected) {
      client.write(`POST / HTTP/1.1\r\nHost: a\r\nContent-Length: ${body.length}\r\n\r\n${body}`);
    }
    while (bodies.length < expected.length) await turn();
    assert.deepEqual(bodies, expected);
  });

  it('are ignored after one that is refused', async (test) => {
    let taken = 0;
    const client = await serve(test, (exchange) => {
      taken += 1;
      ok(exchange);
    });
    let text = '';
    client.on('data', (chunk: string) => (text += chunk));
    client.write(`${GET}GET / HTTP/1.1\r\n\r\n${GET.repeat(BURST)}`);
    await once(client, 'close');
    assert.equal(taken, 1);
    assert.match(text, /^HTTP\/1\.1 200 OK[^]*HTTP\/1\.1 400 Bad Request/);
  });
});
