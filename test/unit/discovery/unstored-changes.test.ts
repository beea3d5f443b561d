import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import {
  type AnnouncedUpdate,
  type Change,
  type Outcome,
  UnstoredChanges,
} from '../../../src/discovery/announced-hub.ts';
import { TestClock } from '../../support/test-clock.ts';

const RETRY_MS = 2000;

interface Store {
  readonly unstored: UnstoredChanges;
  /** What becomes of the next updates. */
  outcome: Outcome;
  /** The topics of each update that has been tried. */
  readonly tried: string[];
  readonly announce: (update: AnnouncedUpdate) => Promise<Outcome>;
  /** Lets the time until the next attempt pass. */
  pass(): Promise<void>;
}

function store(): Store {
  const clock = new TestClock();
  const its: Store = {
    unstored: new UnstoredChanges(clock),
    outcome: 'unavailable',
    tried: [],
    announce: async ({ topics, data }) => {
      its.tried.push(`${topics.join(' ')} ${data}`);
      return its.outcome;
    },
    async pass() {
      clock.advance(RETRY_MS);
      await new Promise((resolve) => setImmediate(resolve));
    },
  };
  return its;
}

function change(topic: string, data = 'x'): Change {
  return { update: { topics: [topic], private: false, data }, data };
}

describe('changes that wait for the store of their hub', () => {
  it('are announced in their order when it is back, and only the first is tried before', async () => {
    const its = store();
    for (const topic of ['/a', '/b']) its.unstored.add(topic, change(topic), its.announce);
    await its.pass();
    await its.pass();
    assert.deepEqual(its.tried, ['/a x', '/a x']);
    its.outcome = 'stored';
    await its.pass();
    assert.deepEqual(its.tried.slice(2), ['/a x', '/b x']);
    await its.pass();
    assert.equal(its.tried.length, 4);
  });

  it('become one with a later change of the same topics', async () => {
    const its = store();
    its.unstored.add('/a', change('/a', 'first'), its.announce);
    its.unstored.add('/a', change('/a', 'second'), its.announce);
    const joined = its.unstored.join('/a', change('/a', 'third'));
    assert.equal(joined.update.data, 'third');
    its.outcome = 'stored';
    await its.pass();
    assert.deepEqual(its.tried, []);
  });

  it('keep a later change that comes while an earlier one is being stored', async () => {
    const its = store();
    its.outcome = 'stored';
    const added = async (update: AnnouncedUpdate): Promise<Outcome> => {
      if (its.tried.length === 0) its.unstored.add('/a', change('/a', 'later'), its.announce);
      return its.announce(update);
    };
    its.unstored.add('/a', change('/a', 'earlier'), added);
    await its.pass();
    await its.pass();
    assert.deepEqual(its.tried, ['/a earlier', '/a later']);
  });

  it('do not keep those who have waited for the first attempt', () => {
    const its = store();
    const tried = (): void => {};
    for (let each = 0; each < 3; each += 1) {
      const waited = { ...change('/a'), whenTried: [tried] };
      const joined = its.unstored.join('/a', waited);
      assert.deepEqual(joined.whenTried, [tried]);
      its.unstored.add('/a', joined, its.announce);
    }
  });

  it('are not kept beyond the limits of their number and size', () => {
    const its = store();
    const kept = (topic: string, data: string): boolean =>
      its.unstored.add(topic, change(topic, data), its.announce);
    for (let each = 0; each < 1000; each += 1) assert.ok(kept(`/${each}`, 'x'));
    assert.ok(!kept('/one more', 'x'));
    assert.ok(kept('/0', 'the same topic'));
    assert.equal(its.unstored.close(), 1000);

    const large = store();
    const data = 'x'.repeat(4 * 1024 * 1024);
    assert.ok(large.unstored.add('/a', change('/a', data), large.announce));
    assert.ok(!large.unstored.add('/b', change('/b', data), large.announce));
    large.unstored.join('/a', change('/a'));
    assert.ok(large.unstored.add('/b', change('/b', data), large.announce));
  });

  it('are counted when their hub closes, and not tried any more', async () => {
    const its = store();
    its.unstored.add('/a', change('/a'), its.announce);
    assert.equal(its.unstored.close(), 1);
    await its.pass();
    assert.deepEqual(its.tried, []);
    assert.ok(!its.unstored.add('/b', change('/b'), its.announce));
  });
});
