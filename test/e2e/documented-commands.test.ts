import assert from 'node:assert/strict';
import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { root, runCommand } from '../support/process.ts';

describe('commands in the documentation', () => {
  it('exist in hubgate, with options that they accept', async () => {
    const pages = [
      'README.md',
      ...(await readdir(join(root, 'docs'))).map((name) => `docs/${name}`),
    ];
    const helps = new Map<string, Promise<{ readonly stdout: string }>>();
    let count = 0;
    for (const page of pages.filter((name) => name.endsWith('.md'))) {
      const markdown = await readFile(join(root, page), 'utf8');
      const code = [...markdown.matchAll(/```(?:sh|text)\n(.*?)```|`([^`\n]+)`/gs)];
      for (const [, block, inline] of code) {
        for (const line of (block ?? inline ?? '').replaceAll('\\\n', ' ').split('\n')) {
          const [, words] = /(?:^|\$\(|&& )hubgate ([a-z][^|>)]*)/.exec(line) ?? [];
          if (words === undefined) continue;
          const [name = '', sub = '', ...rest] = words.split(/\s+/);
          const command = NESTED.has(`${name} ${sub}`) ? [name, sub] : [name];
          const key = command.join(' ');
          if (!helps.has(key)) helps.set(key, runCommand([...command, '--help']));
          const { stdout } = (await helps.get(key)) ?? { stdout: '' };
          assert.match(stdout, new RegExp(`^Usage: hubgate ${key}`), `${page}: ${line}`);
          for (const option of [sub, ...rest].filter((word) => /^--[a-z]/.test(word))) {
            const flag = option.split('=')[0] ?? '';
            assert.ok(new RegExp(`${flag}\\b`).test(stdout), `${page}: ${line}: ${flag}`);
          }
          count += 1;
        }
      }
    }
    assert.ok(count > 30, String(count));
  });
});

const NESTED = new Set([
  'token inspect',
  'outbox sql',
  ...['purge', 'stats'].map((name) => `cache ${name}`),
  ...['stats', 'export', 'import', 'compact', 'verify'].map((name) => `history ${name}`),
]);
