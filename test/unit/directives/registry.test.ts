import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { directives, directiveTable, registry } from '../../../src/directives/registry.ts';
import { unsupportedConditions, unsupportedDirectives } from '../../../src/hubfile/unsupported.ts';
import { directiveOrder } from '../../../src/hubfile/directive-table.ts';
import type { DirectiveSyntax } from '../../../src/hubfile/scope.ts';
import { matchers } from '../../../src/matchers/registry.ts';
import { root } from '../../support/process.ts';

const directive = (place: Partial<DirectiveSyntax> = {}): DirectiveSyntax => ({
  usage: 'x',
  summary: 'x',
  read: () => [],
  ...place,
});

describe('the registry of directives', () => {
  it('has each directive in a file or a folder with its name, under the kind of its configuration', () => {
    for (const [name, { data, compile }] of Object.entries(registry.directives)) {
      const place = join(root, 'src/directives', name.replaceAll('_', '-'));
      assert.ok(existsSync(`${place}.ts`) || existsSync(join(place, 'syntax.ts')), name);
      assert.equal(compile === undefined, data === undefined, name);
    }
  });

  it('starts the usage of each directive with its name', () => {
    for (const [name, { syntax }] of Object.entries({ ...directives, ...matchers })) {
      const { usage, summary } = syntax;
      for (const line of usage.trim().split('\n')) {
        if (!/^[ }]/.test(line)) assert.match(line, new RegExp(`^${name}\\b`), line);
      }
      assert.ok(summary !== '' && !summary.endsWith('.'), name);
    }
  });

  it('has no directive that is listed as missing', () => {
    for (const name of Object.keys(unsupportedDirectives)) assert.ok(!(name in directives), name);
    for (const name of Object.keys(unsupportedConditions)) assert.ok(!(name in matchers), name);
  });

  it('gives each directive its place: that of Caddy, after another, or outside the order', () => {
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
    assert.deepEqual(directiveTable.places.flat().sort(), Object.keys(directives).sort());
  });
});
