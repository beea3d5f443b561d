import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { setImmediate as settled } from 'node:timers/promises';
import { FairQueue } from '../../../src/kernel/semaphore.ts';

/** Who is served, in order; each place is given back when the test says so. */
function serving(queue: FairQueue) {
  const order: string[] = [];
  const refused: string[] = [];
  const places: (() => void)[] = [];
  const come = (client: string, isKnown = false, signal?: AbortSignal): void => {
    queue.take(client, isKnown, signal).then(
      (giveBack) => {
        order.push(client);
        places.push(giveBack);
      },
      () => refused.push(client),
    );
  };
  const serveAll = async (): Promise<void> => {
    await settled();
    for (let giveBack = places.shift(); giveBack !== undefined; giveBack = places.shift()) {
      giveBack();
      await settled();
    }
  };
  return { order, refused, places, come, serveAll };
}

const ONE = { places: 1, unknownPlaces: 1, placesPerUnknown: 1, maxWaiting: 100 };

describe('a fair queue', () => {
  it('gives each client a turn before any has its second', async () => {
    const { order, come, serveAll } = serving(new FairQueue(ONE));
    for (let i = 0; i < 50; i += 1) come('many');
    come('few');
    come('one');
    await serveAll();
    assert.equal(order.length, 52);
    assert.ok(order.indexOf('few') <= 2, order.join());
    assert.ok(order.indexOf('one') <= 3, order.join());
  });

  it('gives every other turn to known clients, however many unknown ones wait', async () => {
    const { order, come, serveAll } = serving(new FairQueue(ONE));
    for (let i = 0; i < 60; i += 1) come(`unknown ${i}`);
    for (let i = 0; i < 5; i += 1) come('known', true);
    await serveAll();
    const known = order.flatMap((client, at) => (client === 'known' ? [at] : []));
    assert.ok((known.at(-1) ?? 100) <= 10, order.slice(0, 12).join());
    assert.equal(order.length, 65);
  });

  it('rejects one of the clients with the most waiting tasks, not the newest one', async () => {
    const { order, refused, come, serveAll } = serving(new FairQueue({ ...ONE, maxWaiting: 10 }));
    for (let i = 0; i < 12; i += 1) come('many');
    come('one');
    await serveAll();
    assert.ok(order.includes('one'));
    assert.deepEqual([...new Set(refused)], ['many']);
    assert.equal(order.length + refused.length, 13);
  });

  it('limits the places of unknown clients, in total and for each of them', async () => {
    const options = { places: 10, unknownPlaces: 6, placesPerUnknown: 2, maxWaiting: 100 };
    const { order, come } = serving(new FairQueue(options));
    for (const client of ['a', 'a', 'a', 'a', 'b', 'c', 'd', 'e', 'f']) come(client);
    await settled();
    assert.deepEqual(order, ['a', 'a', 'b', 'c', 'd', 'e']);
    for (let i = 0; i < 5; i += 1) come('known', true);
    await settled();
    assert.equal(order.length, 10);
  });

  it('removes a client that no longer waits', async () => {
    const { order, refused, come, serveAll } = serving(new FairQueue(ONE));
    const leaving = new AbortController();
    come('first');
    come('leaving', false, leaving.signal);
    come('last');
    leaving.abort();
    await serveAll();
    assert.deepEqual([order, refused], [['first', 'last'], ['leaving']]);
  });
});
