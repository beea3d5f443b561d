import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { type Budget, Scheduler, TURN_STEPS, type Task } from '../../../src/kernel/scheduler.ts';
import { TurnedScheduler } from '../../support/turned-scheduler.ts';

/** Work of so many steps, done by tens. */
class Steps implements Task {
  done = 0;
  readonly #total: number;

  constructor(total: number) {
    this.#total = total;
  }

  run(budget: Budget): boolean {
    while (!budget.isSpent && this.done < this.#total) {
      budget.spend(10);
      this.done += 10;
    }
    return this.done < this.#total;
  }
}

describe('scheduler', () => {
  it('does no more than one slice per turn, and finishes all the work in the end', async () => {
    const scheduler = new TurnedScheduler();
    const works = Array.from({ length: 7 }, () => new Steps(300_000));
    for (const work of works) scheduler.add(work);
    const sum = (): number => works.reduce((total, { done }) => total + done, 0);
    let before = 0;
    const turns = await scheduler.all(() => {
      assert.ok(sum() - before <= TURN_STEPS + 2_000, `${sum() - before} steps in a turn`);
      before = sum();
    });
    assert.equal(before, 2_100_000);
    assert.ok(turns >= 21);
  });

  it('gives each task the same share of a turn, and the remainder to tasks with more to do', async () => {
    const scheduler = new TurnedScheduler();
    const [long, longer, short] = [new Steps(10 ** 7), new Steps(10 ** 7), new Steps(1_000)];
    for (const work of [long, longer, short]) scheduler.add(work);
    await scheduler.turn();
    assert.equal(short.done, 1_000);
    assert.ok(Math.abs(long.done - longer.done) < TURN_STEPS / 2);
    assert.ok(long.done + longer.done >= TURN_STEPS - 2_000);
  });

  it('runs a task that pauses only after its pause, even if it is added in the meantime', async () => {
    const wakes: (() => void)[] = [];
    const turns: (() => void)[] = [];
    const scheduler = new Scheduler(
      (turn) => void turns.push(turn),
      (wake) => void wakes.push(wake),
    );
    const takeTurns = (): void => {
      for (const turn of turns.splice(0)) turn();
    };
    const [resting, other] = [new Steps(10), new Steps(10)];
    scheduler.addAfterPause(resting);
    scheduler.addAfterPause(resting);
    scheduler.add(resting);
    scheduler.add(other);
    takeTurns();
    assert.deepEqual([resting.done, other.done], [0, 10]);
    assert.equal(wakes.length, 1);
    wakes[0]?.();
    takeTurns();
    assert.equal(resting.done, 10);
    const again = new Steps(10);
    scheduler.addAfterPause(again);
    assert.equal(wakes.length, 2);
  });

  it('computes short work at once, and long work over several turns', async () => {
    const scheduler = new TurnedScheduler();
    assert.equal(
      scheduler.compute(function* (budget) {
        if (budget.isSpent) yield;
        return 'short';
      }),
      'short',
    );
    const long = scheduler.compute(function* (budget) {
      for (let i = 0; i < 100; i += 1) {
        if (budget.isSpent) yield;
        budget.spend(TURN_STEPS / 10);
      }
      return 'long';
    });
    assert.ok(long instanceof Promise);
    assert.ok((await scheduler.all()) >= 9);
    assert.equal(await long, 'long');
  });

  it('lets simultaneous callers compute no more than one slice before they are queued', async () => {
    const scheduler = new TurnedScheduler();
    let computed = 0;
    const results = Array.from({ length: 100 }, () =>
      scheduler.compute(function* (budget) {
        if (budget.isSpent) yield;
        budget.spend(TURN_STEPS / 2);
        computed += 1;
        return computed;
      }),
    );
    assert.ok(computed <= 3, `${computed} at once`);
    let before = computed;
    await scheduler.all(() => {
      assert.ok(computed - before <= 3);
      before = computed;
    });
    assert.equal((await Promise.all(results.map((result) => Promise.resolve(result)))).length, 100);
  });

  it('passes on errors of a computation, immediate or later', async () => {
    const scheduler = new TurnedScheduler();
    const failing = (steps: number) =>
      scheduler.compute(function* (budget): Generator<void, never, void> {
        budget.spend(steps);
        if (budget.isSpent) yield;
        throw new Error('no');
      });
    assert.throws(() => failing(1), /no/);
    const later = Promise.resolve(failing(10 ** 6));
    void later.catch(() => {});
    await scheduler.all();
    await assert.rejects(later, /no/);
  });
});
