import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { parsePublication, readPublication } from '../../../src/hub/publication.ts';
import { profiles } from '../../../src/hub/profile.ts';
import { parseForm, parseQuery } from '../../../src/hub-http/form.ts';
import { Budget, TURN_STEPS, completed, unlimitedBudget } from '../../../src/kernel/scheduler.ts';

/** Bytes of a form that hubs take without being told otherwise. */
const BODY_BYTES = 1024 * 1024;

/** Works with a slice at a time; tells how many there were, and the most that one of them cost, in steps. */
function inSlices<T>(computation: (budget: Budget) => Generator<void, T, void>) {
  const budget = new Budget(TURN_STEPS);
  const steps = computation(budget);
  let most = 0;
  for (let scheduler = 1; ; scheduler += 1) {
    const { done, value } = steps.next();
    most = Math.max(most, TURN_STEPS - budget.left);
    if (done === true) return { value, scheduler, most };
    budget.left = TURN_STEPS;
  }
}

const fields = (text: string) =>
  completed(parseForm(Buffer.from(text, 'latin1'), unlimitedBudget()));

describe('a form (WHATWG URL §5.1)', () => {
  for (const [what, escape] of [
    ['escapes', '%41'],
    ['plus signs', '+'],
    ['percent signs', '%'],
    ['bytes that are not UTF-8', '%ff'],
  ] as const) {
    it(`full of ${what} is decoded in slices`, () => {
      const form = Buffer.from(`data=${escape.repeat(BODY_BYTES / escape.length)}`);
      const { scheduler, most } = inSlices((budget) => parseForm(form, budget));
      assert.ok(scheduler >= 5, `${scheduler} slices`);
      assert.ok(most < TURN_STEPS * 1.1, `${most} steps`);
    });
  }

  it('is decoded to the same result, however it is split into pieces', () => {
    for (const shift of [0, 1, 2]) {
      const text = 'x'.repeat(shift) + '€ +%'.repeat(8000);
      assert.deepEqual(fields(`data=${encodeURIComponent(text)}&b=%e2%82`), [
        { name: 'data', value: text },
        { name: 'b', value: null },
      ]);
    }
  });

  it('truncates a name that is longer than any known one', () => {
    const [field] = fields(`${'%74'.repeat(100_000)}=1`) ?? [];
    assert.ok(field !== undefined && field.name.length <= 256);
    assert.deepEqual(fields('%74opic=1'), [{ name: 'topic', value: '1' }]);
  });

  it('has the same syntax as a query', () => {
    assert.deepEqual(parseQuery('/hub?match=a+b&match=%ff&&c'), [
      { name: 'match', value: 'a b' },
      { name: 'match', value: null },
      { name: 'c', value: '' },
    ]);
  });
});

describe('a query', () => {
  it('has the same fields whether it is decoded as text or as bytes', () => {
    const parts = ['match', 'a', '=', '&', '+', '%', '%41', '%4', '%C3%A9', '%c3', '%ED%A0%80'];
    parts.push('%F0%9F%98%80', '%C0%80', '%EF%BB%BF', '%00', '%26', '%3D', '\xe9', '?', '\x7f');
    let seed = 1;
    const random = (below: number): number => {
      seed = (seed * 48_271) % 2_147_483_647;
      return seed % below;
    };
    for (let i = 0; i < 20_000; i += 1) {
      const query = Array.from({ length: random(12) }, () => parts[random(parts.length)]).join('');
      assert.deepEqual(parseQuery(`/hub?${query}`), fields(query), JSON.stringify(query));
    }
    const long = 'match=%41&'.repeat(1101);
    assert.equal(parseQuery(`/hub?${long}`), null);
    assert.deepEqual(parseQuery(`/hub?${long.slice(0, 600)}`), fields(long.slice(0, 600)));
  });
});

describe('a publication', () => {
  const rules = {
    profile: profiles.hub,
    base: 'https://hub.example/.well-known/hub',
    hubPath: '/.well-known/hub',
  };
  const rest = { data: 'x', private: false, id: 'a', type: undefined, retry: undefined };

  it('with many long topics has them read in slices', () => {
    const topics = Array.from({ length: 250 }, (_, n) => `https://${'@'.repeat(4000)}${n}`);
    const { value, scheduler, most } = inSlices((budget) =>
      readPublication({ ...rest, topics }, rules, budget),
    );
    assert.ok(scheduler >= 10, `${scheduler} slices`);
    assert.ok(most < TURN_STEPS * 1.1, `${most} steps`);
    assert.deepEqual(value?.update, parsePublication({ ...rest, topics }, rules).update);
  });
});
