import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { type Meter, SLICE_STEPS, type Work } from '../../../src/kernel/slices.ts';
import { TurnedSlices } from '../../support/turned-slices.ts';

/** Work of so many steps, done by tens. */
class Steps implements Work {
  done = 0;
  readonly #total: number;

  constructor(total: number) {
    this.#total = total;
  }

  run(meter: Meter): boolean {
    while (meter.left > 0 && this.done < this.#total) {
      meter.left -= 10;
      this.done += 10;
    }
    return this.done < this.#total;
  }
}

describe('slices', () => {
  it('does no more than a slice in one turn, and all of it in the end', async () => {
    const slices = new TurnedSlices();
    const works = Array.from({ length: 7 }, () => new Steps(300_000));
    for (const work of works) slices.add(work);
    const sum = (): number => works.reduce((total, { done }) => total + done, 0);
    let before = 0;
    const turns = await slices.all(() => {
      assert.ok(sum() - before <= SLICE_STEPS + 2_000, `${sum() - before} steps in a turn`);
      before = sum();
    });
    assert.equal(before, 2_100_000);
    assert.ok(turns >= 21);
  });

  it('gives each work the same part of a turn, and leaves the rest to who has more to do', async () => {
    const slices = new TurnedSlices();
    const [long, longer, short] = [new Steps(10 ** 7), new Steps(10 ** 7), new Steps(1_000)];
    for (const work of [long, longer, short]) slices.add(work);
    await slices.turn();
    assert.equal(short.done, 1_000);
    assert.ok(Math.abs(long.done - longer.done) < SLICE_STEPS / 2);
    assert.ok(long.done + longer.done >= SLICE_STEPS - 2_000);
  });

  it('computes at once what is short, and in turns what is not', async () => {
    const slices = new TurnedSlices();
    assert.equal(
      slices.compute(function* (meter) {
        if (meter.left <= 0) yield;
        return 'short';
      }),
      'short',
    );
    const long = slices.compute(function* (meter) {
      for (let i = 0; i < 100; i += 1) {
        if (meter.left <= 0) yield;
        meter.left -= SLICE_STEPS / 10;
      }
      return 'long';
    });
    assert.ok(long instanceof Promise);
    assert.ok((await slices.all()) >= 9);
    assert.equal(await long, 'long');
  });

  it('lets those who come together compute no more than a slice before they are queued', async () => {
    const slices = new TurnedSlices();
    let computed = 0;
    const results = Array.from({ length: 100 }, () =>
      slices.compute(function* (meter) {
        if (meter.left <= 0) yield;
        meter.left -= SLICE_STEPS / 2;
        computed += 1;
        return computed;
      }),
    );
    assert.ok(computed <= 3, `${computed} at once`);
    let before = computed;
    await slices.all(() => {
      assert.ok(computed - before <= 3);
      before = computed;
    });
    assert.equal((await Promise.all(results.map((result) => Promise.resolve(result)))).length, 100);
  });

  it('hands on what a computation throws, at once or later', async () => {
    const slices = new TurnedSlices();
    const failing = (steps: number) =>
      slices.compute(function* (meter): Generator<void, never, void> {
        meter.left -= steps;
        if (meter.left <= 0) yield;
        throw new Error('no');
      });
    assert.throws(() => failing(1), /no/);
    const later = Promise.resolve(failing(10 ** 6));
    void later.catch(() => {});
    await slices.all();
    await assert.rejects(later, /no/);
  });
});
