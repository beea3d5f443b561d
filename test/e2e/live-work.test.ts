import assert from 'node:assert/strict';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { describe, it, type TestContext } from 'node:test';
import type { Browser, Page } from 'playwright-core';
import { chromiumPath, launchChromium } from '../support/chromium.ts';
import { deferred, liveHubfile, type Site, startSite } from '../unit/discovery/site.ts';

const HUBFILE = liveHubfile(`changes public {
			window 0s
		}`);

interface Work {
  readonly site: Site;
  readonly browser: Browser;
  /** Opens the page, and waits until it follows its changes. */
  open(page: Page): Promise<void>;
  /** Changes the page at the server. */
  change(): Promise<void>;
  /** The number of times that the page was fetched after an update. */
  fetches(): number;
}

/** A page with its number of changes, whose script counts what it hears. */
async function work(
  test: TestContext,
  form: (version: number) => string,
  answer: (request: IncomingMessage, response: ServerResponse) => Promise<boolean> = async () =>
    false,
): Promise<Work | null> {
  const executable = chromiumPath(test);
  if (executable === null) return null;
  let version = 1;
  let fetches = 0;
  const serve = async (request: IncomingMessage, response: ServerResponse): Promise<void> => {
    request.resume();
    const isFetch = request.method === 'GET' && request.headers['sec-fetch-mode'] === 'cors';
    if (isFetch && request.url === '/page') fetches += 1;
    if (request.url === '/marker') {
      response.end();
      return;
    }
    if (await answer(request, response)) return;
    if (request.method === 'POST') {
      version += 1;
      response.writeHead(204).end();
      return;
    }
    response.setHeader('Content-Type', 'text/html');
    response.end(
      `<!doctype html><title>t</title><link rel=icon href="data:,"><body><i id=version>${version}</i>${form(version)}` +
        `<script>window.heard = { update: 0, stale: 0 };
for (const name of ['update', 'stale']) document.addEventListener('hub:' + name, () => { window.heard[name] += 1; });</script>`,
    );
  };
  const site = await startSite(test, (request, response) => void serve(request, response), {
    hubfile: HUBFILE,
  });
  const browser = await launchChromium(test, executable, null);
  return {
    site,
    browser,
    async open(page) {
      const stream = page.waitForResponse((one) => one.url().includes('/.well-known/hub?'));
      await page.goto(`${site.origin}/page`);
      await stream;
    },
    async change() {
      await fetch(`${site.origin}/page`, { method: 'POST' });
    },
    fetches: () => fetches,
  };
}

const heard = (page: Page, name: 'update' | 'stale', count: number): Promise<unknown> =>
  page.waitForFunction(`window.heard.${name} >= ${count}`, undefined, { polling: 20 });

const shows = (page: Page, version: number): Promise<void> =>
  page.locator(`#version:text-is("${version}")`).waitFor();

describe('a live page whose visitor is working', () => {
  it('fetches less and less often while a form withholds what has changed, and at once when it is left', async (test) => {
    const its = await work(
      test,
      (version) =>
        `<form><input name=text><input type=hidden name=token value=t${version}></form><a href="#a">a</a>`,
    );
    if (its === null) return;
    const page = await its.browser.newPage();
    await page.clock.install();
    await its.open(page);
    await page.fill('[name=text]', 'typed');
    // Ten minutes with a change every six seconds.
    for (let count = 1; count <= 100; count += 1) {
      await its.change();
      await heard(page, 'update', count);
      await page.clock.runFor(6000);
      // The page may need real time for its own fetch.
      await page.evaluate("fetch('/marker')");
    }
    const fetches = its.fetches();
    assert.ok(fetches <= 35, `${fetches} fetches`);
    await its.change();
    await heard(page, 'update', 101);
    await page.evaluate("document.querySelector('form').reset()");
    await page.locator('a').click();
    await page.clock.runFor(1000);
    await shows(page, 102);
    assert.equal(await page.inputValue('[name=token]'), 't102');
  });

  for (const [what, body] of [
    [
      'only a script has changed what is withheld',
      (version) => `<form><input name=text></form><time>${version} min ago</time>`,
    ],
    [
      'only revisions are withheld',
      (version) =>
        `<form><input name=text></form><time>never</time><ul><li data-version=${version}>one</ul>`,
    ],
  ] as [string, (version: number) => string][]) {
    it(`fetches as often as before if ${what}`, async (test) => {
      const its = await work(test, body);
      if (its === null) return;
      const page = await its.browser.newPage();
      await page.clock.install();
      await its.open(page);
      await page.fill('[name=text]', 'typed');
      await page.evaluate("document.querySelector('time').textContent = 'just now'");
      for (let count = 1; count <= 20; count += 1) {
        await its.change();
        await heard(page, 'update', count);
        await page.clock.runFor(1000);
        await shows(page, count + 1);
      }
      assert.equal(await page.locator('time').textContent(), 'just now');
    });
  }

  for (const [what, body, revision] of [
    [
      'around the form',
      (version) =>
        `<main data-note-version-value=${version}><form><textarea></textarea></form></main>`,
      "document.querySelector('main').dataset.noteVersionValue",
    ],
    [
      'at a button beside it',
      (version) =>
        `<main><form><textarea></textarea></form><button data-rev=${version}>save</button></main>`,
      "document.querySelector('button').dataset.rev",
    ],
    [
      'in a form that publishes the same',
      (version) =>
        `<form><input type=hidden name=rev value=${version}><textarea></textarea></form><form id=publish><input type=hidden name=rev value=${version}><button>publish</button></form>`,
      "document.querySelector('#publish input').value",
    ],
    [
      'beside a form with an editable element',
      (version) =>
        `<article><input type=hidden id=rev value=${version}><form><div contenteditable><p>text ${version}</p></div></form></article>`,
      "document.querySelector('#rev').value",
    ],
  ] as [string, (version: number) => string, string][]) {
    it(`keeps the revision that its visitor has read ${what}, until the form is reset`, async (test) => {
      const its = await work(test, body);
      if (its === null) return;
      const page = await its.browser.newPage();
      await its.open(page);
      await page.locator('textarea,[contenteditable]').pressSequentially('my draft');
      await page.locator('#version').click();
      await its.change();
      await shows(page, 2);
      assert.equal(await page.evaluate(revision), '1');
      if ((await page.locator('textarea').count()) === 0) return;
      await page.evaluate("document.querySelector('form').reset()");
      await page.waitForFunction(`${revision} === '2'`, undefined, { polling: 20 });
    });
  }

  it('reads its fields once if a script changes many of them', async (test) => {
    const its = await work(test, () =>
      Array.from({ length: 300 }, () => '<input type=checkbox>').join(''),
    );
    if (its === null) return;
    const page = await its.browser.newPage();
    await its.open(page);
    const reads = await page.evaluate(`
      let reads = 0;
      const read = document.querySelectorAll;
      document.querySelectorAll = function (selector) {
        reads += 1;
        return read.call(this, selector);
      };
      for (const box of document.getElementsByTagName('input')) box.click();
      reads;
    `);
    assert.equal(reads, 1);
  });

  it('shows what was withheld if the visitor finishes during a fetch that brings nothing new', async (test) => {
    const [asked, held] = [deferred(), deferred()];
    let isHeld = false;
    const its = await work(
      test,
      (version) =>
        `<form><input name=text><input type=hidden name=token value=t${version}></form><a href="#a">a</a>`,
      async (request, response) => {
        if (request.url === '/page?same') response.writeHead(204).end();
        else if (isHeld && request.method === 'GET') {
          asked.resolve();
          await held.promise;
        }
        return request.url === '/page?same';
      },
    );
    if (its === null) return;
    const page = await its.browser.newPage();
    await its.open(page);
    await page.fill('[name=text]', 'typed');
    await its.change();
    await shows(page, 2);
    assert.equal(await page.inputValue('[name=token]'), 't1');
    isHeld = true;
    await fetch(`${its.site.origin}/page?same`, { method: 'POST' });
    await asked.promise;
    await page.evaluate("document.querySelector('form').reset()");
    await page.locator('a').click();
    held.resolve();
    await page.locator('[name=token][value=t2]').waitFor({ state: 'attached' });
  });

  it('does not put what was entered into a newer page when the visitor goes back to it', async (test) => {
    const its = await work(
      test,
      (version) =>
        `<form><textarea name=text></textarea><input type=hidden name=rev value=${version}></form><a href=/marker>leave</a>`,
    );
    if (its === null) return;
    const page = await its.browser.newPage();
    await its.open(page);
    await page.fill('[name=text]', 'typed');
    await its.change();
    await shows(page, 2);
    await page.locator('a').click();
    await page.waitForURL('**/marker');
    await page.goBack();
    await page.waitForFunction("document.querySelector('[name=text]').value === 'typed'");
    assert.equal(await page.inputValue('[name=rev]'), '1');
  });

  it('follows a field again whose change was taken back, even if the page has then stayed the same', async (test) => {
    const its = await work(
      test,
      (version) => `<input type=checkbox ${version > 2 ? 'checked' : ''}><a href="#a">a</a>`,
      async (request, response) => {
        if (request.url === '/page?same') response.writeHead(204).end();
        return request.url === '/page?same';
      },
    );
    if (its === null) return;
    const page = await its.browser.newPage();
    await its.open(page);
    await its.change();
    await shows(page, 2);
    for (const _ of ['ticks', 'unticks']) await page.click('input');
    await page.click('a');
    const fetched = page.waitForResponse((one) => 'hub-live' in one.request().headers());
    await fetch(`${its.site.origin}/page?same`, { method: 'POST' });
    await (await fetched).finished();
    await its.change();
    await shows(page, 3);
    assert.equal(await page.isChecked('input'), true);
  });

  for (const name of ['javax.faces.ViewState', 'jakarta.faces.ViewState']) {
    it(`does not drop the views of JavaServer Faces while somebody works in one: ${name}`, async (test) => {
      let views = 0;
      const its = await work(test, () => {
        views += 1;
        return `<form><input name=text><input type=hidden name="${name}" value=${views}></form><a href="#a">a</a>`;
      });
      if (its === null) return;
      const page = await its.browser.newPage();
      await its.open(page);
      await its.change();
      await shows(page, 2);
      assert.equal(await page.inputValue(`[name="${name}"]`), String(views));

      await page.fill('[name=text]', 'typed');
      const before = its.fetches();
      for (let count = 1; count <= 3; count += 1) {
        await its.change();
        await heard(page, 'stale', count);
      }
      assert.equal(its.fetches(), before);
      assert.equal(await page.inputValue('[name=text]'), 'typed');
      await page.evaluate("document.querySelector('form').reset()");
      await page.locator('a').click();
      await shows(page, 5);
      assert.equal(its.fetches(), before + 1);
    });
  }

  it('does not make Wicket drop what is submitted: each fetch would be a new rendering', async (test) => {
    let rendering = 0;
    const its = await work(test, () => {
      rendering += 1;
      return `<form method=post action="?0-${rendering}.-form"><input name=text></form>`;
    });
    if (its === null) return;
    const page = await its.browser.newPage();
    await its.open(page);
    await page.fill('[name=text]', 'typed');
    for (let count = 1; count <= 2; count += 1) {
      await its.change();
      await heard(page, 'stale', count);
    }
    assert.equal(rendering, 1);
    assert.equal(its.fetches(), 0);
  });

  for (const [what, before, after] of [
    ['a message in front of it disappears', '<div class=flash>Somebody is editing</div>', ''],
    [
      'a message in front of it is replaced by others',
      '<div class=flash>Somebody is editing</div>',
      '<div class=warning>All else</div><div class=warning>than before</div>',
    ],
  ] as const) {
    it(`has its form once when ${what}`, async (test) => {
      const its = await work(
        test,
        (version) =>
          `${version === 1 ? before : after}<div class=page><form class=flash><input name=text>` +
          `<input type=hidden name=token value=t${version}></form></div>`,
      );
      if (its === null) return;
      const page = await its.browser.newPage();
      await its.open(page);
      await page.fill('[name=text]', 'typed');
      await its.change();
      await shows(page, 2);
      assert.equal(await page.locator('form').count(), 1);
      assert.equal(await page.inputValue('[name=text]'), 'typed');
      assert.equal(await page.inputValue('[name=token]'), 't1');
    });
  }
});

describe('a live page that its visitor leaves', () => {
  it('does not take the message that is meant for the next page', async (test) => {
    let message = '';
    const [posted, saved] = [deferred(), deferred()];
    const its = await work(
      test,
      () => {
        const shown = message;
        message = '';
        return `<form method=post action=/save><button>save</button></form><p>${shown}</p>`;
      },
      async (request, response) => {
        if (request.url !== '/save') return false;
        message = 'saved';
        posted.resolve();
        await saved.promise;
        response.writeHead(303, { Location: '/page' }).end();
        return true;
      },
    );
    if (its === null) return;
    const page = await its.browser.newPage();
    const updated = deferred();
    await page.exposeFunction('updated', () => updated.resolve());
    await its.open(page);
    await page.evaluate("document.addEventListener('hub:update', () => window.updated())");
    await page.evaluate("setTimeout(() => document.querySelector('button').click())");
    await posted.promise;
    await its.change();
    await updated.promise;
    // A page that is not being left fetches itself in this time.
    await new Promise((resolve) => setTimeout(resolve, 500));
    assert.equal(message, 'saved', 'nothing has fetched the page');
    saved.resolve();
    await page.locator('p', { hasText: 'saved' }).waitFor();
  });

  it('does not let another window of the same visitor take it either', async (test) => {
    let [message, count] = ['', 0];
    const its = await work(
      test,
      () => {
        const shown = message;
        message = '';
        return `<form method=post action=/page><button>save</button></form><i>${count} saved</i><p>${shown}</p>`;
      },
      async (request, response) => {
        if (request.method !== 'POST') return false;
        [message, count] = [`message ${count + 1}`, count + 1];
        response.writeHead(303, { Location: '/page' }).end();
        return true;
      },
    );
    if (its === null) return;
    const context = await its.browser.newContext();
    await context.addCookies([{ name: 'session', value: '1', url: its.site.origin }]);
    const [writer, reader] = [await context.newPage(), await context.newPage()];
    await its.open(writer);
    await its.open(reader);
    // The update reaches the other window long before the redirect reaches this one.
    const network = await context.newCDPSession(writer);
    await network.send('Network.enable');
    await network.send('Network.emulateNetworkConditions', {
      ...{ offline: false, latency: 400, downloadThroughput: -1, uploadThroughput: -1 },
    });
    for (const round of [1, 2, 3]) {
      await writer.click('button');
      await writer.locator('p', { hasText: `message ${round}` }).waitFor();
      await reader.locator('i', { hasText: `${round} saved` }).waitFor();
      assert.equal(await reader.locator('p').textContent(), '');
    }
  });
});
