import assert from 'node:assert/strict';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { describe, it, type TestContext } from 'node:test';
import type { BrowserContext, Page } from 'playwright-core';
import { chromiumPath, launchChromium } from '../support/chromium.ts';
import { clientBundle } from '../unit/discovery/client-bundle.ts';
import {
  HUB,
  ISSUER,
  type Site,
  type SiteOptions,
  startSite,
  SUBSCRIBER_KEY,
} from '../unit/discovery/site.ts';
import { until } from '../unit/proxy/gateway.ts';

/** Browsers keep a cookie with the prefix __Secure- from HTTPS only. */
const COOKIE = 'hub_token';

interface Browsing {
  readonly site: Site;
  readonly context: BrowserContext;
  readonly page: Page;
}

/** A page that lists the updates that it gets, with `more` as further members of the options. */
const html = (source: string, more = ''): string => `<!doctype html>
<ul></ul>
<script type="module">
	import { subscribe } from '/client.js';
	subscribe(${source}, '*', {
		update({ data }) {
			const item = document.createElement('li');
			item.textContent = data;
			document.querySelector('ul').append(item);
		},
		status(status) {
			document.documentElement.dataset.status = status;
			(window.statuses ??= []).push(status);
		},
		${more}
	});
</script>
`;

const live = (page: Page): Promise<unknown> =>
  page.locator('html[data-status=open]').waitFor({ state: 'attached' });
/** A status that lasts a moment is not missed, as it could be in the attribute. */
const wasInterrupted = (page: Page): Promise<unknown> =>
  page.waitForFunction('statuses.indexOf("open") < statuses.lastIndexOf("connecting")', null, {
    polling: 50,
  });
const seen = (page: Page, data: string): Promise<unknown> =>
  page.getByText(data, { exact: true }).waitFor();

async function browse(
  test: TestContext,
  executable: string,
  answer: (request: IncomingMessage, response: ServerResponse) => void,
  options: SiteOptions,
): Promise<Browsing> {
  const script = await clientBundle();
  const site = await startSite(
    test,
    (request, response) => {
      if (request.url === '/client.js') {
        response.setHeader('Content-Type', 'text/javascript').end(script);
        return;
      }
      response.setHeader('Content-Type', 'text/html');
      answer(request, response);
    },
    options,
  );
  const browser = await launchChromium(test, executable, null);
  const context = await browser.newContext();
  return { site, context, page: await context.newPage() };
}

const hubfile = (lines: string, discovery = ''): string => `http://localhost:{port} {${HUB}
		cookie_name ${COOKIE}
		${lines}
	}
	${discovery}
	reverse_proxy localhost:{app}
}
`;

describe('client in Chromium', () => {
  it('reads private updates with the cookie of the page, and renews it when it expires', async (test) => {
    const executable = chromiumPath(test);
    if (executable === null) return;
    let loads = 0;
    const answer = (_: IncomingMessage, response: ServerResponse): void => {
      loads += 1;
      response.end(html('document'));
    };
    const mint = `discovery {
		token mint {
			issuer ${ISSUER}
			key "${SUBSCRIBER_KEY}"
			ttl 4s
			subscribe *
		}
	}`;
    const options = { hubfile: hubfile('write_timeout 10m', mint) };
    const { site, context, page } = await browse(test, executable, answer, options);
    await page.goto(`${site.origin}/`);
    const [cookie] = (await context.cookies(site.hub)).filter(({ name }) => name === COOKIE);
    assert.equal(cookie?.httpOnly, true);
    await live(page);
    await site.publish({ topic: 'https://example.com/a', private: 'on', data: 'one' });
    await seen(page, 'one');
    // The hub ends the stream at a random moment before the token expires. It may accept the client once more.
    await until(() => loads >= 2, 'the page is fetched for its cookie');
    await site.publish({ topic: 'https://example.com/a', private: 'on', data: 'two' });
    await seen(page, 'two');
    assert.deepEqual(await page.locator('li').allTextContents(), ['one', 'two']);
  });

  it('accepts a pattern that is relative to the page, as in docs and examples', async (test) => {
    const executable = chromiumPath(test);
    if (executable === null) return;
    const answer = (_: IncomingMessage, response: ServerResponse): void => {
      response.end(html('document').replace("'*'", "{ urlpattern: '/users/:user/news' }"));
    };
    const options = { hubfile: hubfile('anonymous') };
    const { site, page } = await browse(test, executable, answer, options);
    await page.goto(`${site.origin}/`);
    await live(page);
    await site.publish({ topic: `${site.origin}/elsewhere`, data: 'other' });
    await site.publish({ topic: `${site.origin}/users/alice/news`, data: 'hers' });
    await seen(page, 'hers');
    assert.deepEqual(await page.locator('li').allTextContents(), ['hers']);
  });

  it('closes the stream of a page when its user logs out', async (test) => {
    const executable = chromiumPath(test);
    if (executable === null) return;
    let isLoggedIn = true;
    const answer = (request: IncomingMessage, response: ServerResponse): void => {
      // The page that comes back, and the icon, are fetched after the logout.
      if (request.url === '/' && isLoggedIn) response.setHeader('Hub-Access-Token', token);
      if (request.url === '/logout') {
        isLoggedIn = false;
        response.setHeader('Hub-Access-Token', '');
      }
      response.end(html('document'));
    };
    const { site, context, page } = await browse(test, executable, answer, {
      hubfile: hubfile(''),
    });
    const token = await site.token();
    await page.goto(`${site.origin}/`);
    await live(page);
    const other = await context.newPage();
    await other.route('**/client.js', (route) => route.abort());
    await other.goto(`${site.origin}/logout`);
    await wasInterrupted(page);
    assert.deepEqual(await context.cookies(site.hub), []);
  });

  it('reloads a page that has lost updates, or restores its state', async (test) => {
    const executable = chromiumPath(test);
    if (executable === null) return;
    const loads = new Map<string, number>();
    const answer = (request: IncomingMessage, response: ServerResponse): void => {
      const url = request.url ?? '';
      const load = (loads.get(url) ?? 0) + 1;
      loads.set(url, load);
      if (load === 1) {
        // As from a page that was open, or in a cache, for longer than the history lasts.
        response.setHeader('Link', '</.well-known/hub>; rel="hub"; last-event-id="gone"');
        response.setHeader('Server-Timing', 'hub;desc="/.well-known/hub?last_event_id=gone"');
      }
      const state = 'state: async (response) => { window.state = await response.text(); },';
      response.end(`<!-- load ${load} -->${html('document', url === '/state' ? state : '')}`);
    };
    const options = { hubfile: hubfile('anonymous') };
    const { site, page } = await browse(test, executable, answer, options);
    await site.publish({ topic: 'https://example.com/a', data: 'old' });
    await page.goto(`${site.origin}/`);
    await page.waitForFunction('document.documentElement.dataset.status === "open"');
    assert.equal(loads.get('/'), 2, 'the page was reloaded');
    await site.publish({ topic: 'https://example.com/a', data: 'new' });
    await seen(page, 'new');
    assert.deepEqual(await page.locator('li').allTextContents(), ['new']);

    await page.goto(`${site.origin}/state`);
    await live(page);
    assert.match(String(await page.evaluate('window.state')), /^<!-- load 2 -->/);
    assert.equal(loads.get('/state'), 2, 'the page was fetched, not reloaded');
  });

  it('renews its cookie with a page that the browser may keep, also after the app was away', async (test) => {
    const executable = chromiumPath(test);
    if (executable === null) return;
    let loads = 0;
    const answer = (_: IncomingMessage, response: ServerResponse): void => {
      loads += 1;
      response.setHeader('Cache-Control', 'private, max-age=600');
      // The app is being restarted when the token has expired.
      if (loads === 2) response.statusCode = 503;
      response.end(html('document'));
    };
    const mint = `discovery {
		token mint {
			issuer ${ISSUER}
			key "${SUBSCRIBER_KEY}"
			ttl 4s
			subscribe *
		}
	}`;
    const options = { hubfile: hubfile('write_timeout 10m', mint) };
    const { site, page } = await browse(test, executable, answer, options);
    await page.goto(`${site.origin}/`);
    await live(page);
    await until(() => loads >= 3, 'the page is fetched again after the error of the app');
    await site.publish({ topic: 'https://example.com/a', private: 'on', data: 'one' });
    await seen(page, 'one');
  });

  it('gets the state of a resource that has not changed from the app if updates were lost', async (test) => {
    const executable = chromiumPath(test);
    if (executable === null) return;
    const answer = (request: IncomingMessage, response: ServerResponse): void => {
      if (request.url === '/') return void response.end(html("'/resource'", 'state() {},'));
      response.setHeader('ETag', '"1"');
      if (request.headers['if-none-match'] === '"1"') response.statusCode = 304;
      // As from a hub whose history was longer when the browser has stored this.
      else if (first)
        response.setHeader('Link', '</.well-known/hub>; rel="hub"; last-event-id="gone"');
      first = false;
      response.end();
    };
    let first = true;
    const options = { hubfile: hubfile('anonymous') };
    const { site, page } = await browse(test, executable, answer, options);
    await site.publish({ topic: 'https://example.com/a', data: 'old' });
    await page.goto(`${site.origin}/`);
    await live(page);
    await site.publish({ topic: 'https://example.com/a', data: 'new' });
    await seen(page, 'new');
    assert.deepEqual(await page.locator('li').allTextContents(), ['new']);
  });

  it('follows a hub on another origin if cors_origins allows it', async (test) => {
    const executable = chromiumPath(test);
    if (executable === null) return;
    const answer = (request: IncomingMessage, response: ServerResponse): void => {
      response.setHeader('Access-Control-Allow-Origin', '*');
      response.end(request.url === '/page' ? html(`'${site.origin}/resource'`) : 'a resource');
    };
    const options = {
      hubfile: `http://localhost:{port} {${HUB}
		anonymous
		cookie_name ${COOKIE}
		cors_origins http://pages.localhost:{port}
	}
	reverse_proxy localhost:{app}
}
http://pages.localhost:{port} {
	reverse_proxy localhost:{app}
}
`,
    };
    const { site, page } = await browse(test, executable, answer, options);
    const { port } = new URL(site.origin);
    await page.goto(`http://pages.localhost:${port}/page`);
    await live(page);
    await site.publish({ topic: 'https://example.com/a', data: 'across' });
    await seen(page, 'across');
  });
});
