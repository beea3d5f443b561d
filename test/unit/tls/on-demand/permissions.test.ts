import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { describe, it, type TestContext } from 'node:test';
import { Permissions } from '../../../../src/tls/on-demand/permissions.ts';
import { TestClock } from '../../../support/test-clock.ts';

describe('permission for a certificate on demand', () => {
  it('is remembered for a while, a refusal for less time, a failure for seconds', async (test) => {
    const { permissions, clock, app, options } = await setUp(test);
    const ask = async (status: number) => {
      app.status = status;
      return permissions.allows('a.example.com', options);
    };
    assert.equal(await ask(404), false);
    assert.equal(await ask(200), false);
    clock.advance(61_000);
    assert.equal(await ask(200), true);
    clock.advance(9 * 60_000);
    assert.equal(await ask(404), true);
    clock.advance(2 * 60_000);
    assert.equal(await ask(404), false);
    assert.equal(app.asked, 3);
    assert.equal(permissions.refuses('a.example.com', options), true);
    assert.equal(permissions.refuses('b.example.com', options), false);
    clock.advance(61_000);
    assert.equal(permissions.refuses('a.example.com', options), false);
  });

  it('is requested for at most 16 names at once, once per name, and not at all if 256 already wait', async (test) => {
    const { permissions, app, options } = await setUp(test);
    app.hold = true;
    const names = Array.from({ length: 273 }, (_, i) => `n${i}.example.com`);
    const asked = names.map((name) => permissions.allows(name, options));
    const again = permissions.allows('n0.example.com', options);
    await assert.rejects(asked.at(-1) ?? assert.fail(), { code: 'on-demand-ask-failed' });
    while (app.held.length < 16) await once(app.server, 'request');
    assert.equal(app.asked, 16);
    app.hold = false;
    for (const response of app.held) response.end();
    assert.deepEqual(new Set(await Promise.all([...asked.slice(0, -1), again])), new Set([true]));
    assert.equal(app.asked, 272);
    assert.equal(app.most, 16);
  });

  it('is refused without asking for anything but a public host name', async (test) => {
    const { permissions, app, options } = await setUp(test);
    const long = `${'a'.repeat(64)}.example.com`;
    for (const name of [
      '',
      'localhost',
      '*.example.com',
      '192.0.2.1',
      'a_b.example',
      long,
      'a..b',
    ]) {
      assert.equal(await permissions.allows(name, options), false, name);
      assert.equal(permissions.refuses(name, options), true, name);
    }
    assert.equal(app.asked, 0);
  });

  it('is limited to a burst of orders within the interval, after which more are allowed', () => {
    const clock = new TestClock();
    const permissions = new Permissions(clock);
    const options = { ask: 'http://localhost/', intervalMs: 1000, burst: 2 };
    const next = () => permissions.mayOrder(options);
    assert.deepEqual([next(), next(), next()], [true, true, false]);
    clock.advance(1001);
    assert.equal(next(), true);
    assert.equal(permissions.mayOrder({ ...options, intervalMs: 0 }), true);
  });
});

async function setUp(test: TestContext) {
  const server = createServer((_, response) => {
    app.asked += 1;
    app.open += 1;
    app.most = Math.max(app.most, app.open);
    response.once('close', () => (app.open -= 1));
    response.statusCode = app.status;
    if (app.hold) app.held.push(response);
    else response.end();
  });
  const app = {
    ...{ server, status: 200, asked: 0, open: 0, most: 0, hold: false },
    held: [] as ServerResponse[],
  };
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  test.after(() => {
    server.closeAllConnections();
    server.close();
  });
  const { port } = server.address() as AddressInfo;
  const clock = new TestClock();
  const options = { ask: `http://127.0.0.1:${port}/may`, intervalMs: 0, burst: 1 };
  return { permissions: new Permissions(clock), clock, app, options };
}
