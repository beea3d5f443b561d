import assert from 'node:assert/strict';
import { once } from 'node:events';
import http from 'node:http';
import { describe, it } from 'node:test';
import { defaultActiveHealth } from '../../../src/proxy/proxy-config.ts';
import { ReverseProxy } from '../../../src/proxy/reverse-proxy.ts';
import { UpstreamRegistry } from '../../../src/proxy/upstreams.ts';
import { TestClock } from '../../support/test-clock.ts';
import { ask1 } from '../http/exchange-server.ts';
import { freePort } from '../../support/free-port.ts';
import { origin, proxyConfig, proxyOptions, proxyTo, rawOrigin, until } from './gateway.ts';

const CHECK = {
  ...defaultActiveHealth,
  uri: '/health',
  port: null,
  intervalMs: 30_000,
  timeoutMs: 5_000,
  status: '2xx',
  headers: [{ name: 'X-Check', value: 'yes' }],
};

describe('passive health', () => {
  it('skips an upstream for fail_duration after max_fails failures, then answers 503', async () => {
    const clock = new TestClock();
    const gone = `http://127.0.0.1:${await freePort()}`;
    await using gateway = await proxyTo(
      [gone],
      { passiveHealth: { failDurationMs: 10_000, maxFails: 2 } },
      { clock },
    );
    assert.equal((await ask1(gateway.http1)).status, 502);
    assert.equal((await ask1(gateway.http1)).status, 502);
    assert.equal((await ask1(gateway.http1)).status, 503);
    clock.advance(10_001);
    assert.equal((await ask1(gateway.http1)).status, 502);
  });

  it('counts unhealthy_status as failures', async () => {
    await using bad = await origin((_, response) => response.writeHead(500).end());
    await using good = await origin((_, response) => response.end('good'));
    await using gateway = await proxyTo([bad.url, good.url], {
      passiveHealth: { failDurationMs: 10_000, unhealthyStatus: ['5xx'] },
    });
    assert.equal((await ask1(gateway.http1)).status, 500);
    assert.equal((await ask1(gateway.http1)).body, 'good');
  });

  it('counts responses slower than unhealthy_latency as failures', async () => {
    const clock = new TestClock();
    await using slow = await origin((_, response) => {
      clock.advance(100);
      response.end('slow');
    });
    await using good = await origin((_, response) => response.end('good'));
    await using gateway = await proxyTo(
      [slow.url, good.url],
      { passiveHealth: { failDurationMs: 10_000, unhealthyLatencyMs: 50 } },
      { clock },
    );
    assert.equal((await ask1(gateway.http1)).body, 'slow');
    assert.equal((await ask1(gateway.http1)).body, 'good');
  });

  it('gives no upstream more than unhealthy_request_count requests at once', async () => {
    const waiting: (() => void)[] = [];
    await using upstream = await origin((_, response) => {
      waiting.push(() => response.end('ok'));
    });
    await using gateway = await proxyTo([upstream.url], {
      passiveHealth: { unhealthyRequestCount: 1 },
    });
    const first = ask1(gateway.http1);
    await until(() => waiting.length === 1, 'the first is with the app');
    assert.equal((await ask1(gateway.http1)).status, 503);
    waiting[0]?.();
    assert.equal((await first).body, 'ok');
  });

  it('does not count a client that disconnects', async () => {
    await using upstream = await rawOrigin(() => {});
    await using gateway = await proxyTo([upstream.url], {
      passiveHealth: { failDurationMs: 10_000 },
    });
    const { connect } = await import('node:net');
    const socket = connect(gateway.http1, '127.0.0.1');
    socket.write('GET / HTTP/1.1\r\nHost: a\r\n\r\n');
    await until(() => upstream.received() !== '', 'the request is there');
    socket.destroy();
    await until(() => gateway.statuses.includes(499), 'the gateway notes 499');
    assert.equal(gateway.registry.upstreams()[0]?.failuresSince(0), 0);
  });

  it('survives a reload, by address', async () => {
    const registry = new UpstreamRegistry();
    const gone = `http://127.0.0.1:${await freePort()}`;
    const config = proxyConfig([gone], { passiveHealth: { failDurationMs: 60_000 } });
    const before = new ReverseProxy(config, proxyOptions(registry));
    registry.upstreams()[0]?.recordFailure(performance.now());
    const after = new ReverseProxy(config, proxyOptions(registry));
    before.close();
    assert.equal(registry.upstreams()[0]?.failuresSince(0), 1);
    after.close();
    assert.deepEqual(registry.upstreams(), []);
  });
});

describe('active health', () => {
  it('removes an upstream and restores it', async () => {
    const clock = new TestClock();
    let status = 503;
    let checks = 0;
    await using upstream = await origin((request, response) => {
      if (request.url === '/health' && request.headers['x-check'] === 'yes') {
        checks += 1;
        response.writeHead(status).end();
      } else {
        response.end('ok');
      }
    });
    await using gateway = await proxyTo([upstream.url], { activeHealth: CHECK }, { clock });
    const failing = (): boolean => (gateway.registry.upstreams()[0]?.failingChecks.size ?? 0) > 0;
    await until(failing, 'the first check has failed');
    assert.equal((await ask1(gateway.http1)).status, 503);
    status = 204;
    clock.advance(30_000);
    await until(() => !failing(), 'the second check is good');
    assert.equal((await ask1(gateway.http1)).body, 'ok');
    assert.equal(checks, 2);
  });

  it('counts a redirect as a failure, and so a response that does not arrive in time', async () => {
    const clock = new TestClock();
    await using redirecting = await origin((_, response) =>
      response.writeHead(302, { location: '/' }).end(),
    );
    await using silent = await rawOrigin(() => {});
    await using gateway = await proxyTo(
      [redirecting.url, silent.url],
      { activeHealth: CHECK },
      { clock },
    );
    await until(() => silent.received() !== '', 'the check is under way');
    clock.advance(5_000);
    await until(
      () => gateway.registry.upstreams().every((upstream) => upstream.failingChecks.size === 1),
      'both are out',
    );
    assert.equal((await ask1(gateway.http1)).status, 503);
  });

  it('checks another port if health_port is set', async () => {
    let asked = '';
    await using health = await origin((request, response) => {
      asked = String(request.headers.host);
      response.end();
    });
    await using upstream = await origin((_, response) => response.end('ok'));
    await using gateway = await proxyTo([upstream.url], {
      activeHealth: { ...CHECK, port: health.port },
    });
    await until(() => asked !== '', 'the check came');
    assert.equal(asked, `127.0.0.1:${health.port}`);
    assert.equal((await ask1(gateway.http1)).body, 'ok');
  });

  it('waits for no connection that max_conns_per_host gives to requests', async () => {
    const clock = new TestClock();
    let checks = 0;
    await using upstream = await origin((request, response) => {
      if (request.url === '/health') {
        checks += 1;
        response.end();
      } else response.write('a stream that stays open');
    });
    await using gateway = await proxyTo(
      [upstream.url],
      { activeHealth: CHECK, transport: { maxConnectionsPerHost: 1 } },
      { clock },
    );
    const [state] = gateway.registry.upstreams();
    const run = (): number => [...(state?.checkRuns.values() ?? [])][0] ?? 0;
    await until(() => run() === 1, 'the first check is over');
    const stream = http.get({ port: gateway.http1, host: '127.0.0.1', path: '/', agent: false });
    const [response] = (await once(stream, 'response')) as [http.IncomingMessage];
    clock.advance(30_000);
    await until(() => run() === 2, 'the second check is over');
    assert.deepEqual([checks, state?.failingChecks.size], [2, 0]);
    response.destroy();
  });

  it('needs health_fails failures in a row to remove an upstream, and health_passes successes to restore it', async () => {
    const clock = new TestClock();
    let status = 204;
    await using upstream = await origin((_, response) => response.writeHead(status).end());
    const activeHealth = { ...CHECK, fails: 2, passes: 2 };
    await using gateway = await proxyTo([upstream.url], { activeHealth }, { clock });
    const [state] = gateway.registry.upstreams();
    const run = (): number => [...(state?.checkRuns.values() ?? [])][0] ?? 0;
    const seen: boolean[] = [];
    let before = 0;
    for (const next of [204, 503, 204, 503, 503, 204, 503, 204, 204]) {
      status = next;
      if (seen.length > 0) clock.advance(30_000);
      await until(() => run() !== before, 'the check is over');
      before = run();
      seen.push(state?.failingChecks.size === 0);
    }
    assert.deepEqual(seen, [true, true, true, true, false, false, false, false, true]);
  });

  it('compares the beginning of the body, and uses health_method', async () => {
    const methods: string[] = [];
    await using other = await origin((request, response) => {
      methods.push(String(request.method));
      response.end('{"status":"down"}');
    });
    let sent = 0;
    await using endless = await origin((_, response) => {
      response.write('{"status":"up"}');
      const more = (): void => {
        sent += 16_384;
        if (!response.destroyed) response.write('x'.repeat(16_384), () => setImmediate(more));
      };
      more();
    });
    await using good = await origin((_, response) => response.end('{"status":"up"}'));
    const activeHealth = { ...CHECK, method: 'POST', body: { pattern: '"status": ?"up"' } };
    const urls = [other.url, endless.url, good.url];
    await using gateway = await proxyTo(urls, { activeHealth }, { clock: new TestClock() });
    const states = gateway.registry.upstreams();
    await until(() => states.every(({ checkRuns }) => checkRuns.size === 1), 'all are checked');
    assert.deepEqual(
      states.map(({ failingChecks }) => failingChecks.size),
      [1, 0, 0],
    );
    assert.deepEqual(methods, ['POST']);
    assert.ok(sent < 32 * 1024 * 1024, String(sent));
  });

  it('stops when its proxy is closed', async () => {
    const clock = new TestClock();
    let checks = 0;
    await using upstream = await origin((request, response) => {
      if (request.url === '/health') checks += 1;
      response.writeHead(503).end();
    });
    await using gateway = await proxyTo([upstream.url], { activeHealth: CHECK }, { clock });
    const [state] = gateway.registry.upstreams();
    await until(() => state?.failingChecks.size === 1, 'the first check is over');
    gateway.proxy.close();
    clock.advance(60_000);
    await ask1(upstream.port);
    assert.equal(checks, 1);
  });
});
