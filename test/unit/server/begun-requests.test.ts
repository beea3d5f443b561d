import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { BegunRequests, MAX_BEGUN } from '../../../src/server/pipelined-requests.ts';

describe('requests that a client sends in one go', () => {
  const start = () => {
    let turns: (() => void)[] = [];
    const requests = new BegunRequests((turn) => void turns.push(turn));
    /** Takes a turn of the event loop. */
    const turn = (): void => {
      const all = turns;
      turns = [];
      for (const each of all) each();
    };
    return { requests, turn, pending: () => turns.length };
  };

  it('are started a few per turn, in order', () => {
    const { requests, turn, pending } = start();
    const client = {};
    const begun: number[] = [];
    for (let n = 0; n < 50; n += 1) requests.begin(client, () => void begun.push(n));
    const sizes = [begun.length];
    // One that comes meanwhile is behind them.
    turn();
    requests.begin(client, () => void begun.push(50));
    while (pending() > 0) {
      const before = begun.length;
      turn();
      sizes.push(begun.length - before);
    }
    assert.ok(
      sizes.every((size) => size <= MAX_BEGUN),
      sizes.join(),
    );
    assert.deepEqual(
      begun,
      Array.from({ length: 51 }, (_, n) => n),
    );
  });

  it('do not delay other clients', () => {
    const { requests } = start();
    const [one, other] = [{}, {}];
    for (let n = 0; n < 50; n += 1) requests.begin(one, () => {});
    let isBegun = false;
    requests.begin(other, () => {
      isBegun = true;
    });
    assert.ok(isBegun);
  });

  it('are started at once, turn by turn, when they arrive one after another', () => {
    const { requests, turn } = start();
    const client = {};
    let begun = 0;
    for (let n = 0; n < 20; n += 1) {
      for (let each = 0; each < MAX_BEGUN; each += 1) requests.begin(client, () => (begun += 1));
      assert.equal(begun, (n + 1) * MAX_BEGUN);
      turn();
    }
  });
});
