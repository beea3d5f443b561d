import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect, Server } from 'node:net';
import { describe, it, type TestContext } from 'node:test';
import { type AdminAnswer, AdminServer } from '../../../src/runtime/admin-server.ts';
import { silentLogger } from '../../../src/kernel/log.ts';
import { recorder } from '../../support/hub-server.ts';
import { send } from '../../support/http.ts';
import { TestClock } from '../../support/test-clock.ts';

describe('the listener of the admin API', () => {
  it('goes on if connections cannot be accepted, as when the process has no file descriptor left', async (test) => {
    const { mock } = test.mock.method(Server.prototype, 'listen');
    const lines: { readonly message: string }[] = [];
    const admin = await AdminServer.open({
      option: 'admin',
      what: 'the admin API',
      address: { host: '127.0.0.1', port: 0 },
      log: recorder(lines),
      answer: async () => ({ status: 200, body: {} }),
    });
    test.after(() => admin.close());
    const server = mock.calls[0]?.this;
    assert.ok(server instanceof Server);
    for (const _ of [1, 2]) server.emit('error', new Error('accept EMFILE'));
    assert.deepEqual(
      lines.map(({ message }) => message),
      ['A listener failed', 'A listener failed'],
    );
    assert.equal((await send(`http://127.0.0.1:${admin.place.port}/`)).status, 200);
  });

  for (const how of ['close', 'suspend'] as const) {
    it(`waits only for whole requests when it closes: ${how}`, async (test) => {
      const { admin, clock, dial, asked } = await open(test);
      const clients = await Promise.all([
        dial(''),
        dial('GET / HTTP/1.1\r\nHost:'),
        dial('POST /part HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nhalf'),
      ]);
      const whole = send(`http://127.0.0.1:${admin.place.port}/whole`);
      const give = await asked('/whole');
      await asked('/part');
      const cut = Promise.all(clients.map((client) => once(client, 'close')));
      const closed = admin[how]();
      clock.advance(5_000);
      await cut;
      give();
      assert.equal((await whole).status, 200);
      await closed;
      while (clock.waiting > 0) await new Promise((resolve) => setImmediate(resolve));
    });
  }

  it('does not wait for an answer for ever', async (test) => {
    const { admin, clock, dial, asked } = await open(test);
    const client = await dial('GET /whole HTTP/1.1\r\nHost: a\r\n\r\n');
    await asked('/whole');
    const closed = admin.close();
    clock.advance(60_000);
    await closed;
    await once(client, 'close');
  });
});

/** A listener whose answers the test gives. */
async function open(test: TestContext) {
  const clock = new TestClock();
  const answers = new Map<string, () => void>();
  const admin = await AdminServer.open({
    option: 'admin',
    what: 'the admin API',
    address: { host: '127.0.0.1', port: 0 },
    log: silentLogger,
    clock,
    answer: ({ url = '' }) =>
      new Promise<AdminAnswer>((resolve) => {
        answers.set(url, () => resolve({ status: 200, body: {} }));
      }),
  });
  test.after(() => admin.close());
  return {
    admin,
    clock,
    /** Connects, and sends this. */
    async dial(text: string) {
      const client = connect(admin.place.port ?? 0, '127.0.0.1');
      test.after(() => client.destroy());
      client.on('error', () => {});
      await once(client, 'connect');
      client.write(text);
      client.resume();
      return client;
    },
    /** Resolves when there is a request for this path, to what answers it. */
    async asked(path: string) {
      for (;;) {
        const give = answers.get(path);
        if (give !== undefined) return give;
        await new Promise((resolve) => setImmediate(resolve));
      }
    },
  };
}
