import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { HubgateError, messageOf } from '../../../src/kernel/error.ts';
import { componentsOf } from '../../../src/hub/pattern/url-components.ts';
import { UrlPattern } from '../../../src/hub/pattern/url-pattern.ts';
import { askNative, findNativeNode, type Question } from './native-oracle.ts';
import { questions } from './questions.ts';

const BASE = 'https://hub.example/.well-known/hub';
const SEED = 20_260_101;
const PATTERNS = 5000;

/**
 * Why this hub may refuse what the standard compiles: a host or port with characters that no URL
 * has there, a separator in braces behind its own kind, `..` leading out of the text behind a
 * group. The other way round there is no exception.
 */
const NARROWER =
  /invalid (?:hostname|port) pattern|refuses its host|"[?#]" in braces|leads out of the text/;

describe('URL Patterns against the engine of a newer Node (G, L43)', () => {
  const node = findNativeNode();
  const skip =
    node === null && process.env['CI'] !== 'true' ? 'npx cannot get node@24 here' : false;

  it('gives the verdicts of the standard on generated patterns and topics', { skip }, (test) => {
    assert.ok(node !== null, 'in CI the oracle must be there: npx -p node@24');
    const asked = questions(SEED, PATTERNS, BASE);
    const expected = askNative(node, asked);
    const found = asked.map(answer);
    let pairs = 0;
    let matched = 0;
    asked.forEach((question, index) => {
      const theirs = expected[index] ?? null;
      const ours = found[index] ?? 'missing';
      if (typeof ours === 'string') {
        if (theirs !== null) assert.match(ours, NARROWER, question.pattern);
        return;
      }
      assert.deepEqual(ours, theirs, JSON.stringify(question));
      pairs += ours.length;
      matched += ours.filter(Boolean).length;
    });
    test.diagnostic(`${pairs} verdicts equal, ${matched} of them matches`);
    assert.ok(pairs > 20_000 && matched > 1000, 'the questions must be worth asking');
  });
});

/** The verdicts, or the reason of the refusal. */
function answer({ pattern, topics, base }: Question): readonly boolean[] | string {
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
