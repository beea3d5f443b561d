import { Budget } from '../../../src/kernel/scheduler.ts';
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';

import fc from 'fast-check';
import { parseTemplate } from 'url-template';
import { UriTemplate } from '../../../src/hub/pattern/uri-template.ts';

const BASE = 'https://example.com';

describe('URI Templates of 0.x (RFC 6570)', () => {
  for (const [template, covered, uncovered] of [
    ['/{id}', ['/1', '/', '/a,b', '/%41', '/a.b-c_~'], ['/1/2', '/é', '/a!b', '/a%zz', '/a=b']],
    ['/{+p}', ['/a/b?c#d', '/', '/a!$&', '/a,b'], ['/a b', '/é', '']],
    ['/{a,b}', ['/1,2', '/1', '/'], ['/1/2']],
    ['{/a,b}', ['/1/2', '/1', '', '/1,2'], ['/1/2/3', '1']],
    ['{/a*}', ['/1/2/3', '', '/k=v/x=y'], ['1/2']],
    ['{?x,y}', ['?x=1&y=2', '?y=2', '', '?x=1,2', '?x='], ['?z=1', '?y=1&x=2', '?x', '?x=1&x=2']],
    ['{?x*}', ['?x=1&x=2', '?a=1&b=2', ''], ['?x', '&x=1']],
    ['?f{&x}', ['?f&x=1', '?f', '?f&x='], ['?f&y=1', '?fx=1']],
    ['{#f}', ['#a', '', '#a/b'], ['a', '#a b']],
    ['/x{.a}', ['/x.json', '/x', '/x.a.b'], ['/xjson', '/x./']],
    ['/x{;a,b}', ['/x;a=1;b=2', '/x;a', '/x', '/x;b'], ['/x;c', '/x;b;a']],
    ['/{id:3}', ['/abc', '/a', '/', '/%41bc', '/%C3%A9bc'], ['/abcd', '/a,b', '/%FFabc']],
    ['/é/{id}', ['/é/1'], ['/%C3%A9/1']],
    ['/😀/{id}', ['/😀/1'], ['/😁/1']],
    ['/{a}{b}', ['/ab', '/'], ['/a/b']],
    ['/%41{c}', ['/%41x'], ['/Ax']],
    ['/{a.b}/{%41}', ['/1/2'], ['/1']],
  ] as const) {
    it(`${template} covers its expansions only`, () => {
      const { test } = bound(BASE + template);
      for (const text of covered) assert.equal(test(BASE + text), true, text);
      for (const text of uncovered) assert.equal(test(BASE + text), false, text);
    });
  }

  it('need at least one variable, and must be valid by RFC 6570', () => {
    for (const text of [
      ...['', 'plain', '{', '}', '{}', '{a', 'a}{b}', '{a b}', '{=x}', '{a,}', '{a..b}', '{.}'],
      ...['{a:0}', '{a:10000}', '{a:}', '{a(b)}', 'a b{c}', '{a}"', '<{a}>', '{%4}', '%zz{a}'],
      ...['{a}^', '{a}|', '{a}`', '{a}\\', '{{a}}', '{é}', '{a*:3}'],
    ]) {
      assert.throws(() => new UriTemplate(text), { code: 'not-a-template' }, text);
    }
  });

  it('are refused, with the reason, if they are larger than a pattern may be', () => {
    for (const text of [
      '{a:9999}',
      `{?${Array.from({ length: 200 }, (_, i) => `v${i}`).join()}}`,
    ]) {
      assert.throws(() => new UriTemplate(text), { code: 'invalid-pattern', message: /too large/ });
    }
  });

  it('take time in proportion to the text, whatever the template', () => {
    const budget = new Budget(0);
    const hostile = new UriTemplate('{+a}{+b}{+c}{+d}{+e}!{+f*}{+g*}');
    for (const length of [1_000, 2_000, 4_000]) hostile.test('a'.repeat(length), budget);
    assert.ok(budget.left > -3 * 400_000, `${budget.left} steps`);
  });

  it('cover every expansion that the reference library produces', () => {
    const name = fc.constantFrom('a', 'b', 'c');
    const modifier = fc.constantFrom('', '', '*', ':2', ':5');
    const variable = fc.tuple(name, modifier).map((parts) => parts.join(''));
    const expression = fc
      .tuple(
        fc.constantFrom('', '+', '#', '.', '/', ';', '?', '&'),
        fc.uniqueArray(variable, { minLength: 1, maxLength: 3, selector: (text) => text[0] }),
      )
      .map(([operator, variables]) => `{${operator}${variables.join()}}`);
    const part = fc.oneof(expression, fc.constantFrom('/', 'x', ':y', '%20', '.'));
    const template = fc.array(part, { minLength: 1, maxLength: 4 }).map((parts) => parts.join(''));
    // The library leaves what looks like an escape and is none, and cuts those that are.
    const text = fc.string({ maxLength: 6 }).map((one) => one.replaceAll('%', ''));
    const value = fc.oneof(text, fc.array(text, { minLength: 1, maxLength: 3 }));
    const values = fc.record({ a: value, b: value, c: value }, { requiredKeys: [] });
    fc.assert(
      fc.property(template, values, (written, variables) => {
        if (!written.includes('{')) return;
        const usable = Object.fromEntries(
          Object.entries(variables).filter(
            ([key, one]) => typeof one === 'string' || !written.includes(`${key}:`),
          ),
        );
        const expansion = parseTemplate(written).expand(usable);
        assert.ok(new UriTemplate(written).test(expansion), `${written} → ${expansion}`);
      }),
      { numRuns: 3000 },
    );
  });
});

function bound(template: string): { readonly test: (text: string) => boolean } {
  const compiled = new UriTemplate(template);
  return { test: (text) => compiled.test(text) };
}
