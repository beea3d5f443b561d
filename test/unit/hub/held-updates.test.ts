import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { Delivery, Flusher } from '../../../src/hub/delivery.ts';
import { FanOut } from '../../../src/hub/fan-out.ts';
import { Hub } from '../../../src/hub/hub.ts';
import { HistoryPage } from '../../../src/hub/history-reader.ts';
import { compileMatcher } from '../../../src/hub/matcher.ts';
import { profiles } from '../../../src/hub/profile.ts';
import type { Subscriber } from '../../../src/hub/subscriber.ts';
import { SubscriptionIndex } from '../../../src/hub/subscription-index.ts';
import type { HistoryEntry } from '../../../src/hub/transport.ts';
import { GroupCommit } from '../../../src/transports/group-commit.ts';
import { Budget, type Scheduler } from '../../../src/kernel/scheduler.ts';
import { createMemoryTransport } from '../../../src/transports/memory/memory-transport.ts';
import { processAround, RecordingSink, wish } from '../../support/core-hub.ts';
import { TestClock } from '../../support/test-clock.ts';
import { encodeEvent } from '../../support/without-pauses.ts';

setFlagsFromString('--expose-gc');
const collectGarbage = runInNewContext('gc') as () => void;

const base = 'https://hub.invalid/hub';

function entry(position: number, topics: readonly string[] = ['t'], data = ''): HistoryEntry {
  const update = { id: `u${position}`, topics, data, private: false, type: null, retry: null };
  return { position, update };
}

/** Though a thousand who catch up have such outlets. */
function isGivenOut(sendBuffer: { readonly isListed: boolean; flush(): boolean }): void {
  const scheduler = { add: () => {} } as unknown as Scheduler;
  const delivery: Delivery = new Delivery(new SubscriptionIndex(), base, scheduler, () => 0, {
    deliver: () => {},
    // The next page of the history waits for it at once.
    flushed: (subscriber) => delivery.flush(subscriber),
  });
  for (let count = 0; count < 1_000; count += 1) {
    delivery.flush({ sendBuffer: { ...sendBuffer } } as unknown as Subscriber);
  }
  for (let position = 1; position <= 100; position += 1) delivery.dispatch([entry(position)]);
  for (let slice = 0; slice < 10_000 && delivery.delivered() !== null; slice += 1) {
    delivery.run(new Budget(50));
  }
  assert.equal(delivery.delivered(), null);
}

describe('the updates that a hub keeps in memory', () => {
  it('do not include delivered updates, even if the backlog is never empty', async () => {
    const fanOut = new FanOut(new SubscriptionIndex(), base, () => {});
    const early: WeakRef<HistoryEntry>[] = [];
    for (let position = 1; position <= 8_000; position += 1) {
      const one = entry(position);
      if (position <= 100) early.push(new WeakRef(one));
      fanOut.add([one]);
      if (position % 4 === 0) fanOut.run(new Budget(700));
    }
    assert.ok(fanOut.waiting > 0 && fanOut.delivered > 5_000);
    await turn();
    collectGarbage();
    assert.equal(early.filter((ref) => ref.deref() !== undefined).length, 0);
  });

  it('do not include finished streams or their events, even if others are always waiting', async () => {
    const flusher = new Flusher(
      () => 0,
      () => {},
    );
    const early: WeakRef<Subscriber | Buffer>[] = [];
    for (let count = 1; count <= 8_000; count += 1) {
      const sendBuffer = { isListed: false, flush: () => false };
      const subscriber = { sendBuffer } as unknown as Subscriber;
      const event = Buffer.from('an event');
      if (count <= 100) early.push(new WeakRef(subscriber), new WeakRef(event));
      // As a stream begins to wait.
      flusher.empty.with(event);
      flusher.add(subscriber);
      if (count % 4 === 0) flusher.run(new Budget(15));
    }
    await turn();
    collectGarbage();
    assert.equal(early.filter((ref) => ref.deref() !== undefined).length, 0);
    assert.equal(flusher.run(new Budget(15)), true, 'some wait');
  });

  it('are delivered even if more streams catch up than fit in a slice', () =>
    isGivenOut({ isListed: false, flush: () => false }));

  it('are delivered even if some streams always have more to write', () =>
    isGivenOut({ isListed: false, flush: () => true }));

  it('are measured by topics as well as data: in the backlog, in pages of the history, before they are stored', async () => {
    const topics = Array.from({ length: 1_000 }, (_, index) => `${index}`.padEnd(1_000, 'x'));
    const fanOut = new FanOut(new SubscriptionIndex(), base, () => {});
    fanOut.add([entry(1, topics)]);
    assert.ok(fanOut.backlogSize >= 1_000_000);
    assert.ok(
      new HistoryPage(
        { after: 0, until: 1, evicted: { updates: 0, events: 0 } },
        [entry(1, topics)],
        base,
      ).size >= 1_000_000,
    );
    const commits = new GroupCommit(() => new Promise(() => {}), new TestClock());
    let refused = 0;
    for (let count = 0; count < 100; count += 1) {
      commits.append(entry(count, topics).update).catch(() => {
        refused += 1;
      });
    }
    await turn();
    assert.ok(refused > 30);
  });

  it('take about as much memory as was published, however many streams share them under load', async () => {
    const clock = new TestClock();
    const names = { profile: profiles.hub, hubPath: '/hub', base };
    const transport = createMemoryTransport({ size: 10 });
    const hub = new Hub({ transport, names, ...processAround(clock) });
    const matchers = [compileMatcher({ match: 't', matchType: 'exact' }, base, null)];
    const made = new Set<ArrayBufferLike>();
    const seen = { bytes: 0 };
    for (let count = 0; count < 1_000; count += 1) {
      const { open } = await hub.subscribe(wish({ matchers }));
      const sink = new RecordingSink();
      sink.write = (framed) => {
        if (framed.length > 4_096) made.add(framed.buffer);
        seen.bytes += framed.length;
        return true;
      };
      open(sink);
    }
    const data = 'x'.repeat(2_000);
    const updates = Array.from({ length: 1_000 }, (_, index) => entry(index, ['t'], data).update);
    const published = updates.reduce((sum, one) => sum + encodeEvent(one).length, 0);
    await Promise.all(updates.map((one) => hub.publish(one)));
    while (seen.bytes < published * 1_000) await turn();
    const bytes = [...made].reduce((sum, { byteLength }) => sum + byteLength, 0);
    assert.ok(bytes < 3 * published, `${bytes} bytes for ${published}`);
    hub.close();
  });

  it('count even if they are empty', () => {
    const fanOut = new FanOut(new SubscriptionIndex(), base, () => {});
    fanOut.add(Array.from({ length: 100 }, (_, index) => entry(index)));
    assert.ok(fanOut.backlogSize > 10_000);
    fanOut.run(new Budget(1_000_000));
    assert.equal(fanOut.backlogSize, 0);
  });
});
