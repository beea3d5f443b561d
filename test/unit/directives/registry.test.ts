import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { handlerData } from '../../../src/directives/data.ts';
import { directives } from '../../../src/directives/syntaxes.ts';
import { unsupportedDirectives } from '../../../src/directives/unsupported.ts';
import { directiveOrder } from '../../../src/hubfile/running-order.ts';
import type { Directive } from '../../../src/hubfile/scope.ts';
import { conditions } from '../../../src/matchers/syntaxes.ts';
import { unsupportedConditions } from '../../../src/matchers/unsupported.ts';
import { root } from '../../support/process.ts';

const directive = (place: Partial<Directive> = {}): Directive => ({
  usage: 'x',
  summary: 'x',
  read: () => [],
  ...place,
});

describe('the registry of directives', () => {
  it('has each in a folder of its name', () => {
    for (const name of Object.keys(directives)) {
      const folder = join(root, 'src/directives', name.replaceAll('_', '-'));
      assert.ok(existsSync(join(folder, 'syntax.ts')), `${name} has no syntax.ts`);
      const has = (face: string): boolean => existsSync(join(folder, face));
      assert.equal(has('data.ts'), name in handlerData, `data of ${name}`);
      assert.equal(has('handler.ts'), name in handlerData, `handler of ${name}`);
    }
  });

  it('begins the usage of each with its name', () => {
    for (const [name, { usage, summary }] of Object.entries({ ...directives, ...conditions })) {
      for (const line of usage.trim().split('\n')) {
        if (!/^[ }]/.test(line)) assert.match(line, new RegExp(`^${name}\\b`), line);
      }
      assert.ok(summary !== '' && !summary.endsWith('.'), name);
    }
  });

  it('has none that is listed as lacking', () => {
    for (const name of Object.keys(unsupportedDirectives)) assert.ok(!(name in directives), name);
    for (const name of Object.keys(unsupportedConditions)) assert.ok(!(name in conditions), name);
  });

  it('gives each its place: that of Caddy, after another, or besides it', () => {
    assert.deepEqual(
      directiveOrder({
        second: directive({ after: 'first' }),
        first: directive({ after: 'basic_auth' }),
        respond: directive(),
        twin: directive({ besides: 'respond' }),
        header: directive(),
      }),
      [['header'], ['first'], ['second'], ['respond', 'twin']],
    );
    assert.deepEqual(directiveOrder(directives).flat().sort(), Object.keys(directives).sort());
  });
});
