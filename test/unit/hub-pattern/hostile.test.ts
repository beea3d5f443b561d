import { Budget } from '../../../src/kernel/scheduler.ts';
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { parseTopic, type UrlComponents } from '../../../src/hub/topic.ts';
import { UrlPattern } from '../../../src/hub/pattern/url-pattern.ts';
import { cpuMs } from '../../support/cpu-time.ts';

const BASE = 'https://hub.example/.well-known/hub';
/** Only catches a hang: the engines that backtrack take minutes to hours here. */
const BOUND_MS = 5000;

function finishes(pattern: string, topic: string): boolean | 'refused' {
  let verdict: boolean | 'refused' = 'refused';
  const taken = cpuMs(() => {
    verdict = verdictOf(pattern, topic);
  });
  assert.ok(taken < BOUND_MS, `took ${taken} ms`);
  return verdict;
}

function componentsFor(topic: string): UrlComponents {
  const { url } = parseTopic(topic, BASE);
  assert.ok(url);
  return url;
}

function verdictOf(pattern: string, topic: string): boolean | 'refused' {
  try {
    const { url } = parseTopic(topic, BASE);
    return url !== null && new UrlPattern(pattern, BASE).test(url);
  } catch {
    return 'refused';
  }
}

const a = (count: number): string => 'a'.repeat(count);

describe('hostile URL Patterns (G-452, G-453)', () => {
  for (const [pattern, topic, expected] of [
    ['/((?:a+)+)b', `/${a(4000)}`, false],
    ['/((?:a+)+)b', `/${a(4000)}b`, true],
    ['/{a*}*b', `/${a(4000)}`, false],
    ['/*a*a*a*a*a*b', `/${a(4000)}`, false],
    ['/*a*a*a*a*a*b', `/${a(4000)}b`, true],
    ['/:a-:b-:c-:d-:e!', `/${'-'.repeat(4000)}`, false],
    ['https://**.example.com/', `https://${a(60)}.${a(60)}.${a(60)}/`, false],
    ['/((?:a|aa|aaa)*)b', `/${a(4000)}`, false],
    ['/((?:a?){100}a{100})', `/${a(100)}`, true],
    ['/((?:(?:(?:a*)*)*)*)b', `/${a(4000)}`, false],
  ] as const) {
    it(`${pattern} on ${topic.length} characters is ${expected}, without delay`, () => {
      assert.equal(finishes(pattern, topic), expected);
    });
  }
  it('stop after too many steps and do not match, if even linear time would be too long', () => {
    const pattern = `/${'(a*)a'.repeat(45)}b`;
    assert.equal(finishes(pattern, `/${a(4000)}b`), false);
  });
  it('count the steps that a test needs, not those that it might need: a large pattern matches a long topic', () => {
    const pattern = new UrlPattern('/(\\d{1,300})/:rest', BASE);
    const budget = new Budget(10_000);
    assert.ok(pattern.test(componentsFor(`/42/${'x'.repeat(1000)}`), budget));
    assert.ok(budget.left > 0, `${10_000 - budget.left} steps`);
  });
  it('search for the literals of wildcards once, however many there are', () => {
    const pattern = new UrlPattern(`/${'*a'.repeat(95)}b*`, BASE);
    for (const topic of [`/${a(4000)}b`, `/${a(4000)}`, `/${a(94)}b`]) {
      const budget = new Budget(10_000);
      assert.equal(pattern.test(componentsFor(topic), budget), topic === `/${a(4000)}b`);
      assert.ok(budget.left > 8_000, `${10_000 - budget.left} steps`);
    }
  });
  it('do not run regular expressions if the topic lacks one of the pattern’s literals', () => {
    const pattern = new UrlPattern(`/${'((?:a+)+)x'.repeat(20)}b7`, BASE);
    const budget = new Budget(10_000);
    assert.equal(pattern.test(componentsFor(`/${`${a(190)}x`.repeat(20)}b8`), budget), false);
    assert.ok(budget.left > 9_000, `${10_000 - budget.left} steps`);
  });
  for (const [name, pattern] of [
    ['optional names', `${Array.from({ length: 95 }, (_, i) => `:n${i}?`).join('')}b://x/`],
    ['wildcards', `${'*?'.repeat(95)}b://x/`],
    ['groups', `${'(a*)?'.repeat(95)}b://x/`],
    ['one group', `((?:${'(?:.*)?'.repeat(500)})b)://x/`],
  ] as const) {
    it(`a protocol of ${name} does not even run the library's expressions`, () => {
      assert.notEqual(finishes(pattern, 'https://example.com/'), true);
    });
  }
  for (const [name, pattern] of [
    ['braces', '{'.repeat(4096)],
    ['parentheses', '('.repeat(4096)],
    ['nested groups', `/(${'(?:'.repeat(1000)}a${')'.repeat(1000)})`],
    ['classes', `/(${'[a-z]'.repeat(800)})`],
    ['nested classes', `/(${'['.repeat(1300)}a${']'.repeat(1300)})`],
    ['wildcards', `/${'*'.repeat(4095)}`],
    ['wildcard segments', `/${'/*'.repeat(2000)}`],
    ['colons', ':'.repeat(4096)],
    ['backslashes', '\\'.repeat(4095)],
    ['repeats', `/(${'a{1000}'.repeat(500)})`],
    ['number signs', `/${'#'.repeat(4095)}`],
    ['slashes', `x:/${'/'.repeat(4093)}`],
    ['empty braces', `x:/${'/{}'.repeat(100)}${'/'.repeat(3700)}`],
    ['what is written in three', `/:n${'é'.repeat(2000)}`],
  ] as const) {
    it(`4 KiB of ${name} are compiled or refused without delay`, () => {
      finishes(pattern, `/${a(4000)}`);
    });
  }
});
