import assert from 'node:assert/strict';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, it, type TestContext } from 'node:test';
import { defaultFileServer } from '../../../src/directives/file-server/data.ts';
import {
  answerListing,
  compareNaturally,
  sorted,
  texts,
} from '../../../src/directives/file-server/listing.ts';
import { HttpError } from '../../../src/http/errors.ts';
import {
  Budget,
  completed,
  Scheduler,
  TURN_STEPS,
  unlimitedBudget,
} from '../../../src/kernel/scheduler.ts';
import { temporaryDirectory } from '../../support/temporary-directory.ts';
import { fakeExchange } from '../http/fake-exchange.ts';

describe('a listing of 10,000 entries', () => {
  const numbers = Array.from({ length: 10_000 }, (_, n) => ({ key: (n * 7919) % 5003, n }));
  const compare = (a: { key: number }, b: { key: number }): number => a.key - b.key;

  it('is sorted in slices, with the same result as in one go', () => {
    const budget = new Budget(TURN_STEPS);
    const steps = sorted(numbers, compare, budget);
    let scheduler = 1;
    let result = steps.next();
    for (; result.done !== true; scheduler += 1) {
      assert.ok(budget.left > -TURN_STEPS, `${budget.left} steps are left`);
      budget.left = TURN_STEPS;
      result = steps.next();
    }
    assert.ok(scheduler >= 10, `${scheduler} slices`);
    assert.deepEqual(result.value, [...numbers].sort(compare));
  });

  it('sorts few entries in the same order as many', () => {
    for (const length of [0, 1, 499, 500, 501, 1501]) {
      const some = numbers.slice(0, length);
      assert.deepEqual(
        completed(sorted(some, compare, unlimitedBudget())),
        [...some].sort(compare),
      );
    }
  });

  it('is written in slices', () => {
    const budget = new Budget(TURN_STEPS);
    const steps = texts(numbers, ({ n }) => String(n), budget);
    let scheduler = 1;
    for (; steps.next().done !== true; scheduler += 1) budget.left = TURN_STEPS;
    assert.ok(scheduler >= 10, `${scheduler} slices`);
  });
});

describe('many listings that one client asks for', () => {
  const listed = async (
    test: TestContext,
    clients: readonly AbortController[],
    onLookUp: (client: number) => void,
  ): Promise<PromiseSettledResult<void>[]> => {
    const root = await temporaryDirectory(test);
    for (let n = 0; n < 100; n += 1) await writeFile(join(root, `${n}.txt`), '');
    const scheduler = new Scheduler();
    return Promise.allSettled(
      clients.map(({ signal }, client) => {
        const hidesFile = (): boolean => {
          onLookUp(client);
          return false;
        };
        const directory = { root, names: [], isHidden: () => false, hidesFile, status: null };
        return answerListing(
          fakeExchange({ signal }),
          directory,
          defaultFileServer.listing,
          scheduler,
        );
      }),
    );
  };

  it('are made one after the other', async (test) => {
    const order: number[] = [];
    const clients = Array.from({ length: 5 }, () => new AbortController());
    await listed(test, clients, (client) => void order.push(client));
    assert.equal(order.length, 500);
    assert.deepEqual(
      order,
      [...order].sort((a, b) => a - b),
    );
  });

  it('end when the client leaves', async (test) => {
    const client = new AbortController();
    let lookUps = 0;
    const results = await listed(test, [client, client, client], () => {
      lookUps += 1;
      client.abort();
    });
    assert.ok(lookUps < 100, `${lookUps} entries`);
    for (const result of results) {
      assert.ok(result.status === 'rejected' && result.reason instanceof HttpError);
      assert.equal(result.reason.status, 499);
    }
  });
});

describe('the natural order of names', () => {
  it('compares numbers by value, and is a consistent order', () => {
    const ordered = [
      '',
      '01',
      '1',
      '1.9',
      '1.10',
      '2',
      '10',
      'a',
      'a01',
      'a1',
      'a1b',
      'a2',
      'a10',
      'b',
    ];
    for (const [at, one] of ordered.entries()) {
      for (const [other, text] of ordered.entries()) {
        const expected = Math.sign(at - other);
        assert.equal(Math.sign(compareNaturally(one, text)), expected, `${one} ${text}`);
      }
    }
  });
});
