import assert from 'node:assert/strict';
import type { TestContext } from 'node:test';
import { HubgateError, messageOf } from '../../../src/kernel/error.ts';
import { componentsOf } from '../../../src/hub/topic.ts';
import { UrlPattern } from '../../../src/hub/pattern/url-pattern.ts';
import type { Question, Verdicts } from './native-oracle.ts';

/**
 * Why this hub may refuse what the standard compiles: a host or port with characters that no URL
 * has there, `..` leading out of the text behind a
 * group. The other way round there is not an exception.
 */
export const NARROWER =
  /invalid (?:hostname|port) pattern|refuses its host|leads out of the component/;

/**
 * Where Node's engine takes what stands behind `//` in the path of a scheme that is not special for a
 * host, and loses it, so that `foo://h//admin/*` matches `foo://h/x`.
 */
export function losesText(pattern: string): boolean {
  return behindPlainScheme(pattern)?.includes('//') === true;
}

/**
 * Where Node's engine reads the path of a scheme that is not special as that of a special one: the
 * standard, and Chromium, neither resolve its dot segments nor encode what stands in it.
 */
export function readsPathAsSpecial(pattern: string): boolean {
  const rest = behindPlainScheme(pattern)?.replaceAll(/[{}]/g, '') ?? '';
  return /[ "<>`^]|(?:^|\/)(?:\.|%2e){1,2}(?:[/?#]|$)/i.test(rest);
}

/** What follows a scheme that is not special; null for other patterns. */
function behindPlainScheme(pattern: string): string | null {
  const [, scheme = '', rest = ''] = /^([a-z][a-z+.-]*):(?:\/\/)?(.*)$/s.exec(pattern) ?? [];
  const isSpecial = ['', 'http', 'https', 'ws', 'wss', 'ftp', 'file'].includes(scheme);
  return isSpecial ? null : rest;
}

export function compare(
  test: TestContext,
  asked: readonly Question[],
  expected: readonly Verdicts[],
): void {
  let pairs = 0;
  let matched = 0;
  asked.forEach((question, index) => {
    const theirs = expected[index] ?? null;
    const ours = answer(question);
    if (typeof ours === 'string') {
      if (theirs !== null) assert.match(ours, NARROWER, question.pattern);
      return;
    }
    assert.deepEqual(ours, theirs, JSON.stringify(question));
    pairs += ours.length;
    matched += ours.filter(Boolean).length;
  });
  test.diagnostic(`${pairs} verdicts equal, ${matched} of them matches`);
  assert.ok(pairs > 200 && matched > 20, 'the questions must be worth asking');
}

/** The verdicts, or the reason of the refusal. */
export function answer({ pattern, topics, base }: Question): readonly boolean[] | string {
  try {
    const compiled = new UrlPattern(pattern, base);
    return topics.map((topic) => {
      const url = parse(topic, base);
      return url !== null && compiled.test(componentsOf(url));
    });
  } catch (error) {
    assert.ok(error instanceof HubgateError, String(error));
    assert.equal(error.code, 'invalid-pattern');
    return `${error.message}: ${messageOf(error.cause)}`;
  }
}

function parse(topic: string, base: string): URL | null {
  try {
    return new URL(topic, base);
  } catch {
    return null;
  }
}
