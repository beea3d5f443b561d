import assert from 'node:assert/strict';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { build } from 'esbuild';
import { chromiumPath, launchChromium } from '../support/chromium.ts';
import { root } from '../support/process.ts';

const PAGES = 2000;

describe('random live pages', () => {
  it('lose no changes of scripts and visitors, and show everything that only the server changed', async (test) => {
    const executable = chromiumPath(test);
    if (executable === null) return;
    const { outputFiles } = await build({
      entryPoints: [join(root, 'test/support/random-live-pages.js')],
      bundle: true,
      format: 'iife',
      globalName: 'pages',
      write: false,
    });
    const browser = await launchChromium(test, executable, null);
    const page = await browser.newPage();
    await page.addScriptTag({ content: outputFiles[0]?.text ?? '' });
    const wrong = await page.evaluate(`(() => {
      const wrong = [];
      for (let seed = 1; seed <= ${PAGES}; seed += 1) wrong.push(pages.check(seed));
      return wrong.filter((one) => one !== null).sort((a, b) => a.length - b.length);
    })()`);
    assert.ok(Array.isArray(wrong));
    assert.equal(wrong[0], undefined, `${wrong.length} of ${PAGES} pages`);
  });
});
