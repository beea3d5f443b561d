import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import { streamLifetime } from '../../../src/hub/subscriber.ts';

const base = {
  now: 1_000_000,
  expiresAtMs: null,
  writeTimeoutMs: 0,
  dispatchTimeoutMs: 5000,
  random: 0,
};

describe('lifetime of a stream', () => {
  it('B-171: is between 80 % and 100 % of the write timeout, minus the dispatch timeout', () => {
    assert.equal(streamLifetime({ ...base, writeTimeoutMs: 600_000, random: 0 }), 475_000);
    assert.equal(streamLifetime({ ...base, writeTimeoutMs: 600_000, random: 1 }), 595_000);
  });

  it('B-172: depends on the token if that expires sooner', () => {
    const expiresAtMs = base.now + 100_000;
    assert.equal(
      streamLifetime({ ...base, writeTimeoutMs: 600_000, expiresAtMs, random: 0.5 }),
      85_000,
    );
  });

  it('B-173: does not subtract the dispatch timeout if that would end the stream at once', () => {
    assert.equal(streamLifetime({ ...base, expiresAtMs: base.now + 4000, random: 0.5 }), 3600);
  });

  it('B-173: does not subtract the dispatch timeout if that would leave less than it of the stream', () => {
    for (let left = 1000; left <= 20_000; left += 100) {
      const lifetime = streamLifetime({ ...base, expiresAtMs: base.now + left, random: 0.5 });
      assert.ok(lifetime !== null && lifetime >= Math.min(5000, 0.8 * left), `${left} ms left`);
    }
  });

  it('B-174: is unlimited if neither limits it', () => {
    assert.equal(streamLifetime(base), null);
  });

  it('B-172 B-177: never exceeds exp, whatever the random number', () => {
    const ms = fc.integer({ min: 0, max: 10_000_000 });
    fc.assert(
      fc.property(
        ms,
        ms,
        ms,
        fc.double({ min: 0, max: 1, noNaN: true }),
        (life, write, dispatch, random) => {
          const lifetime = streamLifetime({
            now: base.now,
            expiresAtMs: base.now + life,
            writeTimeoutMs: write,
            dispatchTimeoutMs: dispatch,
            random,
          });
          assert.ok(lifetime !== null && lifetime >= 0 && lifetime <= life);
        },
      ),
      { seed: 1 },
    );
  });
});
