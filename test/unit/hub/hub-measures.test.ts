import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { Hub } from '../../../src/hub/hub.ts';
import { HubMeasures } from '../../../src/hub/hub-measures.ts';
import { compileMatcher } from '../../../src/hub/matcher.ts';
import { profiles } from '../../../src/hub/profile.ts';
import { drainSpread } from '../../../src/runtime/hub-core.ts';
import { createMemoryTransport } from '../../../src/transports/memory/memory-transport.ts';
import { processAround, RecordingSink, wish } from '../../support/core-hub.ts';
import { TestClock } from '../../support/test-clock.ts';

const base = 'https://hub.invalid/.well-known/hub';

function setUp() {
  const clock = new TestClock();
  const transport = createMemoryTransport({ size: 1000 });
  const names = { profile: profiles.hub, hubPath: '/.well-known/hub', base };
  const around = processAround(clock);
  const hub = new Hub({ transport, names, ...around });
  const matchers = [compileMatcher({ match: '*', matchType: 'exact' }, base, null)];
  const connect = async (sink: RecordingSink, more: Parameters<typeof wish>[0] = {}) => {
    const subscription = await hub.subscribe(wish({ matchers, ...more }, { maxBufferBytes: 100 }));
    subscription.open(sink);
    return sink;
  };
  const publish = (id: string) =>
    hub.publish({
      id,
      topics: ['a'],
      data: 'x'.repeat(80),
      private: false,
      type: null,
      retry: null,
    });
  const turns = async () => {
    for (let i = 0; i < 20; i += 1) await new Promise((resolve) => setImmediate(resolve));
  };
  return { hub, clock, connect, publish, turns };
}

describe('the measures of a hub', () => {
  it('include each event that a stream receives, and the results of replays', async () => {
    const { hub, connect, publish, turns } = setUp();
    await publish('1');
    await publish('2');
    await connect(new RecordingSink());
    await connect(new RecordingSink(), { lastEventId: 'earliest' });
    await turns();
    await publish('3');
    await turns();
    const { deliveries, deliveredBytes, replays, store } = hub.measures;
    assert.equal(deliveries, 4);
    assert.ok(deliveredBytes > 4 * 80);
    const total = (name: string): number | undefined =>
      replays.samples('replayed', {}).find(({ metricName }) => metricName === name)?.value;
    assert.deepEqual([total('replayed_sum'), total('replayed_count')], [2, 1]);
    assert.equal(store.samples('s', {}).at(-1)?.value, 3);
  });

  it('include how far streams lag, the slowest by name, and why they ended', async () => {
    const { hub, clock, connect, publish, turns } = setUp();
    await connect(new RecordingSink());
    await connect(new RecordingSink(true));
    await publish('1');
    await turns();
    clock.advance(3000);
    const { bytes, waitingMs, slowest } = await hub.backlog();
    assert.deepEqual([...waitingMs.toSorted()], [0, 3000]);
    assert.equal([...bytes].filter((one) => one > 0).length, 1);
    assert.equal(slowest.length, 1);
    assert.match(slowest[0]?.id ?? '', /^urn:uuid:/);
    await publish('2');
    await turns();
    await publish('3');
    await publish('4');
    await turns();
    assert.deepEqual(hub.measures.slow, { buffer: 1, timeout: 0 });
    assert.equal(hub.measures.ended.slow, 1);
  });

  it('use fixed names of checks, so that a client cannot create more', () => {
    const measures = new HubMeasures();
    for (let i = 0; i < 500; i += 1) measures.refused(`authorization_details[${i}].topics[0]`);
    measures.refused('status_405');
    measures.refused('42');
    for (let i = 0; i < 500; i += 1)
      measures.refused(`claim${'abcdefghij'[i % 10] ?? ''}${'x'.repeat(i)}`);
    assert.equal(measures.refusals.get('authorization_details'), 500);
    assert.equal(measures.refusals.get('status_405'), 1);
    assert.ok(measures.refusals.size <= 41);
  });
});

describe('a hub that closes', () => {
  it('gives each client a time to reconnect, spread out over a period', async () => {
    const { hub, clock, connect, turns } = setUp();
    const sinks: RecordingSink[] = [];
    for (let i = 0; i < 100; i += 1) sinks.push(await connect(new RecordingSink()));
    const over = hub.drain(1000);
    await turns();
    clock.advance(500);
    await turns();
    const half = sinks.filter(({ ended }) => ended).length;
    assert.ok(half > 20 && half < 80, `${half} of 100 have ended at half time`);
    clock.advance(700);
    await turns();
    assert.ok(sinks.every(({ ended }) => ended));
    assert.equal(hub.measures.ended.closed, 100);
    const retries = new Set(
      sinks.map((sink) => /retry: (\d+)\n$/.exec(String(Buffer.concat(sink.writes)))?.[1]),
    );
    assert.ok(retries.size > 3 && !retries.has(undefined));
    for (const sink of sinks) sink.leave();
    await over;
  });

  it('takes no longer than its streams need, and leaves time for their last bytes', () => {
    assert.equal(drainSpread(1, 30_000), 0);
    assert.equal(drainSpread(50, 30_000), 500);
    assert.equal(drainSpread(100_000, 30_000), 24_000);
    assert.equal(drainSpread(100_000, 0), 0);
  });
});
