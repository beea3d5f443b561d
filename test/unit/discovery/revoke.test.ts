import assert from 'node:assert/strict';
import { describe, it, type TestContext } from 'node:test';
import { NO_GRANTS } from '../../../src/hub/grants.ts';
import { Hub } from '../../../src/hub/hub.ts';
import { profiles } from '../../../src/hub/profile.ts';
import type { EndReason, EventSink } from '../../../src/hub/subscriber.ts';
import { hubBase } from '../../../src/hub/topic.ts';
import { silentLogger } from '../../../src/kernel/log.ts';
import { createMemoryTransport } from '../../../src/transports/memory/memory-transport.ts';
import { TestClock } from '../../support/test-clock.ts';

const sink: EventSink = {
  write: () => true,
  bufferedBytes: 0,
  onDrain: () => {},
  end: () => {},
  destroy: () => {},
};

function openHub(test: TestContext) {
  const clock = new TestClock();
  const names = { profile: profiles.hub, hubPath: '/h', base: hubBase(null, '/h') };
  const transport = createMemoryTransport({ size: 10 });
  const hub = new Hub({ transport, names, clock, log: silentLogger });
  test.after(() => hub.close());
  const open = async (tokenId: string | null, session: string | null) => {
    const subscription = await hub.subscribe({
      matchers: [],
      grants: NO_GRANTS,
      vouchedBy: null,
      tokenId,
      session,
      lastEventId: null,
      heartbeatMs: 0,
      lifetimeMs: null,
      dispatchTimeoutMs: 1000,
      maxBufferBytes: 1000,
      announced: false,
    });
    subscription.open(sink);
    return (): EndReason | null => subscription.subscriber.ended;
  };
  return { hub, open };
}

describe('hub: ending the streams of a token or of a browser session', () => {
  it('ends those of a jti at once, and says how many', async (test) => {
    const { hub, open } = openHub(test);
    const ended = await Promise.all([
      open('a', null),
      open('a', 's'),
      open('b', 's'),
      open(null, null),
    ]);
    assert.equal(hub.revoke('a'), 2);
    assert.deepEqual(
      ended.map((one) => one()),
      ['revoked', 'revoked', null, null],
    );
    assert.equal(hub.revoke('a'), 0);
    assert.equal(hub.counts.connected, 2);
  });

  it('ends those of a session at once, whatever their tokens', async (test) => {
    const { hub, open } = openHub(test);
    const ended = await Promise.all([open('a', 's'), open('b', 's'), open('a', 't')]);
    assert.equal(hub.signOut('s'), 2);
    assert.deepEqual(
      ended.map((one) => one()),
      ['revoked', 'revoked', null],
    );
  });
});
