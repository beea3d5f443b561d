import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { chromiumPath, launchChromium } from '../support/chromium.ts';
import { root } from '../support/process.ts';
import { packageDirectory } from '../support/installed-package.ts';
import { startSite } from '../unit/discovery/site.ts';

const PAGE = join(root, 'examples/discovery-static/pages/index.html');

describe('HUB/client.js', () => {
  it('is hubgate/client as one file, fetched again when it has changed', async (test) => {
    const { get } = await startSite(test, (_, response) => response.end('the app'));
    const path = '/.well-known/hub/client.js';
    const script = await get(path);
    assert.equal(script.status, 200);
    assert.equal(script.body, await readFile(join(packageDirectory, 'dist/client.min.js'), 'utf8'));
    const { etag, ...headers } = script.headers;
    assert.equal(headers['content-type'], 'text/javascript; charset=utf-8');
    assert.equal(headers['cache-control'], 'no-cache');
    assert.equal(headers['access-control-allow-origin'], '*');
    const version = String(etag).replaceAll('"', '');
    const named = await get(`${path}?v=${version}`);
    assert.match(String(named.headers['cache-control']), /immutable/);
    const again = await get(path, { headers: [['If-None-Match', String(etag)]] });
    assert.equal(again.status, 304);
    const gzip = await get(path, { headers: [['Accept-Encoding', 'gzip']] });
    assert.equal(gzip.headers['content-encoding'], 'gzip');
    assert.ok(Number(gzip.headers['content-length']) < 2200, 'the README says 2 KB');
    assert.equal((await get(path, { method: 'POST' })).status, 405);
  });

  it('makes the page of the static example live', async (test) => {
    const executable = chromiumPath(test);
    if (executable === null) return;
    const page = await readFile(PAGE, 'utf8');
    const site = await startSite(test, (_, response) => {
      response.setHeader('Content-Type', 'text/html').end(page);
    });
    const browser = await launchChromium(test, executable, null);
    const open = await (await browser.newContext()).newPage();
    const connected = open.waitForResponse((response) =>
      response.url().includes('match_urlpattern='),
    );
    await open.goto(`${site.origin}/`);
    await connected;
    await site.publish({ topic: `${site.origin}/users/alice/news`, data: 'It is live' });
    await open.getByText('It is live', { exact: true }).waitFor();
  });
});
