import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import type { IncomingMessage } from 'node:http';
import { join } from 'node:path';
import { describe, it, type TestContext } from 'node:test';
import type { Page } from 'playwright-core';
import { chromiumPath, launchChromium } from '../support/chromium.ts';
import { root } from '../support/process.ts';
import { liveHubfile, startSite } from '../unit/discovery/site.ts';

const LIBRARIES = {
  htmx: 'htmx.org/dist/htmx.min.js',
  Turbo: '@hotwired/turbo/dist/turbo.es2017-umd.js',
  Unpoly: 'unpoly/unpoly.min.js',
} as const;

interface Visit {
  readonly page: Page;
  /** Changes a page as somebody else would. */
  change(path: string): Promise<void>;
  /** Resolves once the page has another stream, because of what is done. */
  withStream(act: () => Promise<unknown>): Promise<void>;
  /** Resolves once the script has fetched the page and has shown it. */
  fetched(act: () => Promise<unknown>): Promise<void>;
  notices(): Promise<number>;
}

/** A browser at `/` of a site whose pages have a library, if any, and these bodies. */
async function visit(
  test: TestContext,
  library: keyof typeof LIBRARIES | null,
  bodyOf: (path: string, versionOf: (path: string) => number) => string,
  delayOf: (request: IncomingMessage) => number = () => 0,
): Promise<Visit | null> {
  const executable = chromiumPath(test);
  if (executable === null) return null;
  const script =
    library === null ? '' : readFileSync(join(root, 'node_modules', LIBRARIES[library]));
  const versions = new Map<string, number>();
  const site = await startSite(
    test,
    (request, response) => {
      request.resume();
      const { url = '' } = request;
      if (url === '/lib.js') response.setHeader('Content-Type', 'text/javascript').end(script);
      else if (request.method === 'POST') {
        versions.set(url, (versions.get(url) ?? 1) + 1);
        response.writeHead(303, { Location: url }).end();
      } else {
        const body = bodyOf(url, (path) => versions.get(path) ?? 1);
        response.setHeader('Content-Type', 'text/html');
        const html = `<!doctype html><html><head><link rel=icon href="data:,"><script src=/lib.js></script></head><body>${body}</body></html>`;
        setTimeout(() => response.end(html), delayOf(request));
      }
    },
    { hubfile: liveHubfile('changes public {\n\t\t\twindow 0s\n\t\t}') },
  );
  const browser = await launchChromium(test, executable, null);
  const page = await browser.newPage();
  page.setDefaultTimeout(15_000);
  const withStream: Visit['withStream'] = async (act) => {
    const stream = page.waitForResponse((one) => one.url().includes('/hub?'));
    await act();
    await stream;
  };
  await withStream(() => page.goto(`${site.origin}/`));
  return {
    ...{ page, withStream },
    change: async (path) => {
      await fetch(site.origin + path, { method: 'POST', redirect: 'manual' });
    },
    fetched: async (act) => {
      const response = page.waitForResponse((one) => 'hub-live' in one.request().headers());
      await act();
      await (await response).finished();
      await pause();
    },
    notices: () => page.locator('#hub-stale').count(),
  };
}

/** As long as the script may take to show a page. */
const pause = (milliseconds = 300) => new Promise((resolve) => setTimeout(resolve, milliseconds));

describe('live pages on which Unpoly navigates', () => {
  /** Only `main` is replaced. The menu is older, and a script has added to it. */
  const layout = (path: string, versionOf: (path: string) => number): string =>
    `<nav><a id=home href=/ up-follow>home</a> <i id=total>${versionOf('/') + versionOf('/i/1')}</i> <b id=clock>-</b></nav>
<main><h1>${path} ${versionOf(path)}</h1><a id=one href=/i/1 up-follow>one</a><a id=modal href=/m up-layer=new>modal</a>
<form method=post action="${path}" up-submit><input name=text><button>save</button></form></main>`;

  it('follow each page that it shows, there and back, without a notice', async (test) => {
    const its = await visit(test, 'Unpoly', layout);
    if (its === null) return;
    const { page, change, withStream, notices } = its;
    const shows = (text: string) => page.getByText(text, { exact: true }).waitFor();
    await withStream(() => page.click('#one'));
    await shows('/i/1 1');
    await change('/i/1');
    await shows('/i/1 2');
    await page.locator('#total:text-is("3")').waitFor();
    await withStream(() => page.click('#home'));
    await shows('/ 1');
    await change('/');
    await shows('/ 2');
    await change('/i/1');
    await withStream(() => page.goBack());
    await shows('/i/1 3');
    await change('/i/1');
    await shows('/i/1 4');
    assert.equal(await notices(), 0);
  });

  it('keep what scripts have made of the rest of the page', async (test) => {
    const its = await visit(test, 'Unpoly', layout);
    if (its === null) return;
    const { page, change, withStream, notices } = its;
    await page.evaluate(`document.body.append(Object.assign(document.createElement('div'), { id: 'chat' }));
setInterval(() => { document.querySelector('#clock').textContent = Date.now(); }, 20);`);
    await withStream(() => page.click('#one'));
    await change('/i/1');
    await page.getByText('/i/1 2', { exact: true }).waitFor();
    assert.equal(await page.locator('#chat').count(), 1);
    assert.notEqual(await page.locator('#clock').textContent(), '-');
    assert.equal(await notices(), 0);
  });

  it('follow the page below an overlay with a URL of its own', async (test) => {
    const its = await visit(test, 'Unpoly', layout);
    if (its === null) return;
    const { page, change, notices } = its;
    await page.click('#modal');
    await page.locator('up-modal h1').waitFor();
    await change('/');
    await page.getByText('/ 2', { exact: true }).waitFor();
    // It is another page as soon as it is one, whatever the URL of the browser.
    await page.evaluate(
      "up.render({ target: 'main', url: '/i/1', layer: 'root', peel: false, history: true })",
    );
    await page.getByText('/i/1 1', { exact: true }).waitFor();
    await pause();
    await change('/i/1');
    await page.getByText('/i/1 2', { exact: true }).waitFor();
    assert.equal(await page.locator('up-modal h1').textContent(), '/m 1');
    assert.equal(await notices(), 0);
  });

  it('renew what it shows from its cache', async (test) => {
    const its = await visit(test, 'Unpoly', layout);
    if (its === null) return;
    const { page, change, withStream, fetched, notices } = its;
    await withStream(() => page.click('#one'));
    await page.getByText('/i/1 1', { exact: true }).waitFor();
    await withStream(() => page.click('#home'));
    await change('/i/1');
    // The page knows a later update.
    await fetched(() => change('/'));
    await page.click('#one');
    await page.getByText('/i/1 2', { exact: true }).waitFor();
    assert.equal(await notices(), 0);
  });

  it('follow a page that a form has replaced with itself, and keep what the visitor enters', async (test) => {
    const its = await visit(test, 'Unpoly', layout);
    if (its === null) return;
    const { page, change, notices, fetched } = its;
    await fetched(() => page.click('button'));
    await page.getByText('/ 2', { exact: true }).waitFor();
    await change('/');
    await page.getByText('/ 3', { exact: true }).waitFor();
    await page.fill('input', 'typed');
    await fetched(() => change('/'));
    await page.getByText('/ 4', { exact: true }).waitFor();
    assert.equal(await page.locator('input').inputValue(), 'typed');
    assert.equal(await notices(), 0);
  });

  it('follow a page that was replaced with what it was', async (test) => {
    const its = await visit(test, 'Unpoly', layout);
    if (its === null) return;
    const { page, change, notices } = its;
    await page.evaluate("up.reload('main', { cache: false })");
    await page.waitForFunction("document.querySelector('main[up-source]')");
    await change('/');
    await page.getByText('/ 2', { exact: true }).waitFor();
    await page.evaluate("document.body.innerHTML = document.body.innerHTML + '<p>more</p>'");
    await change('/');
    await page.getByText('/ 3', { exact: true }).waitFor();
    assert.equal(await page.getByText('more').count(), 1);
    assert.equal(await notices(), 0);
  });
});

describe('live pages on which a script of the site navigates', () => {
  it('follow the page that it names with an event', async (test) => {
    const its = await visit(
      test,
      null,
      (path, versionOf) => `<nav>menu</nav><main><p>${path} ${versionOf(path)}</p></main>`,
    );
    if (its === null) return;
    const { page, change, withStream, notices } = its;
    await withStream(() =>
      page.evaluate(`fetch('/b').then((response) => response.text()).then((text) => {
  const fetched = new DOMParser().parseFromString(text, 'text/html');
  history.pushState({}, '', '/b');
  document.querySelector('main').replaceWith(fetched.querySelector('main'));
  document.dispatchEvent(new Event('hub:shown'));
})`),
    );
    await page.getByText('/b 1').waitFor();
    await change('/b');
    await page.getByText('/b 2').waitFor();
    assert.equal(await notices(), 0);
  });
});

describe('live pages after the visitor has gone back', () => {
  for (const library of ['htmx', 'Turbo'] as const) {
    for (const [what, path, expected] of [
      ['do not take what a script shows for the server’s', '/', 0],
      ['say that the server has changed what a script shows', '/poll', 1],
    ] as const) {
      it(`${what} in a page that ${library} has stored`, async (test) => {
        let delayMs = 0;
        const its = await visit(
          test,
          library,
          (url, versionOf) =>
            url === '/'
              ? `<ul hx-boost=true><li>version ${versionOf('/')}</li><li><a href=/b>other</a></li>${'<li class=item>item</li>'.repeat(versionOf('/'))}</ul><div id=poll data-hub-topic=/poll>${'-'.repeat(versionOf('/poll'))}</div>`
              : '<h1>another page</h1>',
          ({ headers, url }) => (url === '/' && 'hub-live' in headers ? delayMs : 0),
        );
        if (its === null) return;
        const { page, change, withStream, fetched, notices } = its;
        await page.evaluate(`let count = 0;
setInterval(() => {
  for (const one of document.querySelectorAll('#poll')) one.textContent = count += 1;
}, 50);`);
        await fetched(() => change('/'));
        await page.getByText('version 2').waitFor();
        await withStream(() => page.click('a'));
        await page.getByText('another page').waitFor();
        await change(path);
        delayMs = 600;
        await fetched(() => withStream(() => page.goBack()));
        await page.getByText(`version ${path === '/' ? 3 : 2}`).waitFor();
        assert.equal(await notices(), expected);
        delayMs = 0;
        await fetched(() => change('/'));
        assert.equal(await page.locator('.item').count(), path === '/' ? 4 : 3);
        assert.match((await page.locator('#poll').textContent()) ?? '', /^\d+$/);
        assert.equal(await notices(), expected);
      });
    }
  }
});

describe('live pages whose visitor changes them through a library', () => {
  it('follow a page that Turbo has replaced with itself, although each response differs', async (test) => {
    let responses = 0;
    const its = await visit(
      test,
      'Turbo',
      (_, versionOf) =>
        `<h1>version ${versionOf('/')}</h1><i>response ${(responses += 1)}</i><form method=post action=/><button>save</button></form>`,
    );
    if (its === null) return;
    const { page, change, fetched, notices } = its;
    for (const version of [2, 4]) {
      await page.click('button');
      await page.getByText(`version ${version}`).waitFor();
      await page.waitForFunction("!document.documentElement.hasAttribute('aria-busy')");
      await fetched(() => change('/'));
      await page.getByText(`version ${version + 1}`).waitFor();
      assert.equal(await notices(), 0);
    }
  });

  it('show once what htmx inserts, although a fetch was in progress and another request polls', async (test) => {
    const its = await visit(test, 'htmx', (path, versionOf) =>
      path === '/poll'
        ? ''
        : `<ul>${Array.from({ length: versionOf('/') }, (_, at) => `<li>item ${at + 1}</li>`).join('')}</ul>
<button hx-post=/ hx-select=li:last-child hx-target=ul hx-swap=beforeend>add</button><a hx-get=/poll hx-swap=none>poll</a>`,
    );
    if (its === null) return;
    const { page, change } = its;
    await page.evaluate(
      "void (morphed = new Promise((resolve) => addEventListener('hub:morphed', resolve)))",
    );
    let release = (): void => {};
    const isAdded = new Promise<void>((resolve) => (release = resolve));
    let isFirst = true;
    let hold = (): void => {};
    const isHeld = new Promise<void>((resolve) => (hold = resolve));
    await page.route('**/', async (route) => {
      const request = route.request();
      if (request.method() === 'POST') {
        const response = await route.fetch();
        release();
        await page.evaluate("htmx.trigger('a', 'click')");
        await page.evaluate('Promise.race([morphed, new Promise((one) => setTimeout(one, 500))])');
        await route.fulfill({ response });
      } else if ('hub-live' in request.headers() && isFirst) {
        isFirst = false;
        hold();
        await isAdded;
        // It may have been aborted by now.
        await route.continue().catch(() => {});
      } else await route.continue();
    });
    await change('/');
    await isHeld;
    await page.click('button');
    await page.getByText('item 3').first().waitFor();
    await change('/');
    await page.getByText('item 4').waitFor();
    assert.deepEqual(await page.locator('li').allTextContents(), [
      'item 1',
      'item 2',
      'item 3',
      'item 4',
    ]);
  });
});
