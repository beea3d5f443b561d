import assert from 'node:assert/strict';
import { describe, it, type TestContext } from 'node:test';
import { Hub } from '../../../src/hub/hub.ts';
import { profiles } from '../../../src/hub/profile.ts';
import type { EndReason } from '../../../src/hub/subscriber.ts';
import { hubBase } from '../../../src/hub/topic.ts';
import { createMemoryTransport } from '../../../src/transports/memory/memory-transport.ts';
import { processAround, RecordingSink, wish } from '../../support/core-hub.ts';
import { TestClock } from '../../support/test-clock.ts';

function openHub(test: TestContext) {
  const clock = new TestClock();
  const names = { profile: profiles.hub, hubPath: '/h', base: hubBase(null, '/h') };
  const transport = createMemoryTransport({ size: 10 });
  const hub = new Hub({ transport, names, ...processAround(clock) });
  test.after(() => hub.close());
  const open = async (tokenId: string | null, session: string | null) => {
    const subscription = await hub.subscribe(wish({ tokenId, session }));
    subscription.open(new RecordingSink());
    return (): EndReason | null => subscription.subscriber.ended;
  };
  return { hub, open };
}

describe('hub: ending the streams of a token or of a browser session', () => {
  it('ends those with a jti at once, and returns their number', async (test) => {
    const { hub, open } = openHub(test);
    const ended = await Promise.all([
      open('a', null),
      open('a', 's'),
      open('b', 's'),
      open(null, null),
    ]);
    assert.equal(hub.revocation.revoke('a'), 2);
    assert.deepEqual(
      ended.map((one) => one()),
      ['revoked', 'revoked', null, null],
    );
    assert.equal(hub.revocation.revoke('a'), 0);
    assert.equal(hub.counts.connected, 2);
  });

  it('ends those of a session at once, whatever their tokens', async (test) => {
    const { hub, open } = openHub(test);
    const ended = await Promise.all([open('a', 's'), open('b', 's'), open('a', 't')]);
    assert.equal(hub.revocation.signOut('s'), 2);
    assert.deepEqual(
      ended.map((one) => one()),
      ['revoked', 'revoked', null],
    );
  });
});
