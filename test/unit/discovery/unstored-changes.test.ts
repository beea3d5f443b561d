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
    for (const topic of ['/a', '/b'])
      await its.unstored.announce(topic, change(topic), its.announce);
    its.tried.length = 0;
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
    const announce = (data: string) =>
      its.unstored.announce('/a', change('/a', data), its.announce);
    assert.equal(await announce('first'), 'waits');
    assert.equal(await announce('second'), 'waits');
    its.outcome = 'stored';
    assert.equal(await announce('third'), 'stored');
    await its.pass();
    assert.deepEqual(its.tried, ['/a first', '/a second', '/a third']);
  });

  it('keep a later change that comes while an earlier one is being stored', async () => {
    const its = store();
    await its.unstored.announce('/a', change('/a', 'earlier'), async (update) => {
      const outcome = await its.announce(update);
      if (its.tried.length === 2) {
        await its.unstored.announce('/a', change('/a', 'later'), its.announce);
        its.outcome = 'stored';
        return its.outcome;
      }
      return outcome;
    });
    await its.pass();
    await its.pass();
    assert.deepEqual(its.tried, ['/a earlier', '/a earlier', '/a later', '/a later']);
  });

  it('keep all topics, although an update has room for 32', async () => {
    const its = store();
    const topics = Array.from({ length: 40 }, (_, number) => `/post-${number}`);
    const announce = (topic: string) => {
      const update = { topics: ['/comments', topic], private: false, data: `for ${topic}` };
      return its.unstored.announce('/comments', { update, data: 'for all' }, its.announce);
    };
    for (const topic of topics) assert.equal(await announce(topic), 'waits');
    its.outcome = 'stored';
    its.tried.length = 0;
    await its.pass();
    const updates = its.tried.map((text) => text.split(' for '));
    const found = updates.flatMap(([list = '']) => list.split(' '));
    // Each topic once.
    assert.deepEqual(found.toSorted(), ['/comments', ...topics].toSorted());
    // Those that stand for several changes name no query.
    assert.deepEqual(
      updates.map(([, data]) => data),
      updates.map(() => 'all'),
    );
    await its.pass();
    assert.equal(its.tried.length, updates.length);
  });

  describe('whose attempt fails after a later change of the same topic was stored', () => {
    /** An attempt to store a change, which the test ends. */
    interface Attempt {
      readonly end: (outcome: Outcome) => void;
      readonly result: Promise<Outcome | 'waits'>;
    }

    function attempt(its: Store, topics: readonly string[], data: string): Attempt {
      let end: Attempt['end'] = () => {};
      const ended = new Promise<Outcome>((resolve) => {
        end = resolve;
      });
      let isFirst = true;
      const announce = (update: AnnouncedUpdate): Promise<Outcome> => {
        const tried = its.announce(update);
        const ends = isFirst ? ended : tried;
        isFirst = false;
        return ends;
      };
      const update = { topics, private: false, data };
      const result = its.unstored.announce('/a', { update, data }, announce);
      return { end, result };
    }

    it('are announced again with the data of the later one', async () => {
      const its = store();
      const [first, second] = [attempt(its, ['/a'], 'old'), attempt(its, ['/a'], 'new')];
      second.end('stored');
      assert.equal(await second.result, 'stored');
      first.end('unavailable');
      assert.equal(await first.result, 'waits');
      its.outcome = 'stored';
      await its.pass();
      assert.deepEqual(its.tried.slice(2), ['/a new']);
    });

    it('are announced again with its data, even if they waited when it was stored', async () => {
      const its = store();
      const first = attempt(its, ['/a', '/b'], 'old');
      const second = attempt(its, ['/a', '/c'], 'new');
      first.end('unavailable');
      assert.equal(await first.result, 'waits');
      second.end('stored');
      assert.equal(await second.result, 'stored');
      its.outcome = 'stored';
      await its.pass();
      assert.deepEqual(its.tried.slice(2), ['/a /b new']);
    });

    it('are joined in the order of the changes, not in that of the failures', async () => {
      const its = store();
      const attempts = ['1', '2', '3'].map((data) => attempt(its, ['/a'], data));
      const outcomes = [
        [2, 'unavailable'],
        [0, 'unavailable'],
        [1, 'stored'],
      ] as const;
      for (const [number, outcome] of outcomes) {
        attempts[number]?.end(outcome);
        await attempts[number]?.result;
      }
      its.outcome = 'stored';
      await its.pass();
      assert.deepEqual(its.tried.slice(3), ['/a 3']);
    });
  });

  it('do not keep those who have waited for the first attempt', async () => {
    const its = store();
    let calls = 0;
    const whenTried = [() => (calls += 1)];
    for (let each = 0; each < 3; each += 1) {
      await its.unstored.announce('/a', { ...change('/a'), whenTried }, its.announce);
      assert.equal(calls, each + 1);
    }
  });

  it('are not kept beyond the limits of their number and size', async () => {
    const its = store();
    const announce = (topic: string, data: string) =>
      its.unstored.announce(topic, change(topic, data), its.announce);
    for (let each = 0; each < 1000; each += 1)
      assert.equal(await announce(`/${each}`, 'x'), 'waits');
    assert.equal(await announce('/one more', 'x'), 'unavailable');
    assert.equal(await announce('/0', 'the same topic'), 'waits');
    assert.equal(its.unstored.close(), 1000);

    const large = store();
    const data = 'x'.repeat(4 * 1024 * 1024);
    const announceLarge = (topic: string, text: string) =>
      large.unstored.announce(topic, change(topic, text), large.announce);
    assert.equal(await announceLarge('/a', data), 'waits');
    assert.equal(await announceLarge('/b', data), 'unavailable');
    assert.equal(await announceLarge('/a', 'x'), 'waits');
    assert.equal(await announceLarge('/b', data), 'waits');
  });

  it('are counted when their hub closes, and not tried any more', async () => {
    const its = store();
    await its.unstored.announce('/a', change('/a'), its.announce);
    assert.equal(its.unstored.close(), 1);
    await its.pass();
    assert.deepEqual(its.tried, ['/a x']);
    assert.equal(await its.unstored.announce('/b', change('/b'), its.announce), 'unavailable');
  });
});
