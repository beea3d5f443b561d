import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { parseUrl } from '../../../src/kernel/parse.ts';
import { chromiumPath } from '../../support/chromium.ts';
import { answer, compare, losesText, NARROWER } from './differential.ts';
import { askChromium, askNative, findNativeNode } from './native-oracle.ts';
import {
  expectations,
  objectCases,
  stringCases,
  webPlatformQuestions,
} from './web-platform-cases.ts';

describe('URL Patterns on the published test data of the web platform (G, L43)', () => {
  it('include all published string cases and object cases', (test) => {
    test.diagnostic(`${stringCases.length} string cases, ${objectCases.length} object cases`);
    assert.ok(stringCases.length >= 57 && objectCases.length >= 273);
    assert.ok(expectations.length >= 25, `${expectations.length}`);
  });

  for (const { pattern, base, input, inputBase, matches } of expectations) {
    it(`${pattern} ${matches ? 'covers' : 'does not cover'} ${input}`, () => {
      const url = parseUrl(input, inputBase);
      const ours = answer({ pattern, base, topics: url === null ? [] : [url.href] });
      if (typeof ours === 'string') assert.match(ours, NARROWER);
      else assert.equal(ours[0] ?? false, matches);
    });
  }

  const node = findNativeNode();
  const skip =
    node === null && process.env['CI'] !== 'true' ? 'npx cannot get node@24 here' : false;

  it('give the results of Node 24 on every pattern and topic in the data', { skip }, (test) => {
    assert.ok(node !== null, 'in CI the oracle must be there: npx -p node@24');
    const asked = webPlatformQuestions().filter(({ pattern }) => !losesText(pattern));
    compare(test, asked, askNative(node, asked));
  });

  it('give the results of Chromium on every pattern and topic in the data', async (test) => {
    const executable = chromiumPath(test);
    if (executable === null) return;
    const asked = webPlatformQuestions();
    compare(test, asked, await askChromium(test, executable, asked));
  });
});
