import assert from 'node:assert/strict';
import { setImmediate as turn } from 'node:timers/promises';
import { describe, it, type TestContext } from 'node:test';
import { HubgateError } from '../../../src/kernel/error.ts';
import type { Grants } from '../../../src/hub/grants.ts';
import { Hub, type SubscribeOptions, type Subscription } from '../../../src/hub/hub.ts';
import { compileMatcher, type SubscriptionMatcher } from '../../../src/hub/matcher.ts';
import type { SubscriptionRecord } from '../../../src/hub/presence.ts';
import type { PresenceChange } from '../../../src/hub/presence-board.ts';
import { profiles } from '../../../src/hub/profile.ts';
import type { StreamSettings } from '../../../src/hub/subscriber.ts';
import {
  missedBetween,
  PRESENCE_EVENTS_KEPT,
  type Transport,
  NO_TAIL,
  type Tail,
} from '../../../src/hub/transport.ts';
import type { Update } from '../../../src/hub/update.ts';
import { createMemoryTransport } from '../../../src/transports/memory/memory-transport.ts';
import { processAround, RecordingSink, wish } from '../../support/core-hub.ts';
import { TestClock } from '../../support/test-clock.ts';
import { TurnedScheduler } from '../../support/turned-scheduler.ts';

const base = 'https://hub.invalid/.well-known/hub';
const SITE = 'https://example.com/';

describe('hub: delivery', () => {
  it('delivers to subscribers with a matcher that selects the update, once each and in order', async (test) => {
    const { hub, connect } = setUp(test);
    const both = await connect({ matchers: matchers('a', 'b') });
    const other = await connect({ matchers: matchers('c') });
    await hub.publish(update('1', { topics: ['a', 'b'] }));
    await hub.publish(update('2', { topics: ['b'] }));
    await turn();
    assert.deepEqual(both.ids(), ['1', '2']);
    assert.deepEqual(other.ids(), []);
  });

  it('writes all updates of one turn in one piece', async (test) => {
    const { hub, connect } = setUp(test);
    const one = await connect({});
    await Promise.all(['1', '2', '3'].map((id) => hub.publish(update(id))));
    await turn();
    assert.equal(one.writes.length, 1);
    assert.deepEqual(one.ids(), ['1', '2', '3']);
  });

  it('D-329 D-332 D-338: hides private updates from subscribers without a grant', async (test) => {
    const { hub, connect } = setUp(test);
    const granted = await connect({ grants: readGrant('secret') });
    const anonymous = await connect({});
    await hub.publish(update('1', { topics: ['secret'], private: true }));
    await hub.publish(update('2', { topics: ['secret'] }));
    await turn();
    assert.deepEqual(granted.ids(), ['1', '2']);
    assert.deepEqual(anonymous.ids(), ['2']);
  });

  it('D-333 D-334: a grant on one topic and a matcher on another are enough', async (test) => {
    const { hub, connect } = setUp(test);
    const crossed = await connect({
      matchers: matchers('canonical'),
      grants: readGrant('alternate'),
    });
    await hub.publish(update('1', { topics: ['canonical', 'alternate'], private: true }));
    await turn();
    assert.deepEqual(crossed.ids(), ['1']);
  });

  it('B-167 L38: cleanly ends a slow subscriber with the updates that fit, without affecting others', async (test) => {
    const { hub, connect } = setUp(test);
    const slow = await connect({ maxBufferBytes: 100 }, { blocked: true });
    const quick = await connect({});
    for (let id = 0; id < 20; id += 1) {
      await hub.publish(update(String(id)));
      await turn();
    }
    slow.drain();
    await turn();
    assert.ok(slow.ended);
    assert.ok(slow.ids().length > 0 && slow.ids().length < 20);
    assert.equal(quick.ids().length, 20);
  });

  it('B-166: stops writing to a client that lags, however many updates arrive', async (test) => {
    const { hub, connect } = setUp(test);
    const behind = await connect({}, { blocked: true });
    for (let id = 0; id < 20; id += 1) {
      await hub.publish(update(String(id)));
      await turn();
    }
    assert.equal(behind.writes.length, 1);
    behind.drain();
    await turn();
    assert.equal(behind.ids().length, 20);
  });

  it('B-166: aborts a client that reads nothing for longer than dispatch_timeout', async (test) => {
    const { hub, connect, clock } = setUp(test);
    const stuck = await connect({ dispatchTimeoutMs: 1000 }, { blocked: true });
    await hub.publish(update('1'));
    await turn();
    clock.advance(900);
    assert.equal(stuck.destroyed, false);
    clock.advance(300);
    assert.ok(stuck.destroyed);
  });

  it('lets a client read nothing for any time if dispatch_timeout is 0, but not at the end of its stream', async (test) => {
    const { hub, connect, clock } = setUp(test);
    const settings = { dispatchTimeoutMs: 0, lifetimeMs: 3_600_000, heartbeatMs: 60_000 };
    const paused = await connect(settings, { blocked: true });
    await hub.publish(update('1'));
    await turn();
    for (let minute = 0; minute < 59; minute += 1) clock.advance(60_000);
    assert.deepEqual([paused.ended, paused.destroyed], [false, false]);
    paused.drain(true);
    await hub.publish(update('2'));
    await turn();
    assert.deepEqual(paused.ids(), ['1', '2']);
    clock.advance(58_000);
    assert.deepEqual([paused.ended, paused.destroyed], [false, false]);
    for (let second = 0; second < 8; second += 1) clock.advance(1000);
    assert.ok(paused.destroyed);
  });

  it('B-166: keeps a slow client connected as long as it reads something', async (test) => {
    const { hub, connect, clock } = setUp(test);
    const slow = await connect({ dispatchTimeoutMs: 1000 }, { blocked: true });
    await hub.publish(update('1'));
    await hub.publish(update('2'));
    await turn();
    for (let i = 0; i < 3; i += 1) {
      slow.take(2);
      clock.advance(1100);
      assert.equal(slow.destroyed, false);
    }
    clock.advance(1100);
    assert.ok(slow.destroyed);
  });

  it('B-172: aborts a slow client dispatch_timeout after the end of its stream, though it reads', async (test) => {
    const { hub, connect, clock } = setUp(test);
    const slow = await connect({ lifetimeMs: 5000, dispatchTimeoutMs: 1000 }, { blocked: true });
    await hub.publish(update('1'));
    await hub.publish(update('2'));
    await turn();
    for (let seconds = 0; seconds < 5; seconds += 1) {
      assert.ok(!slow.destroyed);
      slow.take(1);
      clock.advance(1000);
    }
    slow.take(1);
    clock.advance(1200);
    assert.ok(slow.destroyed);
  });

  it('accepts no subscribers while it drains, so that draining ends, but still publishers', async (test) => {
    const { hub, connect, clock } = setUp(test);
    const one = await connect({});
    const drained = hub.drain(1000);
    await assert.rejects(connect({}), { code: 'transport-closed' });
    const publisher = { issuerKey: 'issuer', tokenId: null, session: null };
    assert.ok(
      hub.admission.admits(publisher, hub.admission.revocationEpoch),
      'an update that is on its way is stored',
    );
    clock.advance(1100);
    await drained;
    assert.ok(one.ended);
  });

  it('notifies every caller that waits for the last stream to end', async (test) => {
    const { hub, connect } = setUp(test);
    await connect({});
    await Promise.all([hub.drain(0), hub.drain(0)]);
  });

  it('K-593: ends all streams when it closes', async (test) => {
    const { hub, connect } = setUp(test);
    const one = await connect({});
    hub.close();
    assert.ok(one.ended);
    await assert.rejects(connect({}), { code: 'transport-closed' });
  });
});

describe('hub: a stream that ends before it has a connection', () => {
  it('sends the waiting updates and then ends, or aborts if the client does not even read those', async (test) => {
    const { hub, clock } = setUp(test);
    const subscription = await hub.subscribe(wish({ matchers: matchers('*'), lifetimeMs: 1000 }));
    await hub.publish(update('1'));
    await turn();
    clock.advance(1100);
    const sink = new RecordingSink();
    subscription.open(sink);
    assert.deepEqual(sink.ids(), ['1']);
    assert.equal(sink.ended, true);
    for (let second = 0; second < 10; second += 1) clock.advance(1000);
    assert.equal(sink.destroyed, true);
  });

  it('sends none of the waiting updates if the token was revoked', async (test) => {
    const { hub } = setUp(test);
    const subscription = await hub.subscribe(wish({ matchers: matchers('*'), tokenId: 'jti' }));
    await hub.publish(update('1'));
    await turn();
    hub.revocation.revoke('jti');
    const sink = new RecordingSink();
    subscription.open(sink);
    assert.deepEqual([sink.ids(), sink.ended], [[], true]);
  });
});

describe('hub: a stream whose token is revoked while its client reads slowly', () => {
  for (const [what, count] of [
    ['ends after what its connection has accepted', 1],
    ['is aborted if a part of what waits has been sent', 20],
  ] as const) {
    it(what, async (test) => {
      const { hub, connect } = setUp(test);
      const slow = await connect({ tokenId: 'jti' }, { blocked: true });
      const data = 'x'.repeat(10_000);
      const ids = Array.from({ length: count }, (_, id) => String(id));
      await Promise.all(ids.map((id) => hub.publish(update(id, { data }))));
      await turn();
      assert.equal(hub.revocation.revoke('jti'), 1);
      await turn();
      slow.drain();
      await turn();
      assert.equal(slow.writes.length, 1);
      assert.deepEqual([slow.ended, slow.destroyed], [count === 1, count > 1]);
    });
  }

  it('receives nothing more if it has ended before for another reason', async (test) => {
    const { hub, connect, clock } = setUp(test);
    const slow = await connect({ tokenId: 'jti', lifetimeMs: 1000 }, { blocked: true });
    const data = 'x'.repeat(10_000);
    for (let id = 0; id < 20; id += 1) await hub.publish(update(String(id), { data }));
    await turn();
    clock.advance(1100);
    assert.equal(hub.counts.connected, 0);
    assert.equal(hub.revocation.revoke('jti'), 0);
    slow.drain();
    await turn();
    assert.deepEqual([slow.writes.length, slow.ended, slow.destroyed], [1, false, true]);
  });

  it('is aborted even if its session ends as well before the end of the stream is written', async (test) => {
    const { hub, connect } = setUp(test);
    // The first ones end at once, and the others in later turns.
    for (let count = 0; count < 50; count += 1) await connect({ tokenId: 'jti' });
    const slow = await connect({ tokenId: 'jti', session: 'session' }, { blocked: true });
    await hub.publish(update('1', { data: 'x'.repeat(100_000) }));
    await settle(() => slow.writes.length > 0);
    hub.revocation.revoke('jti');
    hub.revocation.signOut('session');
    slow.drain();
    await settle(() => slow.ended || slow.destroyed);
    assert.deepEqual([slow.ended, slow.destroyed], [false, true]);
  });
});

describe('hub: replay', () => {
  it('B-187: refuses subscribers from earliest while the history cannot be read', async (test) => {
    const broken: Transport = Object.create(createMemoryTransport({ size: 10 }), {
      position: { get: () => 0 },
      find: { value: () => Promise.reject(new HubgateError('transport-failed', 'damaged')) },
    });
    const { hub, connect } = setUp(test, { transport: broken });
    await assert.rejects(connect({ lastEventId: 'earliest' }), { code: 'transport-failed' });
    await assert.rejects(hub.cursor('earliest'), { code: 'transport-failed' });
    await connect({});
  });

  it('B-172: counts the lifetime of a stream from its request, however long the history takes', async (test) => {
    const memory = createMemoryTransport({ size: 10 });
    let takesMs = 0;
    const transport: Transport = Object.create(memory, {
      find: {
        value: (id: string) => {
          clock.stall(takesMs);
          return memory.find(id);
        },
      },
    });
    const { hub, connect, clock } = setUp(test, { transport });
    await hub.publish(update('1'));
    takesMs = 8_000;
    const late = await connect({ lastEventId: '1', lifetimeMs: 10_000 });
    clock.advance(3_000);
    assert.ok(late.ended);
    takesMs = 10_000;
    await assert.rejects(connect({ lastEventId: '1', lifetimeMs: 10_000 }), {
      code: 'transport-failed',
    });
    assert.equal(hub.counts.connected, 0);
  });

  it('B-181 B-193: replays after the cursor, then continues live without loss or duplicates', async (test) => {
    const { hub, connect } = setUp(test, { size: 10_000 });
    for (let id = 0; id < 300; id += 1) await hub.publish(update(`u${id}`));
    const late = await connect({ lastEventId: 'u9' });
    for (let id = 300; id < 400; id += 1) {
      await hub.publish(update(`u${id}`));
      if (id % 10 === 0) await turn();
    }
    await settle(() => late.ids().length >= 390);
    assert.deepEqual(
      late.ids(),
      Array.from({ length: 390 }, (_, index) => `u${index + 10}`),
    );
    assert.equal(late.cursor, 'u9');
  });

  it('B-184 B-185 B-186: reports where the replay began, and replays nothing for an unknown cursor', async (test) => {
    const { hub, connect } = setUp(test);
    await hub.publish(update('known'));
    assert.equal((await connect({ lastEventId: null })).cursor, null);
    assert.equal((await connect({ lastEventId: '' })).cursor, 'earliest');
    const unknown = await connect({ lastEventId: 'gone' });
    assert.equal(unknown.cursor, 'earliest');
    await hub.publish(update('next'));
    await turn();
    assert.deepEqual(unknown.ids(), ['next']);
  });

  it('B-187: replays the whole history from earliest', async (test) => {
    const { hub, connect } = setUp(test);
    await hub.publish(update('1'));
    await hub.publish(update('2'));
    const all = await connect({ lastEventId: 'earliest' });
    await settle(() => all.ids().length === 2);
    assert.deepEqual(all.ids(), ['1', '2']);
  });

  it('B-189 B-190: a cursor can be an update that the client cannot read; private updates stay private in a replay', async (test) => {
    const { hub, connect } = setUp(test);
    await hub.publish(update('hidden', { private: true }));
    await hub.publish(update('1'));
    await hub.publish(update('2', { private: true }));
    const late = await connect({ lastEventId: 'hidden' });
    await settle(() => late.ids().length >= 1);
    assert.equal(late.cursor, 'hidden');
    assert.deepEqual(late.ids(), ['1']);
  });

  it('keeps the cursor of pages and of subscribers to updates valid, however many streams connect and disconnect', async (test) => {
    const { hub, connect } = setUp(test, { size: 100 });
    await hub.publish(update('u0'));
    await hub.publish(update('u1'));
    const comers = Array.from({ length: PRESENCE_EVENTS_KEPT / 2 + 50 }, (_, index) => index);
    for (const index of comers) {
      const comer = await connect({ announced: true, matchers: matchers(`m${index}`) });
      comer.subscription.abandon();
    }
    await settle(() => hub.counts.connected === 0);
    assert.equal(hub.lastUpdateId, 'u1');
    assert.match(hub.lastEventId, /^urn:uuid:/);
    const late = await connect({ lastEventId: 'u0' });
    await settle(() => late.ids().length > 0);
    assert.deepEqual([late.cursor, late.ids()], ['u0', ['u1']]);
    // Events that it may read are gone, so it has to ask who is there.
    const listener = await connect({ grants: readGrant('*'), lastEventId: 'u0' });
    await settle(() => listener.ids().length > PRESENCE_EVENTS_KEPT / 2);
    assert.equal(listener.cursor, 'earliest');
    assert.ok(listener.ids().includes('u1'), 'no update is left out all the same');
    const current = await connect({ grants: readGrant('*'), lastEventId: hub.lastEventId });
    assert.notEqual(current.cursor, 'earliest');
  });

  it('waits for a client that does not read, and continues when it reads again', async (test) => {
    const { hub, connect } = setUp(test, { size: 10_000 });
    for (let id = 0; id < 500; id += 1) await hub.publish(update(`u${id}`));
    const slow = await connect({ lastEventId: 'earliest' }, { blocked: true });
    for (let i = 0; i < 10; i += 1) await turn();
    assert.ok(slow.ids().length < 200, 'back-pressure holds the replay');
    slow.drain();
    await settle(() => slow.ids().length === 500);
  });

  it('ends a replay if unread updates were evicted, instead of skipping them, and starts the next from earliest', async (test) => {
    const { hub, connect } = setUp(test, { size: 200 });
    for (let id = 1; id <= 200; id += 1)
      await hub.publish(update(`u${id}`, { data: 'x'.repeat(4096) }));
    const slow = await connect({ lastEventId: 'u1' }, { blocked: true });
    for (let i = 0; i < 10; i += 1) await turn();
    const before = slow.ids().length;
    assert.ok(before > 0 && before < 150, `${before} before the history goes on`);
    // All that it has not read is evicted meanwhile.
    for (let id = 201; id <= 450; id += 1) await hub.publish(update(`u${id}`));
    slow.drain();
    await settle(() => slow.sink.ended);
    const ids = slow.ids().map((id) => Number(id.slice(1)));
    assert.deepEqual(
      ids,
      Array.from(ids, (_, index) => index + 2),
    );
    assert.equal(slow.subscription.subscriber.ended, 'overtaken');
    assert.equal(hub.measures.ended.overtaken, 1);
    const again = await connect({ lastEventId: `u${ids.at(-1)}` });
    assert.equal(again.cursor, 'earliest');
  });

  it('continues a replay that loses nothing: from earliest, or if only its own cursor was evicted', async (test) => {
    const { hub, connect } = setUp(test, { size: 10 });
    for (let id = 1; id <= 20; id += 1) await hub.publish(update(`u${id}`));
    const all = await connect({ lastEventId: 'earliest' });
    await settle(() => all.ids().length === 10);
    const subscription = await hub.subscribe(wish({ matchers: matchers('*'), lastEventId: 'u11' }));
    await hub.publish(update('u21'));
    const sink = new RecordingSink();
    subscription.open(sink);
    await settle(() => sink.ids().length === 10);
    assert.deepEqual([sink.ids()[0], sink.ids().at(-1), sink.ended], ['u12', 'u21', false]);
  });

  it('replays nothing that was evicted before it began, whatever earlier replays have read', async (test) => {
    const { hub, connect, clock } = setUp(test, { size: 50 });
    const publish = async (from: number, to: number): Promise<void> => {
      for (let id = from; id <= to; id += 1) await hub.publish(update(`u${id}`));
    };
    await publish(1, 100);
    const first = await connect({ lastEventId: 'earliest' });
    await settle(() => first.ids().length === 50);
    first.subscription.abandon();
    await publish(101, 200);
    clock.advance(1_000);
    const next = await connect({ lastEventId: 'earliest' });
    await settle(() => next.ids().length === 50);
    assert.deepEqual([next.ids()[0], next.ids().at(-1), next.sink.ended], ['u151', 'u200', false]);
  });

  it('skips updates that a store lost in a failover, because no reader can ever get them', async (test) => {
    const whole = createMemoryTransport({ size: 100 });
    const transport: Transport = Object.create(whole, {
      read: {
        value: async (after: number, limit: number) =>
          (await whole.read(after, limit)).filter(
            ({ position }) => position <= 10 || position > 20,
          ),
      },
    });
    const { hub, connect } = setUp(test, { transport });
    for (let id = 1; id <= 30; id += 1) await hub.publish(update(`u${id}`));
    const late = await connect({ lastEventId: 'u10' });
    await settle(() => late.ids().length === 10);
    assert.deepEqual([late.ids()[0], late.sink.ended], ['u21', false]);
  });

  it('replays each update independently of the matcher and grant that the previous one needed', async (test) => {
    const { hub, connect } = setUp(test);
    await hub.publish(update('0'));
    for (const id of ['b', 'a', 'b2', 'a2']) {
      await hub.publish(update(id, { topics: [id[0] ?? ''], private: id.endsWith('2') }));
    }
    const both = readGrant('a').subscribe.concat(readGrant('b').subscribe);
    const late = await connect({
      matchers: matchers('a', 'b'),
      grants: { publish: [], subscribe: both },
      lastEventId: '0',
    });
    await settle(() => late.ids().length === 4);
    assert.deepEqual(late.ids(), ['b', 'a', 'b2', 'a2']);
    // Its only grant is tried from the beginning, though its second matcher has selected the update.
    const one = await connect({
      matchers: matchers('a', 'b'),
      grants: readGrant('b'),
      lastEventId: 'a',
    });
    await settle(() => one.ids().length === 1);
    assert.deepEqual(one.ids(), ['b2']);
  });

  it('replays what live delivery delivers, whatever the topics and patterns cost', async (test) => {
    const { hub, connect } = setUp(test);
    const many = Array.from({ length: 900 }, (_, nr) => `https://example.com/users/${nr}/profile`);
    const long = `https://example.com/${'a'.repeat(2000)}x${'a'.repeat(1900)}`;
    /** Different for each stream, so that each pays for its own. */
    const slow = (stream: number) =>
      Array.from({ length: 5 }, (_, nr) =>
        pattern(`${SITE}(${'(?:a|aa)*'.repeat(8)}x(?:a|aa)*[b-y]${stream}?${nr}?)`),
      );
    const elsewhere = slow(2).map(({ spec: { match } }) => pattern(match.replace('.com', '.org')));
    const cases = [
      // Many topics, which all streams parse together.
      { matchers: [pattern('https://example.com/users/898/*')], topics: many },
      // Topics whose parsing is not cheap.
      {
        matchers: [pattern(`${SITE}long/98/*`)],
        topics: Array.from({ length: 100 }, (_, nr) => `${SITE}long/${nr}/${'a'.repeat(2000)}`),
      },
      // An exact matcher behind patterns that use up what the stream may spend.
      { matchers: [...slow(1), ...matchers('last')], topics: [long, 'last'] },
      // Patterns of another origin.
      {
        matchers: [...elsewhere, pattern('https://example.com/b')],
        topics: [long, '/b', `${SITE}b`],
      },
      // A pattern that matches the first topic, and an expensive one before it.
      {
        matchers: [...slow(3).slice(0, 1), pattern('https://example.com/a*')],
        topics: [long, `${long}a`],
      },
    ];
    await hub.publish(update('0'));
    const live = await Promise.all(cases.map(({ matchers: own }) => connect({ matchers: own })));
    for (const [nr, { topics }] of cases.entries()) {
      await hub.publish(update(`u${nr}`, { topics }));
    }
    await hub.publish(
      update('end', {
        topics: ['last', `${SITE}users/898/`, `${SITE}long/98/`, `${SITE}b`, `${SITE}a`],
      }),
    );
    await settle(() => live.every((one) => one.ids().includes('end')));
    for (const [nr, { matchers: own }] of cases.entries()) {
      const late = await connect({ matchers: own, lastEventId: '0' });
      await settle(() => late.ids().includes('end'));
      assert.deepEqual(late.ids(), live[nr]?.ids());
      assert.ok(late.ids().includes(`u${nr}`), `case ${nr}`);
    }
  });

  it('replays at most 24 KiB and one event to a client that does not read', async (test) => {
    const { hub, connect } = setUp(test);
    const data = 'x'.repeat(10_000);
    for (let id = 0; id < 50; id += 1) await hub.publish(update(`u${id}`, { data }));
    const slow = await connect(
      { lastEventId: 'earliest', maxBufferBytes: 10 ** 9 },
      { blocked: true },
    );
    const { sendBuffer } = slow.subscription.subscriber;
    await settle(() => sendBuffer.bufferedBytes > 24 * 1024);
    for (let turns = 0; turns < 100; turns += 1) await turn();
    assert.ok(
      sendBuffer.bufferedBytes <= 24 * 1024 + data.length + 100,
      `${sendBuffer.bufferedBytes}`,
    );
  });

  it('continues after updates that are not wanted, though its connection passes nothing on yet', async (test) => {
    const { hub, connect } = setUp(test);
    const data = 'x'.repeat(10_000);
    for (const id of ['1', '2', '3']) await hub.publish(update(id, { data }));
    for (const id of ['4', '5']) await hub.publish(update(id, { topics: ['other'] }));
    await hub.publish(update('6'));
    const late = await connect(
      { matchers: matchers('topic'), lastEventId: 'earliest' },
      { lagging: true },
    );
    await settle(() => late.ids().includes('6'));
    assert.deepEqual(late.ids(), ['1', '2', '3', '6']);
  });

  it('counts the updates that wait for a stream without a connection', async (test) => {
    const { hub } = setUp(test);
    const { subscriber } = await hub.subscribe(
      wish({ matchers: matchers('*') }, { maxBufferBytes: 100 }),
    );
    for (const id of ['1', '2', '3']) await hub.publish(update(id, { data: 'x'.repeat(100) }));
    await settle(() => subscriber.ended !== null);
    assert.equal(subscriber.ended, 'slow');
  });

  it('makes publishers and the tail wait while 16 MiB are waiting for delivery', async () => {
    const scheduler = new TurnedScheduler();
    const memory = createMemoryTransport({ size: 1000 });
    let isFull = (): boolean => assert.fail();
    const tail: Transport['tail'] = (given) => {
      ({ isFull } = given);
      memory.tail(given);
    };
    const transport: Transport = { ...memory, tail };
    const names = { profile: profiles.hub, hubPath: '/.well-known/hub', base };
    const hub = new Hub({ transport, names, ...processAround(new TestClock()), scheduler });
    const done: string[] = [];
    const publish = (id: string): void => {
      void hub.publish(update(id, { data: 'x'.repeat(6 * 1024 * 1024) })).then(() => done.push(id));
    };
    for (const id of ['1', '2']) publish(id);
    await turn();
    publish('3');
    await turn();
    assert.deepEqual([done, isFull()], [['1', '2'], true]);
    await scheduler.all();
    assert.deepEqual([done, isFull()], [['1', '2', '3'], false]);
    hub.close();
  });

  it('a thousand subscribers that reconnect at once share the reads of the history', async (test) => {
    const { transport, reads } = countingReads();
    const { hub, connect } = setUp(test, { transport });
    for (let id = 0; id < 640; id += 1) await hub.publish(update(`u${id}`));
    const late = await Promise.all(
      Array.from({ length: 1000 }, () => connect({ lastEventId: 'earliest' })),
    );
    await settle(() => late.every((one) => one.ids().length === 640));
    assert.ok(reads() <= 20, `${reads()} readings for 10 pages`);
  });

  it('pages that one subscriber reads alone are not kept, except the last four', async (test) => {
    const { transport, reads } = countingReads();
    const { hub, connect } = setUp(test, { transport });
    for (let id = 0; id < 1280; id += 1) await hub.publish(update(`u${id}`));
    const read = async (lastEventId: string, updates: number): Promise<number> => {
      const before = reads();
      const one = await connect({ lastEventId });
      await settle(() => one.ids().length === updates);
      return reads() - before;
    };
    assert.ok((await read('earliest', 1280)) >= 20);
    assert.ok((await read('earliest', 1280)) >= 16, 'what was kept was of no use to it');
    assert.equal(await read('u1200', 79), 0, 'the last pages are there');
  });

  it('a slow subscriber finds the pages that a faster one has read meanwhile', async (test) => {
    const { transport, reads } = countingReads();
    const { hub, connect } = setUp(test, { transport });
    for (let id = 0; id < 1280; id += 1) await hub.publish(update(`u${id}`));
    const slow = await connect({ lastEventId: 'earliest' }, { blocked: true });
    const fast = await connect({ lastEventId: 'earliest' });
    await settle(() => fast.ids().length === 1280);
    assert.ok(slow.ids().length < 640, 'it has most of the history before it');
    const before = reads();
    slow.drain();
    await settle(() => slow.ids().length === 1280);
    assert.equal(reads() - before, 0);
  });
});

describe('hub: time', () => {
  it('B-168 B-169: sends a heartbeat after silence, and an update postpones it', async (test) => {
    const { hub, connect, clock } = setUp(test);
    const one = await connect({ heartbeatMs: 1000 });
    clock.advance(900);
    await hub.publish(update('1'));
    await turn();
    clock.advance(900);
    assert.deepEqual(one.text(), event('1'));
    clock.advance(200);
    assert.deepEqual(one.text(), `${event('1')}:\n`);
    clock.advance(1100);
    assert.deepEqual(one.text(), `${event('1')}:\n:\n`);
  });

  it('B-170: sends no heartbeat if the interval is 0', async (test) => {
    const { connect, clock } = setUp(test);
    const one = await connect({ heartbeatMs: 0 });
    clock.advance(1_000_000);
    assert.equal(one.text(), '');
  });

  it('B-172: sends no private update to a stream whose token has expired because the clock was set', async (test) => {
    const { hub, connect, clock } = setUp(test);
    const expiresAtMs = clock.now() + 60_000;
    const one = await connect({ grants: readGrant('topic'), lifetimeMs: 60_000, expiresAtMs });
    await hub.publish(update('1', { topics: ['topic'], private: true }));
    await turn();
    clock.setBy(3_600_000);
    await hub.publish(update('2', { topics: ['topic'], private: true }));
    await turn();
    assert.deepEqual(one.ids(), ['1']);
    assert.ok(one.ended);
  });

  it('B-172 B-175: ends a stream cleanly at its deadline', async (test) => {
    const { connect, clock } = setUp(test);
    const one = await connect({ lifetimeMs: 5000 });
    clock.advance(4900);
    assert.equal(one.ended, false);
    clock.advance(200);
    assert.ok(one.ended);
    assert.equal(one.destroyed, false);
  });
});

describe('hub: a gap in the history', () => {
  it('ends streams that were live after the updates before the gap; later subscribers continue', async (test) => {
    const { transport, away, back } = lagging(5);
    const { hub, connect } = setUp(test, { transport });
    const live = await connect({});
    const narrow = await connect({ matchers: matchers('never') });
    await hub.publish(update('u1'));
    await settle(() => live.ids().length === 1);
    const fresh = await connect({ lastEventId: 'u1' });
    await hub.publish(update('u2'));
    away();
    for (let id = 3; id <= 12; id += 1) await hub.publish(update(`u${id}`));
    await back();
    // In the same turn: it stands behind the gap.
    const late = await connect({});
    await hub.publish(update('u13'));
    await settle(() => late.ids().length === 1);
    assert.deepEqual([live.ids(), live.sink.ended], [['u1', 'u2'], true]);
    assert.match(live.text(), /^retry: \d+\n$/m, 'they do not come back all at once');
    assert.deepEqual([fresh.ids(), fresh.sink.ended], [['u2'], true]);
    assert.equal(narrow.sink.ended, true, 'a stream without an event has missed as much');
    assert.deepEqual([late.ids(), late.sink.ended], [['u13'], false]);
    assert.equal(hub.measures.ended.overtaken, 3);
    const again = await connect({ lastEventId: 'u2' });
    assert.equal(again.cursor, 'earliest');
  });

  it('does not affect a replay that loses nothing', async (test) => {
    const { transport, away, back } = lagging(5);
    const { hub } = setUp(test, { transport });
    await hub.publish(update('u1'));
    const subscription = await hub.subscribe(
      wish({ matchers: matchers('*'), lastEventId: 'earliest' }),
    );
    away();
    for (let id = 2; id <= 12; id += 1) await hub.publish(update(`u${id}`));
    await back();
    const sink = new RecordingSink();
    subscription.open(sink);
    await settle(() => sink.ids().length === 5);
    assert.deepEqual([sink.ids()[0], sink.ids().at(-1), sink.ended], ['u8', 'u12', false]);
  });

  it('ends only streams that may read presence events if only those were dropped', async (test) => {
    const { transport, away, back } = lagging(10);
    const { hub, connect } = setUp(test, { transport });
    const [reader, granted, anonymous] = [
      await connect({ grants: readGrant('*') }),
      await connect({ grants: readGrant('*'), matchers: matchers('topic') }),
      await connect({}),
    ];
    await hub.publish(update('u1'));
    await settle(() => reader.ids().length === 1);
    away();
    for (let id = 0; id < PRESENCE_EVENTS_KEPT + 1; id += 1) await hub.publish(presenceEvent(id));
    await hub.publish(update('u2'));
    await back();
    await settle(() => anonymous.ids().length === 2);
    assert.deepEqual([reader.ids(), reader.sink.ended], [['u1'], true]);
    assert.deepEqual([granted.ids(), granted.sink.ended], [['u1', 'u2'], false]);
    assert.deepEqual([anonymous.ids(), anonymous.sink.ended], [['u1', 'u2'], false]);
    const again = await connect({ grants: readGrant('*'), lastEventId: 'u1' });
    assert.equal(again.cursor, 'earliest');
    await settle(() => again.ids().includes('u2'));
    assert.equal(again.sink.ended, false, 'it has been told');
  });

  it('ends a replay that lost presence events, if it might have read them', async (test) => {
    const { hub, connect } = setUp(test, { size: 1000 });
    for (let id = 1; id <= 100; id += 1) {
      await hub.publish(update(`u${id}`, { data: 'x'.repeat(4096) }));
    }
    const slow = [
      await connect({ grants: readGrant('*'), lastEventId: 'u1' }, { blocked: true }),
      await connect({ lastEventId: 'u1' }, { blocked: true }),
    ];
    for (let i = 0; i < 10; i += 1) await turn();
    for (let id = 0; id < PRESENCE_EVENTS_KEPT + 1; id += 1) await hub.publish(presenceEvent(id));
    await hub.publish(update('last'));
    for (const one of slow) one.drain();
    const [reader, anonymous] = slow;
    await settle(() => reader?.sink.ended === true && anonymous?.ids().includes('last') === true);
    assert.equal(reader?.subscription.subscriber.ended, 'overtaken');
    assert.equal(anonymous?.sink.ended, false);
  });
});

/** A history in memory whose tail can be away, as that of a process that is halted. */
function lagging(size: number): {
  readonly transport: Transport;
  away(): void;
  back(): Promise<void>;
} {
  const memory = createMemoryTransport({ size });
  let [position, isAway] = [0, false];
  let tail = NO_TAIL;
  const transport: Transport = Object.create(memory, {
    position: { get: () => (isAway ? position : memory.position) },
    tail: {
      value: (given: Tail) => {
        tail = given;
        memory.tail({ ...given, deliver: (entries) => isAway || given.deliver(entries) });
      },
    },
  });
  return {
    transport,
    away() {
      [position, isAway] = [memory.position, true];
    },
    async back() {
      const kept = await memory.read(position, Infinity);
      const missed = missedBetween(position, kept[0]?.position ?? 0, await memory.evicted());
      isAway = false;
      if (missed !== null) tail.overtaken(missed);
      tail.deliver(kept);
    },
  };
}

describe('hub: presence', () => {
  it('E-349 E-359 E-360: announces each matcher when a client connects and disconnects', async (test) => {
    const { connect } = setUp(test);
    const watcher = await connect({ grants: readGrant('*'), announced: false });
    const one = await connect({ matchers: matchers('a', 'b'), announced: true });
    one.leave();
    await turn();
    await turn();
    const records = watcher.data().map((text) => JSON.parse(text));
    assert.deepEqual(
      records.map(({ match, active }) => [match, active]),
      [
        ['a', true],
        ['b', true],
        ['a', false],
        ['b', false],
      ],
    );
    assert.equal(new Set(records.map(({ subscriber }) => subscriber)).size, 1);
  });

  it('E-352: encodes matcher and subscriber once, except for unreserved characters', async (test) => {
    const { hub, connect } = setUp(test);
    await connect({ matchers: matchers("https://example.com/:id a%!'()*"), announced: true });
    const { records } = await hub.subscriptionPage(null, 1);
    const [record] = records;
    assert.match(
      record?.id ?? '',
      /^\/\.well-known\/hub\/subscriptions\/exact\/https%3A%2F%2Fexample\.com%2F%3Aid%20a%25%21%27%28%29%2A\/urn%3Auuid%3A[0-9a-f-]{36}$/,
    );
  });

  it('announces a departure once, even if the store reports it again', async (test) => {
    const memory = createMemoryTransport({ size: 10 });
    let tell: (change: PresenceChange) => Promise<void> = async () => {};
    const presence = {
      ...memory.presence,
      watch: (listener: typeof tell): void => {
        tell = listener;
      },
    };
    const seen: string[] = [];
    const transport: Transport = {
      ...memory,
      presence,
      get position() {
        return memory.position;
      },
      tail: (tail) =>
        memory.tail({
          ...tail,
          deliver: (entries) => {
            seen.push(...entries.map(({ update }) => update.data));
            tail.deliver(entries);
          },
        }),
    };
    const { hub } = setUp(test, { transport });
    const record: SubscriptionRecord = {
      id: '/hub/subscriptions/exact/m/s',
      type: 'subscription',
      subscriber: 's',
      match: 'm',
      match_type: 'exact',
      active: true,
    };
    for (const name of ['one', 'one', 'another', 'one']) {
      await tell({ records: [record], active: false, name, isNew: false });
    }
    assert.equal(seen.length, 2);
    assert.equal(JSON.parse(seen[0] ?? '').active, false);
    assert.equal(hub.counts.connected, 0);
  });

  it('reload: ends exactly the streams whose authorization is no longer valid', async (test) => {
    const { hub, connect, clock } = setUp(test);
    const kept = await connect({ issuerKey: 'issuer A' });
    const gone = await connect({ issuerKey: 'issuer B' });
    assert.equal(
      hub.revocation.reauthorise(({ issuerKey }) => issuerKey === 'issuer A', 1000),
      1,
    );
    clock.advance(1100);
    assert.equal(kept.ended, false);
    assert.ok(gone.ended);
    assert.equal(hub.measures.ended.unauthorized, 1);
  });

  it('reload: ends a stream whose authorization was removed before the first private update, live and in a replay', async (test) => {
    const { hub, connect } = setUp(test);
    const grants = readGrant('topic');
    const gone = await connect({ issuerKey: 'gone', grants });
    const kept = await connect({ issuerKey: 'kept', grants });
    for (const [id, data] of ['1', '2', '3'].entries()) {
      await hub.publish(update(data, { private: id === 1, data: 'x'.repeat(20_000) }));
    }
    await turn();
    const behind = await connect({ issuerKey: 'gone', grants, lastEventId: 'earliest' });
    hub.revocation.reauthorise(({ issuerKey }) => issuerKey === 'kept', 10_000);
    assert.equal(gone.ended, false);
    await settle(() => behind.ended);
    assert.deepEqual(behind.ids(), ['1']);
    await hub.publish(update('4'));
    await hub.publish(update('5', { private: true }));
    await hub.publish(update('6'));
    await turn();
    assert.deepEqual(gone.ids(), ['1', '2', '3', '4']);
    assert.ok(gone.ended);
    assert.deepEqual(kept.ids(), ['1', '2', '3', '4', '5', '6']);
    assert.equal(hub.measures.ended.unauthorized, 2);
  });
});

interface Connected {
  readonly subscription: Subscription;
  readonly cursor: string | null;
  readonly sink: RecordingSink;
}

function setUp(
  test: TestContext,
  options: { size?: number; transport?: Transport } = {},
): {
  hub: Hub;
  clock: TestClock;
  connect(
    overrides: Partial<SubscribeOptions & StreamSettings>,
    sink?: { blocked?: boolean; lagging?: boolean },
  ): Promise<Connected & RecordingSink>;
} {
  const clock = new TestClock();
  const transport = options.transport ?? createMemoryTransport({ size: options.size ?? 1000 });
  const names = { profile: profiles.hub, hubPath: '/.well-known/hub', base };
  const hub = new Hub({ transport, names, ...processAround(clock) });
  test.after(() => hub.close());
  return {
    hub,
    clock,
    async connect(overrides, { blocked = false, lagging = false } = {}) {
      const subscription = await hub.subscribe(
        wish({ matchers: matchers('*'), ...overrides }, overrides),
      );
      const sink = new RecordingSink(blocked);
      sink.isLagging = lagging;
      subscription.open(sink);
      return Object.assign(sink, { subscription, cursor: subscription.cursor, sink });
    },
  };
}

function matchers(...topics: string[]): SubscribeOptions['matchers'] {
  return topics.map((match) => compileMatcher({ match, matchType: 'exact' }, base, null));
}

function pattern(match: string): SubscriptionMatcher {
  return compileMatcher({ match, matchType: 'urlpattern' }, base, null);
}

function readGrant(match: string): Grants {
  return {
    publish: [],
    subscribe: [{ matchers: [compileMatcher({ match, matchType: 'exact' }, base, null)] }],
  };
}

/** A history, and how often it has been read. */
function countingReads(): { readonly transport: Transport; reads(): number } {
  const memory = createMemoryTransport({ size: 10_000 });
  let reads = 0;
  const transport: Transport = Object.create(memory, {
    read: {
      value: (after: number, limit: number) => {
        reads += 1;
        return memory.read(after, limit);
      },
    },
    position: { get: () => memory.position },
    lastEventId: { get: () => memory.lastEventId },
  });
  return { transport, reads: () => reads };
}

function update(id: string, fields: Partial<Update> = {}): Update {
  return { id, topics: ['topic'], data: 'x', private: false, type: null, retry: null, ...fields };
}

function presenceEvent(id: number): Update {
  const topics = [`${base}/subscriptions/exact/match/urn:${id}`];
  return update(`e${id}`, { topics, private: true, presence: true });
}

function event(id: string): string {
  return `id: ${id}\ndata: x\n\n`;
}

/** Lets the event loop turn until the condition holds; the test's own timeout catches never. */
async function settle(condition: () => boolean): Promise<void> {
  while (!condition()) await turn();
}
