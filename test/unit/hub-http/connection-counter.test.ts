import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { ConnectionCounter } from '../../../src/hub-http/endpoint.ts';
import { startHub } from '../../support/hub-server.ts';

describe('limits on open streams', () => {
  it('count streams in total and by client, and free each place only once', () => {
    const counter = new ConnectionCounter();
    const limits = { max: 3, maxPerClient: 2 };
    const [a1, a2] = [counter.enter('a', limits), counter.enter('a', limits)];
    assert.ok(a1 && a2);
    assert.equal(counter.enter('a', limits), null);
    assert.ok(counter.enter('b', limits));
    assert.equal(counter.enter('c', limits), null);
    a1.leave();
    a1.leave();
    assert.ok(counter.enter('c', limits));
    assert.equal(counter.enter('d', limits), null);
    assert.ok(counter.enter('d', { max: 0, maxPerClient: 0 }), '0 means no limit');
  });

  it('answer 429 with Retry-After beyond max_connections, until a client disconnects', async (test) => {
    const hub = await startHub(test, { maxConnections: 1 });
    const first = await hub.subscribe('match=a');
    const refused = await hub.get('/.well-known/hub?match=a');
    assert.equal(refused.status, 429);
    assert.match(refused.headers['retry-after'] ?? '', /^\d+$/);
    first.close();
    for (;;) {
      const next = await hub.subscribe('match=a');
      if (next.status === 200) break;
      next.close();
    }
  });
});
