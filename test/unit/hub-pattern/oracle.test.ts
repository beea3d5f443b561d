import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { chromiumPath } from '../../support/chromium.ts';
import { compare, losesText, readsPathAsSpecial } from './differential.ts';
import { askChromium, askNative, findNativeNode } from './native-oracle.ts';
import { questions } from './questions.ts';

const BASE = 'https://hub.example/.well-known/hub';
const SEED = 20_260_101;
const PATTERNS = 5000;

describe('URL Patterns compared with the engine of a newer Node (G, L43)', () => {
  const node = findNativeNode();
  const skip =
    node === null && process.env['CI'] !== 'true' ? 'npx cannot get node@24 here' : false;

  it('give the results of the standard on generated patterns and topics', { skip }, (test) => {
    assert.ok(node !== null, 'in CI the oracle must be there: npx -p node@24');
    const asked = questions(SEED, PATTERNS, BASE).filter(
      ({ pattern }) => !losesText(pattern) && !readsPathAsSpecial(pattern),
    );
    compare(test, asked, askNative(node, asked));
  });

  it('treat more than one slash in the path of any scheme like the standard', {
    skip,
  }, (test) => {
    assert.ok(node !== null, 'in CI the oracle must be there: npx -p node@24');
    const slashes = ['//', '///', '/{}/', '/{}{}//'];
    const tails = [
      '',
      '*',
      ':n',
      '(b)',
      'b',
      '{b}?',
      '{b}*',
      '{/b}?',
      '?q',
      '#f',
      '?q//*',
      '#f//:n',
    ];
    // Node loses what stands behind two slashes with which a part begins.
    const asked = ['x:/a', 'x:/~!a', 'x:/,;~!a', 'https://h/a'].flatMap((prefix) =>
      slashes.flatMap((some) =>
        [...tails, './b', '../b', '.b*', '+'].map((tail) => ({
          pattern: `${prefix}${some}${tail}`,
          base: BASE,
          topics: ['', 'b', '/b', 'bb', '?q', '#f', '?q//x', '#f//x', './b'].flatMap((end) =>
            ['/', '//', '///'].map((plain) => `${prefix}${plain}${end}`),
          ),
        })),
      ),
    );
    const alike = asked.filter(({ pattern }) => !readsPathAsSpecial(pattern));
    compare(test, alike, askNative(node, alike));
  });

  it('treat a separator in braces like the standard', { skip }, (test) => {
    assert.ok(node !== null, 'in CI the oracle must be there: npx -p node@24');
    const tails = [
      ...[
        '?x{\\?}',
        '?{\\?}',
        '?{\\?a}',
        '?{\\?\\?}*b',
        '?:n{\\?}?',
        '?~0~{\\?}',
        '?{a\\?:n}+',
        '?~\\0~{\\?}',
        '?~{0}~{\\?}',
        '?~{}0~{\\?}',
        '#~\\0~{#}',
        '?{a:n\\?}',
      ],
      ...[
        '#{#}',
        '#x{#y}*',
        '#{\\#}',
        '#{##}?',
        '#~0~{#~1~}',
        '#:n{#}',
        '#{#:n}',
        '?{a}#{#b}',
        '?{#}',
        '?a{?b}',
      ],
      ...[
        '?{\\?}{\\?}',
        '?{\\?+}',
        '#{#*}',
        '#{#(a|b)}+',
        '?*{\\?}',
        '{\\?}',
        '{?}',
        '{#}',
        '?a{#b}c',
      ],
    ];
    const ends = [
      '',
      '?',
      '??',
      '?a',
      '?x?',
      '?x',
      '?b',
      '???b',
      '?~0~?',
      '?~0~',
      '?a?z',
      '?az?',
      '?a#b',
    ];
    const marks = [
      '#',
      '##',
      '#x',
      '#x#y',
      '#x#y#y',
      '#~0~#~1~',
      '#a#',
      '##a',
      '##b',
      '#b',
      '?a##b',
    ];
    const topics = [...ends, ...marks].map((end) => `https://example.com/${end}`);
    const asked = tails.map((tail) => ({
      pattern: `https://example.com/${tail}`,
      topics,
      base: BASE,
    }));
    compare(test, asked, askNative(node, asked));
  });

  it('give the results of Chromium if that engine differs from the standard', async (test) => {
    const executable = chromiumPath(test);
    if (executable === null) return;
    // What is percent-encoded in such a path the engines do not agree about.
    const asked = questions(SEED, 8 * PATTERNS, BASE).filter(
      ({ pattern }) =>
        (losesText(pattern) || readsPathAsSpecial(pattern)) && /^[\w:/.*(){}?+~#-]+$/.test(pattern),
    );
    compare(test, asked, await askChromium(test, executable, asked));
  });
});
