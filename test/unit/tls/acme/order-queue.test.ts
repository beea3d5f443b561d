import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { OrderQueue } from '../../../../src/tls/acme/order-queue.ts';

describe('order queue', () => {
  it('runs so many at once, the others in the order in which they came', async () => {
    const queue = new OrderQueue(2);
    const { signal } = new AbortController();
    const log: string[] = [];
    const tasks = ['a', 'b', 'c', 'd'].map((name) => {
      let finish = (): void => {};
      const gate = new Promise<void>((resolve) => (finish = resolve));
      const done = queue.run(signal, async () => {
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

  it('who is no longer wanted leaves at once, and a failure makes room', async () => {
    const queue = new OrderQueue(1);
    const unwanted = new AbortController();
    let fail: (error: Error) => void = () => {};
    const first = queue.run(
      new AbortController().signal,
      () => new Promise<never>((_, reject) => (fail = reject)),
    );
    const second = queue.run(unwanted.signal, async () => 'second');
    const third = queue.run(new AbortController().signal, async () => 'third');
    unwanted.abort(new Error('unwanted'));
    await assert.rejects(second, /unwanted/);
    fail(new Error('failed'));
    await assert.rejects(first, /failed/);
    assert.equal(await third, 'third');
    await assert.rejects(
      queue.run(unwanted.signal, async () => 'never'),
      /unwanted/,
    );
  });
});

function turn(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}
