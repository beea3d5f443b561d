import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { HubgateError } from '../../../src/kernel/error.ts';
import { DeliveredPosition } from '../../../src/transports/delivered-position.ts';
import { ReadBacks } from '../../../src/transports/read-backs.ts';
import type { StoredEntry } from '../../../src/transports/stored-entry.ts';
import { TestClock } from '../../support/test-clock.ts';

const TOO_LATE = new HubgateError('transport-failed', 'too late');

describe('waiting until the history in Redis has been read up to an entry', () => {
  it('ends when the entry has been delivered, or any entry if its key does not matter', async () => {
    const { readBacks, delivered } = setUp();
    const own = readBacks.wait({ position: 2, key: 'b' }, 1000, TOO_LATE);
    const any = readBacks.wait({ position: 1, key: null }, 1000, TOO_LATE);
    delivered.advance([entry(1, 'a'), entry(2, 'b')]);
    readBacks.settle(delivered);
    await Promise.all([own, any]);
  });

  it('ends without knowing whether it is stored if another entry has its position', async () => {
    const { readBacks, delivered } = setUp();
    const lost = readBacks.wait({ position: 1, key: 'a' }, 1000, TOO_LATE);
    delivered.advance([entry(1, 'other')]);
    readBacks.settle(delivered);
    await assert.rejects(lost, { code: 'transport-uncertain', message: /the history has lost it/ });
  });

  it('ends in the same way if the history has lost its end; waits for earlier entries continue', async () => {
    const { readBacks, delivered } = setUp();
    const kept = readBacks.wait({ position: 1, key: 'a' }, 1000, TOO_LATE);
    const lost = readBacks.wait({ position: 2, key: 'b' }, 1000, TOO_LATE);
    readBacks.loseBehind(1);
    await assert.rejects(lost, { code: 'transport-uncertain' });
    delivered.advance([entry(1, 'a')]);
    readBacks.settle(delivered);
    await kept;
  });

  it('lasts no longer than its limit, and not beyond the end', async () => {
    const { readBacks, delivered, clock } = setUp();
    const late = readBacks.wait({ position: 1, key: 'a' }, 1000, TOO_LATE);
    clock.advance(1000);
    await assert.rejects(late, TOO_LATE);
    const waiting = readBacks.wait({ position: 1, key: 'a' }, 1000, TOO_LATE);
    readBacks.end();
    await assert.rejects(waiting, { code: 'transport-uncertain', message: /before the end/ });
    delivered.advance([entry(1, 'a')]);
    readBacks.settle(delivered);
  });
});

describe('the updates delivered from the history in Redis', () => {
  it('go back to the shared part, and what replaces the rest gets positions of its own', () => {
    const { delivered } = setUp();
    delivered.advance([entry(1, 'a'), entry(2, 'b'), entry(3, 'c')]);
    delivered.goBackTo(1);
    assert.equal(delivered.stored, 1);
    assert.equal(delivered.lastEventId, 'id of a');
    assert.equal(delivered.recent.keyAt(3), undefined);
    assert.ok(delivered.isFollowedBy(entry(2, 'x', 'a')));
    assert.ok(!delivered.isFollowedBy(entry(3, 'y', 'x')));
    assert.ok(!delivered.isFollowedBy(entry(2, 'x', 'b')), 'it follows another');
    const [seen] = delivered.advance([entry(2, 'x', 'a')]);
    assert.equal(seen?.position, 4);
    assert.equal(delivered.position, 4);
    assert.ok(delivered.has(2, 'x'));
    assert.ok(!delivered.has(2, 'b'));
    assert.ok(!delivered.has(3, 'c'));
  });
});

function setUp() {
  const clock = new TestClock();
  return { clock, readBacks: new ReadBacks(clock), delivered: new DeliveredPosition() };
}

function entry(position: number, key: string, previous = ''): StoredEntry {
  const update = {
    id: `id of ${key}`,
    topics: [],
    data: '',
    private: false,
    type: null,
    retry: null,
  };
  return { position, key, previous, at: 0, update };
}
