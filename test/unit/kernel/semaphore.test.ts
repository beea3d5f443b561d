import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { Semaphore } from '../../../src/kernel/semaphore.ts';

/** Somebody who waits, and may give up. */
class Waiter {
  readonly listeners = new Set<(reason: unknown) => void>();

  readonly onCancelled = (cancel: (reason: unknown) => void): (() => void) => {
    this.listeners.add(cancel);
    return () => void this.listeners.delete(cancel);
  };

  giveUp(reason: Error): void {
    for (const cancel of this.listeners) cancel(reason);
  }
}

const acquire = (semaphore: Semaphore): Promise<void> =>
  semaphore.acquire(new Waiter().onCancelled);

describe('a semaphore', () => {
  it('assigns its places in turn, and takes them back', async () => {
    const semaphore = new Semaphore(1);
    await acquire(semaphore);
    const order: number[] = [];
    const waiting = [1, 2].map((number) => acquire(semaphore).then(() => void order.push(number)));
    semaphore.release();
    await waiting[0];
    assert.deepEqual(order, [1]);
    semaphore.release();
    await waiting[1];
    semaphore.release();
    await acquire(semaphore);
    assert.deepEqual(order, [1, 2]);
  });

  it('keeps nothing in memory from 10,000 callers that gave up while they waited', async () => {
    const semaphore = new Semaphore(1);
    await acquire(semaphore);
    const reason = new Error('gone');
    for (let i = 0; i < 10_000; i += 1) {
      const waiter = new Waiter();
      const taking = semaphore.acquire(waiter.onCancelled);
      waiter.giveUp(reason);
      await assert.rejects(taking, reason);
    }
    assert.equal(semaphore.waiting, 0);
    const last = acquire(semaphore);
    semaphore.release();
    await last;
  });

  it('leaves no listener on the signals of callers that got a place', async () => {
    const semaphore = new Semaphore(1);
    const waiters = [new Waiter(), new Waiter()];
    const [first, second] = waiters.map(({ onCancelled }) => semaphore.acquire(onCancelled));
    await first;
    semaphore.release();
    await second;
    assert.deepEqual(
      waiters.map(({ listeners }) => listeners.size),
      [0, 0],
    );
  });

  it('runs a limited number of tasks at once, and the others in order of arrival', async () => {
    const semaphore = new Semaphore(2);
    const { signal } = new AbortController();
    const log: string[] = [];
    const tasks = ['a', 'b', 'c', 'd'].map((name) => {
      let finish = (): void => {};
      const gate = new Promise<void>((resolve) => (finish = resolve));
      const done = semaphore.run(signal, async () => {
        log.push(name);
        await gate;
      });
      return { done, finish };
    });
    await turn();
    assert.deepEqual(log, ['a', 'b']);
    tasks[1]?.finish();
    await tasks[1]?.done;
    await turn();
    assert.deepEqual(log, ['a', 'b', 'c']);
    for (const { finish } of tasks) finish();
    await Promise.all(tasks.map(({ done }) => done));
    assert.deepEqual(log, ['a', 'b', 'c', 'd']);
  });

  it('removes a waiting task at once if its signal is aborted, and frees the place of a task that fails', async () => {
    const semaphore = new Semaphore(1);
    const unwanted = new AbortController();
    let fail: (error: Error) => void = () => {};
    const first = semaphore.run(
      new AbortController().signal,
      () => new Promise<never>((_, reject) => (fail = reject)),
    );
    const second = semaphore.run(unwanted.signal, async () => 'second');
    const third = semaphore.run(new AbortController().signal, async () => 'third');
    unwanted.abort(new Error('unwanted'));
    await assert.rejects(second, /unwanted/);
    fail(new Error('failed'));
    await assert.rejects(first, /failed/);
    assert.equal(await third, 'third');
    await assert.rejects(
      semaphore.run(unwanted.signal, async () => 'never'),
      /unwanted/,
    );
  });
});

function turn(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}
