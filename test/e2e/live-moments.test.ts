import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { join } from 'node:path';
import { describe, it, type TestContext } from 'node:test';
import type { Page } from 'playwright-core';
import { chromiumPath, launchChromium } from '../support/chromium.ts';
import { root } from '../support/process.ts';
import { listen, liveHubfile, type Site, startSite } from '../unit/discovery/site.ts';

interface Awkward {
  readonly site: Site;
  readonly page: Page;
  change(path: string): Promise<unknown>;
  /** Resolves when the page has a stream, which it opens because of what is done. */
  withStream(act: () => Promise<unknown>): Promise<void>;
}

/** A site with htmx, on whose page `/a` the browser is. */
async function awkward(
  test: TestContext,
  bodyOf: (path: string) => string,
  answer: (request: IncomingMessage, response: ServerResponse) => boolean = () => false,
): Promise<Awkward | null> {
  const executable = chromiumPath(test);
  if (executable === null) return null;
  const library = readFileSync(join(root, 'node_modules/htmx.org/dist/htmx.min.js'));
  const site = await startSite(
    test,
    (request, response) => {
      request.resume();
      const { url = '' } = request;
      if (url === '/lib.js') {
        response.setHeader('Content-Type', 'text/javascript').end(library);
      } else if (answer(request, response)) return;
      else if (request.method === 'POST') response.writeHead(204).end();
      else {
        response.setHeader('Content-Type', 'text/html').end(
          `<!doctype html><html><head><link rel=icon href="data:,"><script src=/lib.js></script></head>
<body hx-boost=true>${bodyOf(url)}</body></html>`,
        );
      }
    },
    { hubfile: liveHubfile('changes public {\n\t\t\twindow 0s\n\t\t}') },
  );
  const browser = await launchChromium(test, executable, null);
  const page = await browser.newPage();
  page.setDefaultTimeout(15_000);
  const withStream: Awkward['withStream'] = async (act) => {
    const stream = page.waitForResponse((one) => one.url().includes('/hub?'));
    await act();
    await stream;
  };
  await withStream(() => page.goto(`${site.origin}/a`));
  return {
    ...{ site, page, withStream },
    change: (path) => fetch(site.origin + path, { method: 'POST', redirect: 'manual' }),
  };
}

describe('live pages at awkward moments', () => {
  it('keep the message of the app if the visitor has followed a link within the page before', async (test) => {
    let message = '';
    const its = await awkward(
      test,
      () => {
        const shown = message;
        message = '';
        return `<a href=#part hx-boost=false>part</a><p>${shown}</p><form method=post action=/save><button>save</button></form><i id=part></i>`;
      },
      (request, response) => {
        if (request.method !== 'POST') return false;
        message = 'Saved.';
        response.writeHead(303, { Location: '/b' }).end();
        return true;
      },
    );
    if (its === null) return;
    const { page, site, withStream } = its;
    await page.click('a');
    await page.goBack();
    // What this causes is done before the form is sent.
    await new Promise((resolve) => setTimeout(resolve, 300));
    const fetched: string[] = [];
    page.on('request', (one) => {
      if ('hub-live' in one.headers()) fetched.push(new URL(one.url()).pathname);
    });
    await withStream(() => page.click('button'));
    await page.getByText('Saved.').waitFor();
    await new Promise((resolve) => setTimeout(resolve, 300));
    assert.deepEqual(fetched, []);
    await site.publish({ topic: `${site.origin}/b`, data: '' });
    await page.getByText('Saved.').waitFor({ state: 'detached' });
  });

  it('are not overwritten by a response to an earlier visit that took long', async (test) => {
    let version = 1;
    const its = await awkward(
      test,
      (path) => `<h1>${path} ${version}</h1><a href="${path === '/a' ? '/b' : '/a'}">other</a>`,
      (request) => {
        if (request.method === 'POST') version += 1;
        return false;
      },
    );
    if (its === null) return;
    const { page, change, withStream } = its;
    // The server does this by a slow body. The browser may then hold back the next request for the same URL.
    await page.evaluate(`const ask = window.fetch;
window.fetch = async (target, options) => {
  const response = await ask(target, options);
  const isFirst = options.headers?.['Hub-Live'] !== undefined && !('arrive' in window);
  if (isFirst) await new Promise((resolve) => { window.arrive = resolve; });
  return response;
};`);
    await change('/a');
    await page.waitForFunction("'arrive' in window");
    await withStream(() => page.click('a'));
    await change('/a');
    await withStream(() => page.click('a'));
    await page.getByText('/a 3').waitFor();
    await page.evaluate('arrive()');
    await new Promise((resolve) => setTimeout(resolve, 300));
    assert.equal(await page.locator('h1').textContent(), '/a 3');
  });

  it('follow the page that htmx shows although a fetch of the page before is never answered', async (test) => {
    let version = 1;
    const its = await awkward(
      test,
      (path) => `<h1>${path} ${version}</h1><a href=/b>other</a>`,
      (request) => {
        if (request.method === 'POST') version += 1;
        return request.url === '/a' && 'hub-live' in request.headers;
      },
    );
    if (its === null) return;
    const { page, change, withStream } = its;
    const unanswered = page.waitForRequest((request) => 'hub-live' in request.headers());
    await change('/a');
    await unanswered;
    await withStream(() => page.click('a'));
    await page.getByText('/b 2').waitFor();
    await change('/b');
    await page.getByText('/b 3').waitFor();
  });

  it('are not reloaded at the URL of a script because the page below is gone', async (test) => {
    let isGone = false;
    const its = await awkward(
      test,
      () => '<p>page</p>',
      (request, response) => {
        if (!isGone || request.method === 'POST') return false;
        response.writeHead(404).end('gone');
        return true;
      },
    );
    if (its === null) return;
    const { page, change } = its;
    await page.evaluate("history.pushState({}, '', '/a/dialog')");
    isGone = true;
    const fetched = page.waitForResponse((one) => 'hub-live' in one.request().headers());
    await change('/a');
    await fetched;
    await new Promise((resolve) => setTimeout(resolve, 300));
    assert.equal(await page.locator('p').textContent(), 'page');
  });

  it('are reloaded if they redirect to another site, which is not asked for by a script', async (test) => {
    let isLoggedOut = false;
    const asked: unknown[] = [];
    const login = await listen(test, (request, response) => {
      asked.push(request.headers['sec-fetch-mode']);
      response.end('log in');
    });
    const its = await awkward(
      test,
      () => '<p>secret</p>',
      (request, response) => {
        if (!isLoggedOut || request.method === 'POST') return false;
        response.writeHead(302, { Location: `http://localhost:${login}/login` }).end();
        return true;
      },
    );
    if (its === null) return;
    isLoggedOut = true;
    await its.change('/a');
    await its.page.waitForURL('**/login');
    assert.deepEqual(asked.slice(0, 1), ['navigate']);
  });

  it('are not reloaded again and again if they are no pages and have no cursor, as over plain HTTP', async (test) => {
    const executable = chromiumPath(test);
    if (executable === null) return;
    let asked = 0;
    const site = await startSite(
      test,
      (request, response) => {
        if (request.headers['sec-fetch-mode'] === 'navigate') asked += 1;
        response.writeHead(404, { 'Content-Type': 'text/html' });
        response.end('<!doctype html><link rel=icon href="data:,"><p>nothing here');
      },
      { hubfile: liveHubfile('changes public\n\t\tno_last_event_id') },
    );
    const browser = await launchChromium(test, executable, null);
    const page = await browser.newPage();
    await page.goto(`${site.origin}/a`);
    await new Promise((resolve) => setTimeout(resolve, 4000));
    assert.ok(asked <= 2, `${asked} times`);
  });

  it('follow the page that the server has sent while a script shows a dialog at a URL of its own', async (test) => {
    let version = 1;
    const its = await awkward(
      test,
      () => `<p>version ${version}</p>`,
      (request) => {
        if (request.method === 'POST') version += 1;
        return false;
      },
    );
    if (its === null) return;
    const { page, change } = its;
    await page.evaluate("history.pushState({}, '', '/dialogs/1')");
    for (const next of [2, 3, 4]) {
      await change('/a');
      await page.getByText(`version ${next}`).waitFor();
      // It looks at its topics after each fetch.
      await new Promise((resolve) => setTimeout(resolve, 300));
    }
  });

  it('never undo what a form has put into a session that the app keeps in a cookie', async (test) => {
    const items = ({ headers }: IncomingMessage): string[] => {
      const [, session = ''] = /session=([^;.]*)/.exec(headers.cookie ?? '') ?? [];
      return JSON.parse(Buffer.from(session, 'base64url').toString() || '[]') as string[];
    };
    let renewals = 0;
    let held: (() => void)[] | null = null;
    const its = await awkward(
      test,
      () => '',
      (request, response) => {
        const cart = items(request);
        if (request.method === 'POST' && request.url === '/a?add') cart.push(`item ${cart.length}`);
        renewals += 1;
        const session = Buffer.from(JSON.stringify(cart)).toString('base64url');
        response.setHeader('Set-Cookie', `session=${session}.${'0'.repeat(16)}${renewals}; Path=/`);
        const page = `<!doctype html><link rel=icon href="data:,"><ul>${cart.map((one) => `<li>${one}</li>`).join('')}</ul>`;
        if (request.method === 'POST') response.writeHead(204).end();
        else {
          response.setHeader('Content-Type', 'text/html');
          if (held === null) response.end(page);
          else held.push(() => response.end(page));
        }
        return true;
      },
    );
    if (its === null) return;
    const { page, change } = its;
    held = [];
    await change('/a');
    while (held.length === 0) await new Promise((resolve) => setTimeout(resolve, 10));
    await page.evaluate("fetch('/a?add', { method: 'POST' })");
    const [late] = held;
    held = null;
    const dropped = page.waitForResponse((one) => 'hub-live' in one.request().headers());
    late?.();
    assert.equal((await dropped).status(), 425);
    await page.getByText('item 0').waitFor();
    await page.evaluate("fetch('/a?add', { method: 'POST' })");
    await page.getByText('item 1').waitFor();
  });
});
