import assert from 'node:assert/strict';
import type { RequestListener } from 'node:http';
import { describe, it, type TestContext } from 'node:test';
import type { Page } from 'playwright-core';
import { chromiumPath, launchChromium } from '../support/chromium.ts';
import { liveHubfile, type Site, startSite } from '../unit/discovery/site.ts';

const HUBFILE = liveHubfile(`changes public {
			window 0s
		}
		alias /index.php/{page} /index.php?title={page}
		alias /post.php?post={id}
		alias /?p={id} /rest/posts/{id}`);

interface Script {
  readonly site: Site;
  readonly asked: string[];
  /** The URLs of the pages' streams. */
  readonly subscribed: string[];
  newPage(): Promise<Page>;
  open(path: string): Promise<Page>;
  post(path: string): Promise<unknown>;
}

/** A page that says how often it was asked for, under every URL. */
async function script(
  test: TestContext,
  fields: Readonly<Record<string, string>>,
  head = '',
): Promise<Script | null> {
  const executable = chromiumPath(test);
  if (executable === null) return null;
  const asked: string[] = [];
  const subscribed: string[] = [];
  const app: RequestListener = (request, response) => {
    request.resume();
    const url = request.url ?? '';
    if (request.method === 'POST') {
      const to = new URL(url, 'http://app').searchParams.get('to');
      response.writeHead(303, { Location: to ?? url }).end();
      return;
    }
    asked.push(url);
    const count = asked.filter((one) => one === url).length;
    response
      .writeHead(200, { 'Content-Type': 'text/html', ...fields })
      .end(`<!doctype html><title>page</title>${head}<p>answer ${count}</p>`);
  };
  const site = await startSite(test, app, { hubfile: HUBFILE });
  const browser = await launchChromium(test, executable, null);
  const context = await browser.newContext();
  return {
    site,
    asked,
    subscribed,
    newPage: () => context.newPage(),
    async open(path) {
      const page = await context.newPage();
      const stream = page.waitForResponse((answer) => answer.url().includes('/.well-known/hub?'));
      await page.goto(site.origin + path);
      subscribed.push((await stream).url());
      return page;
    },
    post: (path) => site.get(path, { method: 'POST' }),
  };
}

const shows = (page: Page, count: number): Promise<unknown> =>
  page.getByText(`answer ${count}`, { exact: true }).waitFor();

describe('the page that follows a change', () => {
  it('is the page that an alias names, under each of its URLs', async (test) => {
    const app = await script(test, {});
    if (app === null) return;
    const [plain, pretty, other] = [
      await app.open('/index.php?title=A'),
      await app.open('/index.php/A'),
      await app.open('/index.php?title=B'),
    ];
    await app.post('/index.php?title=A&action=submit');
    await shows(plain, 2);
    await shows(pretty, 2);
    await app.post('/index.php?title=B&action=submit');
    await shows(other, 2);
    assert.equal(app.asked.filter((url) => url === '/index.php?title=B').length, 2);
  });

  it('is the one that the response to a form names, with the query that the alias names', async (test) => {
    const app = await script(test, {});
    if (app === null) return;
    const seven = await app.open('/post.php?post=7&action=edit');
    const eight = await app.open('/post.php?post=8&action=edit');
    await app.post(`/post.php?to=${encodeURIComponent('/post.php?post=7&action=edit&message=1')}`);
    await shows(seven, 2);
    await app.post(`/post.php?to=${encodeURIComponent('/post.php?post=8&action=edit')}`);
    await shows(eight, 2);
    assert.equal(app.asked.filter((url) => url.includes('post=8')).length, 2);
  });

  it('is the one of a short link that an alias covers, and no other page under the path of short links', {
    timeout: 240_000,
  }, async (test) => {
    const app = await script(test, {}, '<link rel=shortlink href="/?p=7">');
    if (app === null) return;
    const page = await app.open('/hello-world/');
    const short = await script(test, {}, '<link rel=shortlink href="/?short=7">');
    if (short === null) return;
    const other = await short.open('/hello-world/');
    for (const path of ['/', '/rest/posts/8', '/rest/posts/7']) await app.post(path);
    await shows(page, 2);
    for (const path of ['/', '/?short=8', '/hello-world/']) await short.post(path);
    await shows(other, 2);
    for (const { asked } of [app, short]) {
      assert.equal(asked.filter((url) => url === '/hello-world/').length, 2);
    }
  });

  it('does not depend on the session that a server for Java writes into the path, and never names it', async (test) => {
    const app = await script(
      test,
      { Link: '</named;jsessionid=ALICE>; rel=canonical' },
      '<link rel=canonical href="/linked;jsessionid=ALICE">',
    );
    if (app === null) return;
    const everything = await app.site.stream('match=*');
    const page = await app.open('/cart;jsessionid=ALICE?0');
    const changes = ['/cart;jsessionid=BOB?to=/cart;jsessionid=BOB', '/named;a=BOB', '/linked'];
    for (const [index, path] of changes.entries()) {
      await app.post(path);
      await shows(page, index + 2);
    }
    await app.site.publish({ topic: 'https://example.com/last', data: 'last', id: 'urn:last' });
    await everything.untilId('urn:last');
    assert.doesNotMatch(everything.text, /BOB/);
    assert.doesNotMatch(app.subscribed.join(), /ALICE/);
  });

  it('is each of the first 100 that a page names, and its short link', async (test) => {
    const names = Array.from({ length: 120 }, (_, index) => `/news/${index}?edition=1`);
    const app = await script(
      test,
      {},
      `<link rel=shortlink href="/?p=7">${names.map((name) => `<i data-hub-topic="${name}"></i>`).join('')}`,
    );
    if (app === null) return;
    const page = await app.open('/list');
    for (const [index, path] of ['/list', '/news/0', '/news/97', '/rest/posts/7'].entries()) {
      await app.post(path);
      await shows(page, index + 2);
    }
    assert.equal(new URL(app.subscribed.join()).searchParams.getAll('match').length, 100);
  });

  it('is also one whose query is longer than a topic may be', async (test) => {
    const app = await script(test, {});
    if (app === null) return;
    const page = await app.open(`/list?filter=${'x'.repeat(5000)}`);
    await app.post('/list');
    await shows(page, 2);
  });

  it('stays as it is if the hub refuses its topics, which is said once', async (test) => {
    const app = await script(test, {}, '<link rel=hub href="/.well-known/hub?match_other=x">');
    if (app === null) return;
    const page = await app.newPage();
    const said: string[] = [];
    page.on('console', (message) => said.push(message.text()));
    let attempts = 0;
    page.on('response', (one) => {
      if (one.url().includes('/hub?')) attempts += 1;
    });
    await page.clock.install();
    await page.goto(`${app.site.origin}/list`);
    await page.waitForEvent('console', (message) => message.text().includes('match_other'));
    await page.clock.runFor(120_000);
    await page.evaluate("fetch('/marker')");
    assert.equal(attempts, 1);
    assert.equal(said.filter((text) => text.includes('match_other')).length, 1);
  });

  for (const [field, value] of [
    ['Link', '</style.css>; rel=preload, </pages/7?x=1>; rel="canonical"'],
    ['Content-Location', '/pages/7'],
  ] as const) {
    it(`is the one that the app names in ${field}`, async (test) => {
      const app = await script(test, { [field]: value });
      if (app === null) return;
      const page = await app.open('/latest');
      await app.post('/style.css');
      await app.post('/pages/7');
      await shows(page, 2);
      assert.equal(app.asked.filter((url) => url === '/latest').length, 2);
    });
  }
});
