import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { ConfigError, type Problem } from '../../../src/config/problem.ts';
import { parseHubfile } from '../../../src/index.ts';
import { CADDY_NAMES } from './caddy-names.ts';

describe('Caddyfile syntax', () => {
  for (const [template, names] of CADDY_NAMES) {
    for (const name of names.split(/\s+/)) {
      it(`is understood, or refused with the name of the replacement: ${template.replace(/\s+/g, ' ').replace('$', name)}`, () => {
        for (const { code, message, hint } of problemsOf(template.replace('$', name))) {
          assert.doesNotMatch(code, /^unknown-(?:directive|option|matcher|condition)/, message);
          if (!code.startsWith('unsupported-')) continue;
          assert.ok(message.includes(name) && /hubgate/.test(message), message);
          assert.ok(hint !== undefined && hint.length > 10, `${name} needs a hint`);
          assert.ok(!hint.includes('\n'), 'the hint is one line');
        }
      });
    }
  }
});

function problemsOf(hubfile: string): readonly Problem[] {
  try {
    parseHubfile(hubfile, { env: {} });
    return [];
  } catch (thrown) {
    if (!(thrown instanceof ConfigError)) throw thrown;
    return thrown.problems;
  }
}
