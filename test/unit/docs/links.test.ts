import assert from 'node:assert/strict';
import { existsSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { describe, it } from 'node:test';
import { PAGES } from '../../support/documented-blocks.ts';
import { root } from '../../support/process.ts';

/** As the usual hosts of Markdown make them. */
function anchors(markdown: string): readonly string[] {
  const text = markdown.replaceAll(/^```.*?^```/gms, '');
  return [...text.matchAll(/^#+ (.+)$/gm)].map(([, heading = '']) =>
    heading
      .toLowerCase()
      .replaceAll(/[^\p{L}\p{N}\s_-]/gu, '')
      .replaceAll(' ', '-'),
  );
}

describe('the documents', () => {
  for (const page of PAGES) {
    it(`${page} links only to existing targets`, () => {
      const markdown = readFileSync(join(root, page), 'utf8');
      const text = markdown.replaceAll(/^```.*?^```/gms, '');
      for (const [, target = ''] of text.matchAll(/\]\(([^)\s]+)\)/g)) {
        if (/^https?:/.test(target)) continue;
        const [path = '', anchor] = target.split('#');
        const file = path === '' ? page : join(dirname(page), path);
        assert.ok(existsSync(join(root, file)), target);
        if (anchor === undefined) continue;
        assert.ok(anchors(readFileSync(join(root, file), 'utf8')).includes(anchor), target);
      }
    });
  }

  it('are all reachable from the README', () => {
    const readme = readFileSync(join(root, 'README.md'), 'utf8');
    for (const page of PAGES) {
      if (page.startsWith('docs/')) assert.ok(readme.includes(`](${page})`), page);
    }
  });
});
