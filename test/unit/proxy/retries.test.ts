import assert from 'node:assert/strict';
import net from 'node:net';
import { text } from 'node:stream/consumers';
import { describe, it } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import { ask1, PROTOCOLS } from '../http/exchange-server.ts';
import { freePort } from '../../support/free-port.ts';
import { origin, proxyTo, rawOrigin, until } from './gateway.ts';

describe('trying other upstreams', () => {
  for (const { name, ask, port } of PROTOCOLS) {
    it(`moves to the next one when one cannot be reached, with the body, over ${name}`, async () => {
      await using upstream = await origin((request, response) => request.pipe(response));
      const gone = `http://127.0.0.1:${await freePort()}`;
      await using gateway = await proxyTo([gone, upstream.url]);
      const answer = await ask(port(gateway), { method: 'POST', body: 'hello' });
      assert.equal(answer.status, 200);
      assert.equal(answer.body, 'hello');
    });
  }

  it('tries each upstream once, then answers 502', async () => {
    let tries = 0;
    const flaky = () =>
      rawOrigin((socket) => {
        tries += 1;
        socket.destroy();
      });
    await using first = await flaky();
    await using second = await flaky();
    await using third = await flaky();
    await using gateway = await proxyTo([first.url, second.url, third.url]);
    assert.equal((await ask1(gateway.http1)).status, 502);
    assert.ok(first.connections() === 1 && second.connections() === 1, `${tries} tries`);
  });

  it('repeats a safe request if no response has begun', async () => {
    await using dying = await rawOrigin((socket) => socket.destroy());
    await using upstream = await origin((_, response) => response.end('ok'));
    await using gateway = await proxyTo([dying.url, upstream.url]);
    assert.equal((await ask1(gateway.http1)).body, 'ok');
  });

  it('repeats a safe request on the same upstream when a kept connection was closed', async () => {
    await using upstream = await rawOrigin((socket, _, connection) => {
      if (connection === 1) socket.destroy();
      else socket.write('HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok');
    });
    await using gateway = await proxyTo([upstream.url]);
    assert.equal((await ask1(gateway.http1)).body, 'ok');
    assert.equal(upstream.connections(), 2);
  });

  it('repeats on a new connection, even if several kept ones have ended', async () => {
    const waiting: net.Socket[] = [];
    let [isGone, most] = [false, 0];
    const OK = 'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok';
    await using upstream = await rawOrigin((socket, _, connection) => {
      if (isGone && connection <= 2) socket.destroy();
      else if (isGone) socket.write(OK);
      else waiting.push(socket);
      most = Math.max(most, upstream.open());
      if (waiting.length === 2) for (const one of waiting.splice(0)) one.write(OK);
    });
    await using gateway = await proxyTo([upstream.url], {
      transport: { maxConnectionsPerHost: 2 },
    });
    await Promise.all([ask1(gateway.http1), ask1(gateway.http1)]);
    isGone = true;
    assert.equal((await ask1(gateway.http1)).body, 'ok');
    assert.equal(upstream.connections(), 3);
    assert.equal(most, 2);
  });

  it('repeats any request on the same upstream when a kept connection ends before the first byte of the body', async () => {
    const sockets: net.Socket[] = [];
    await using upstream = await rawOrigin((socket, received) => {
      sockets.push(socket);
      // Its body is still to come when the connection ends, whether the head has arrived or not.
      if (!received.includes('POST') || received.endsWith('hello'))
        socket.write('HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok');
    });
    await using gateway = await proxyTo([upstream.url]);
    assert.equal((await ask1(gateway.http1)).body, 'ok');
    const client = net.connect(gateway.http1, '127.0.0.1');
    client.write('POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nConnection: close\r\n\r\n');
    const [kept] = gateway.registry.upstreams();
    await until(() => kept?.inFlight === 1, 'the request is there');
    // It gets its connection at the end of the turn.
    await turn();
    await turn();
    sockets[0]?.destroy();
    await until(() => upstream.connections() === 2, 'the request has another connection');
    client.write('hello');
    assert.match(await text(client), /^HTTP\/1\.1 200 .*\r\n\r\nok$/s);
    assert.equal(upstream.connections(), 2);
    client.destroy();
  });

  it('never repeats an unsafe request once it was sent', async () => {
    await using dying = await rawOrigin((socket, text) => {
      if (text.includes('\r\n\r\n')) socket.destroy();
    });
    let reached = false;
    await using upstream = await origin((_, response) => {
      reached = true;
      response.end('ok');
    });
    await using gateway = await proxyTo([dying.url, upstream.url]);
    assert.equal((await ask1(gateway.http1, { method: 'POST', body: 'x' })).status, 502);
    assert.equal((await ask1(gateway.http1, { method: 'DELETE' })).status, 502);
    assert.equal(reached, false);
  });

  it('repeats what lb_retry_match allows, and nothing else, while no byte of a body was sent', async () => {
    await using dying = await rawOrigin((socket, text) => {
      if (text.includes('\r\n\r\n')) socket.destroy();
    });
    await using upstream = await origin((_, response) => response.end('ok'));
    await using gateway = await proxyTo(
      [dying.url, upstream.url],
      {},
      { mayRetry: async ({ method }) => method === 'DELETE' || method === 'PUT' },
    );
    assert.equal((await ask1(gateway.http1, { method: 'DELETE' })).body, 'ok');
    assert.equal((await ask1(gateway.http1)).status, 502);
    assert.equal((await ask1(gateway.http1, { method: 'PUT', body: 'x' })).status, 502);
  });

  it('never repeats a request if the upstream has received bytes of it', async () => {
    await using dying = await rawOrigin((socket, text) => {
      if (text.endsWith('0\r\n\r\n')) socket.destroy();
    });
    let reached = false;
    await using upstream = await origin((_, response) => {
      reached = true;
      response.end('ok');
    });
    await using gateway = await proxyTo([dying.url, upstream.url]);
    const answer = await ask1(gateway.http1, { method: 'GET', chunked: true, body: 'x' });
    assert.equal(answer.status, 502);
    assert.equal(reached, false);
  });

  it('never repeats after a timeout', async () => {
    await using silent = await rawOrigin(() => {});
    let reached = false;
    await using upstream = await origin((_, response) => {
      reached = true;
      response.end('ok');
    });
    await using gateway = await proxyTo([silent.url, upstream.url], {
      transport: { responseHeaderTimeoutMs: 50 },
    });
    assert.equal((await ask1(gateway.http1)).status, 504);
    assert.equal(reached, false);
  });

  it('continues for lb_try_duration until an upstream is available', async () => {
    const port = await freePort();
    let tries = 0;
    await using gateway = await proxyTo(
      [`http://127.0.0.1:${port}`],
      {
        loadBalancing: {
          policy: { kind: 'first' },
          tryDurationMs: 20_000,
          tryIntervalMs: 5,
          retries: null,
          retryMatch: null,
        },
      },
      {
        before: () => {
          tries += 1;
        },
      },
    );
    const answer = ask1(gateway.http1);
    await using upstream = await origin((_, response) => response.end('up'), { port });
    assert.equal((await answer).body, 'up');
    assert.equal(tries, 1);
    assert.equal(upstream.port, port);
  });

  it('gives up when lb_try_duration is over', async () => {
    await using gateway = await proxyTo([`http://127.0.0.1:${await freePort()}`], {
      loadBalancing: {
        policy: { kind: 'first' },
        tryDurationMs: 30,
        tryIntervalMs: 10,
        retries: null,
        retryMatch: null,
      },
    });
    assert.equal((await ask1(gateway.http1)).status, 502);
  });

  it('makes no more retries than lb_retries allows', async () => {
    const policy = { kind: 'first' } as const;
    for (const [retries, status] of [
      [0, 502],
      [1, 502],
      [2, 200],
    ] as const) {
      const gone = await Promise.all([freePort(), freePort()]);
      await using upstream = await origin((_, response) => response.end('ok'));
      await using gateway = await proxyTo(
        [...gone.map((port) => `http://127.0.0.1:${port}`), upstream.url],
        {
          loadBalancing: { policy, tryDurationMs: 0, tryIntervalMs: 1, retries, retryMatch: null },
        },
      );
      assert.equal((await ask1(gateway.http1)).status, status, String(retries));
    }
  });

  for (const retries of [1, 3]) {
    it(`makes all ${retries + 1} attempts with lb_retries ${retries}, in several rounds`, async () => {
      let tries = 0;
      const dying = () =>
        rawOrigin((socket) => {
          tries += 1;
          socket.destroy();
        });
      await using first = await dying();
      await using second = await dying();
      const loadBalancing = {
        policy: { kind: 'first' },
        ...{ tryDurationMs: 0, tryIntervalMs: 1, retries, retryMatch: null },
      } as const;
      for (const upstreams of [[first.url], [first.url, second.url]]) {
        tries = 0;
        await using gateway = await proxyTo(upstreams, { loadBalancing });
        assert.equal((await ask1(gateway.http1)).status, 502);
        assert.equal(tries, retries + 1);
      }
      const gone = `http://127.0.0.1:${await freePort()}`;
      await using gateway = await proxyTo([gone], { loadBalancing });
      assert.equal((await ask1(gateway.http1)).status, 502);
      assert.equal(gateway.registry.upstreams()[0]?.measures.failures, retries + 1);
    });
  }

  it('does not wait for an upstream just because lb_retries allows more retries', async () => {
    const gone = `http://127.0.0.1:${await freePort()}`;
    await using gateway = await proxyTo([gone], {
      loadBalancing: {
        policy: { kind: 'first' },
        tryDurationMs: 0,
        tryIntervalMs: 1,
        retries: 3,
        retryMatch: null,
      },
      passiveHealth: { failDurationMs: 60_000 },
    });
    assert.equal((await ask1(gateway.http1)).status, 502);
    assert.equal((await ask1(gateway.http1)).status, 503);
  });

  it('starts over, up to lb_retries, once every upstream has been tried', async () => {
    let tries = 0;
    await using upstream = await rawOrigin((socket) => {
      tries += 1;
      if (tries < 4) socket.destroy();
      else socket.write('HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok');
    });
    await using gateway = await proxyTo([upstream.url], {
      loadBalancing: {
        policy: { kind: 'first' },
        tryDurationMs: 0,
        tryIntervalMs: 1,
        retries: 9,
        retryMatch: null,
      },
    });
    assert.equal((await ask1(gateway.http1)).body, 'ok');
    assert.equal(tries, 4);
  });
});
