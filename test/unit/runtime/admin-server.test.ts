import assert from 'node:assert/strict';
import { Server } from 'node:net';
import { describe, it } from 'node:test';
import { AdminServer } from '../../../src/runtime/admin-server.ts';
import { recorder } from '../../support/hub-server.ts';
import { send } from '../../support/http.ts';

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
});
