import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { chromiumPath, launchChromium } from '../support/chromium.ts';
import { root } from '../support/process.ts';
import { liveHubfile, startSite } from '../unit/discovery/site.ts';

const LIBRARIES = [
  ['htmx', 'htmx.org/dist/htmx.min.js'],
  ['Turbo', '@hotwired/turbo/dist/turbo.es2017-umd.js'],
] as const;

const HUBFILE = liveHubfile();

/** How often each page has been changed. */
type Changes = Map<string, number>;

function html(path: string, changes: Changes): string {
  const count = changes.get(path) ?? 0;
  const other = path === '/a' ? '/b' : '/a';
  // Boosted and replaced by the library, so that the document stays.
  return `<!doctype html><html><head><script src=/lib.js></script><title>${path} (${count})</title></head>
<body hx-boost=true><h1>${path} ${count}</h1><a id=other href="${other}">other</a>
${count === 0 ? '' : '<button hx-get=/part hx-target=#part>new</button>'}<p id=part></p></body></html>`;
}

describe('live pages with libraries that navigate on the client', () => {
  for (const [name, file] of LIBRARIES) {
    it(`follow each page that ${name} shows, forward and back, with one script and no error`, async (test) => {
      const executable = chromiumPath(test);
      if (executable === null) return;
      const library = readFileSync(join(root, 'node_modules', file));
      const changes: Changes = new Map();
      const site = await startSite(
        test,
        (request, response) => {
          const { pathname } = new URL(request.url ?? '/', 'http://app.invalid');
          request.resume();
          if (request.method === 'POST') {
            changes.set(pathname, (changes.get(pathname) ?? 0) + 1);
            response.writeHead(303, { Location: pathname }).end();
          } else if (pathname === '/lib.js') {
            response.setHeader('Content-Type', 'text/javascript').end(library);
          } else {
            const body = pathname === '/part' ? '<b>part</b>' : html(pathname, changes);
            response.setHeader('Content-Type', 'text/html').end(body);
          }
        },
        { hubfile: HUBFILE },
      );
      const change = (path: string) =>
        fetch(site.origin + path, { method: 'POST', redirect: 'manual' });
      const browser = await launchChromium(test, executable, null);
      const page = await browser.newPage();
      const errors: string[] = [];
      page.on('pageerror', (error) => errors.push(String(error)));
      const stream = () => page.waitForResponse((one) => one.url().includes('/hub?'));
      const shows = (text: string) => page.getByText(text, { exact: true }).waitFor();

      const first = stream();
      await page.goto(`${site.origin}/a`);
      await first;
      await page.evaluate('window.kept = true');
      await change('/a');
      await shows('/a 1');
      if (name === 'htmx') {
        // It has been told of the button that came with the change.
        await page.getByText('new', { exact: true }).click();
        await shows('part');
      }
      const second = stream();
      await page.click('#other');
      await shows('/b 0');
      await second;
      assert.equal(await page.evaluate('window.kept'), true, 'it is the same document');
      await change('/b');
      await shows('/b 1');
      assert.equal(await page.title(), '/b (1)');
      await change('/a');
      await page.goBack();
      await shows('/a 2');
      assert.equal(await page.title(), '/a (2)');
      assert.equal(await page.locator('script[src*="live.js"]').count(), 1);
      assert.deepEqual(errors, []);
    });
  }

  for (const [name, file] of LIBRARIES) {
    it(`follow a page that ${name} has replaced with itself, as after a form`, async (test) => {
      const executable = chromiumPath(test);
      if (executable === null) return;
      const library = readFileSync(join(root, 'node_modules', file));
      const items = ['one'];
      let hasError = false;
      const site = await startSite(
        test,
        (request, response) => {
          const chunks: Buffer[] = [];
          request.on('data', (chunk: Buffer) => chunks.push(chunk));
          request.on('end', () => {
            const item = new URLSearchParams(Buffer.concat(chunks).toString()).get('item');
            hasError = item === '';
            if (item !== null && item !== '') items.push(item);
            if (request.method === 'POST' && !hasError) {
              response.writeHead(303, { Location: '/a' }).end();
            } else if (request.url === '/lib.js') {
              response.setHeader('Content-Type', 'text/javascript').end(library);
            } else {
              // htmx shows no response with an error.
              response
                .writeHead(hasError && name === 'Turbo' ? 422 : 200, {
                  'Content-Type': 'text/html',
                })
                .end(
                  `<!doctype html><html><head><script src=/lib.js></script></head><body hx-boost=true>
<ul id=list>${items.map((one) => `<li>${one}</li>`).join('')}</ul><i id=version>${items.length}</i>
<form method=post action=/a>${hasError ? '<b>What?</b>' : ''}<input name=item><input name=note value="${hasError ? 'typed' : ''}"><button id=add>add</button></form>
<button id=part hx-get=/a hx-select=#list hx-target=#list hx-swap=outerHTML>part</button></body></html>`,
                );
            }
          });
        },
        { hubfile: HUBFILE },
      );
      const add = (item: string) =>
        fetch(`${site.origin}/a`, {
          method: 'POST',
          redirect: 'manual',
          body: new URLSearchParams({ item }),
        });
      const browser = await launchChromium(test, executable, null);
      const page = await browser.newPage();
      const list = () => page.locator('li').allTextContents();
      const fetched = () => page.waitForResponse((one) => 'hub-live' in one.request().headers());
      const shows = (version: number) => page.locator(`#version:text-is("${version}")`).waitFor();
      const stream = page.waitForResponse((one) => one.url().includes('/hub?'));
      await page.goto(`${site.origin}/a`);
      await stream;

      // A colleague adds the next one before the page is fetched because of the form.
      await page.evaluate(`new MutationObserver((_, observer) => {
  if (document.querySelector('#version')?.textContent !== '2') return;
  observer.disconnect();
  fetch('/a', { method: 'POST', body: new URLSearchParams({ item: 'three' }), redirect: 'manual' });
}).observe(document, { childList: true, subtree: true })`);
      await page.fill('[name=item]', 'two');
      await page.click('#add');
      await shows(3);
      assert.deepEqual(await list(), ['one', 'two', 'three']);

      if (name === 'htmx') {
        await page.click('#part');
        await page.waitForFunction("document.querySelector('.htmx-request') === null");
        await add('four');
        await shows(4);
        assert.deepEqual(await list(), ['one', 'two', 'three', 'four']);
      }
      assert.equal(await page.locator('#hub-stale').count(), 0);

      // The response to a form with a mistake is the only place that has what was typed.
      await page.click('#add');
      await page.getByText('What?').waitFor();
      await add('last');
      await fetched();
      await add('very last');
      await fetched();
      assert.equal(await page.locator('[name=note]').inputValue(), 'typed');
      assert.equal(await page.getByText('What?').count(), 1);
    });
  }

  for (const [name, file] of LIBRARIES) {
    it(`keep the message that the app shows once after a form that ${name} has sent`, async (test) => {
      const executable = chromiumPath(test);
      if (executable === null) return;
      const library = readFileSync(join(root, 'node_modules', file));
      let message = '';
      const site = await startSite(
        test,
        (request, response) => {
          request.resume();
          if (request.url === '/lib.js') {
            response.setHeader('Content-Type', 'text/javascript').end(library);
          } else if (request.method === 'POST') {
            message = 'Saved.';
            response.writeHead(303, { Location: '/items/1' }).end();
          } else {
            const shown = message;
            message = '';
            response.writeHead(200, { 'Content-Type': 'text/html' }).end(
              `<!doctype html><html><head><script src=/lib.js></script></head><body hx-boost=true><p>${shown}</p>
<form method=post action=/items><button>save</button></form></body></html>`,
            );
          }
        },
        { hubfile: HUBFILE },
      );
      const browser = await launchChromium(test, executable, null);
      const page = await browser.newPage();
      const stream = () => page.waitForResponse((one) => one.url().includes('/hub?'));
      const first = stream();
      await page.goto(`${site.origin}/items/new`);
      await first;
      await page.evaluate(`window.heard = [];
document.addEventListener('hub:update', (event) => { heard.push(event.detail.id); event.preventDefault(); });`);
      const second = stream();
      await page.click('button');
      await page.getByText('Saved.').waitFor();
      await second;
      await site.publish({ topic: `${site.origin}/items/1`, data: '', id: 'urn:last' });
      await page.waitForFunction("heard.includes('urn:last')");
      // The update that the form itself has caused is older than the page.
      assert.deepEqual(await page.evaluate('heard'), ['urn:last']);
    });

    it(`do not fetch while ${name} sends a form, nor because of an update before the page that it shows`, async (test) => {
      const executable = chromiumPath(test);
      if (executable === null) return;
      const library = readFileSync(join(root, 'node_modules', file));
      const asked: string[] = [];
      let isDeleted = false;
      const site = await startSite(
        test,
        (request, response) => {
          request.resume();
          if (request.url === '/lib.js') {
            response.setHeader('Content-Type', 'text/javascript').end(library);
            return;
          }
          asked.push(`${request.method} ${request.url}`);
          if (request.method === 'POST') {
            isDeleted = true;
            response.writeHead(303, { Location: '/items' }).end();
            return;
          }
          const isGone = isDeleted && request.url === '/items/1';
          response.writeHead(isGone ? 404 : 200, { 'Content-Type': 'text/html' });
          const page = `<!doctype html><html><head><link rel=icon href="data:,"><script src=/lib.js></script></head><body hx-boost=true>
${isDeleted ? '<p>Deleted.</p>' : '<form method=post action=/items/1><button>delete</button></form>'}</body></html>`;
          // A page that takes longer than the pause before a fetch, and whose head arrives before.
          response.flushHeaders();
          setTimeout(() => response.end(page), isDeleted ? 300 : 0);
        },
        { hubfile: HUBFILE },
      );
      const browser = await launchChromium(test, executable, null);
      const page = await browser.newPage();
      const stream = page.waitForResponse((one) => one.url().includes('/hub?'));
      await page.goto(`${site.origin}/items/1`);
      await stream;
      await page.click('button');
      await page.getByText('Deleted.').waitFor();
      await new Promise((resolve) => setTimeout(resolve, 500));
      assert.deepEqual(asked, ['GET /items/1', 'POST /items/1', 'GET /items']);
    });
  }

  for (const shown of ['frame', 'stream']) {
    it(`show a change by another after a form whose answer Turbo shows in a ${shown}`, async (test) => {
      const executable = chromiumPath(test);
      if (executable === null) return;
      const library = readFileSync(join(root, 'node_modules', LIBRARIES[1][1]));
      let count = 0;
      const frame = (content: string): string => `<turbo-frame id=part>${content}</turbo-frame>`;
      const form = `<form method=post action=/${shown}><button>send</button></form>`;
      const site = await startSite(
        test,
        (request, response) => {
          request.resume();
          const { method, url } = request;
          if (url === '/lib.js') {
            response.setHeader('Content-Type', 'text/javascript').end(library);
          } else if (method === 'POST' && url === '/stream') {
            const stream = `<turbo-stream action=update target=part><template>sent</template></turbo-stream>`;
            response.setHeader('Content-Type', 'text/vnd.turbo-stream.html').end(stream);
          } else if (method === 'POST') {
            if (url === '/a') count += 1;
            response.writeHead(303, { Location: url === '/a' ? '/a' : '/sent' }).end();
          } else {
            const body = url === '/sent' ? frame('sent') : `<p>${count} changes</p>${frame(form)}`;
            response
              .setHeader('Content-Type', 'text/html')
              .end(
                `<!doctype html><html><head><script src=/lib.js></script></head><body>${body}</body></html>`,
              );
          }
        },
        { hubfile: HUBFILE },
      );
      const browser = await launchChromium(test, executable, null);
      const page = await browser.newPage();
      // The longest time that the script waits for a page after a form never ends here.
      await page.addInitScript(
        'const later = setTimeout; window.setTimeout = (task, ms) => (ms === 5000 ? -1 : later(task, ms));',
      );
      const stream = page.waitForResponse((one) => one.url().includes('/hub?'));
      await page.goto(`${site.origin}/a`);
      await stream;
      await page.click('button');
      await page.getByText('sent', { exact: true }).waitFor();
      await fetch(`${site.origin}/a`, { method: 'POST', redirect: 'manual' });
      await page.getByText('1 changes', { exact: true }).waitFor();
    });
  }

  for (const [when, settleMs, delayMs] of [
    ['at once', 20, 0],
    ['while a fetch of the page before is in progress', 300, 1000],
  ] as const) {
    it(`renew what htmx leaves of a page when it shows a part of another one ${when}`, async (test) => {
      const executable = chromiumPath(test);
      if (executable === null) return;
      const library = readFileSync(join(root, 'node_modules/htmx.org/dist/htmx.min.js'));
      let count = 0;
      const site = await startSite(
        test,
        (request, response) => {
          request.resume();
          if (request.url === '/lib.js') {
            response.setHeader('Content-Type', 'text/javascript').end(library);
          } else if (request.method === 'POST') {
            count += 1;
            response.writeHead(303, { Location: `/items/${count}` }).end();
          } else {
            const isOld = count > 0 && request.url === '/items/new';
            const page = `<!doctype html><html><head><script src=/lib.js></script></head><body><nav data-hub-topic=/items>${count} items</nav>
<main><form hx-post=/items hx-target=main hx-select=main hx-swap="outerHTML settle:${settleMs}ms" hx-push-url=true><button>add</button></form><h1>${request.url}</h1></main></body></html>`;
            response.setHeader('Content-Type', 'text/html');
            setTimeout(() => response.end(page), isOld ? delayMs : 0);
          }
        },
        { hubfile: HUBFILE },
      );
      const browser = await launchChromium(test, executable, null);
      const page = await browser.newPage();
      const stream = page.waitForResponse((one) => one.url().includes('/hub?'));
      await page.goto(`${site.origin}/items/new`);
      await stream;
      await page.click('button');
      await page.getByText('/items/1', { exact: true }).waitFor();
      await page.getByText('1 items', { exact: true }).waitFor();
    });
  }

  it('keep what htmx shows after a form whose URL is no page', async (test) => {
    const executable = chromiumPath(test);
    if (executable === null) return;
    const library = readFileSync(join(root, 'node_modules/htmx.org/dist/htmx.min.js'));
    const site = await startSite(
      test,
      (request, response) => {
        request.resume();
        const isForm = request.url === '/save';
        if (request.url === '/lib.js') {
          response.setHeader('Content-Type', 'text/javascript').end(library);
        } else if (isForm && request.method === 'GET') {
          response.writeHead(405).end('not here');
        } else {
          response.writeHead(200, { 'Content-Type': 'text/html' }).end(
            `<!doctype html><html><head><script src=/lib.js></script></head><body hx-boost=true>
<form method=post action=/save><textarea name=text>${isForm ? 'typed' : ''}</textarea><button id=save>save</button></form>
${isForm ? '<b>What?</b>' : ''}</body></html>`,
          );
        }
      },
      { hubfile: HUBFILE },
    );
    const browser = await launchChromium(test, executable, null);
    const page = await browser.newPage();
    const stream = page.waitForResponse((one) => one.url().includes('/hub?'));
    await page.goto(`${site.origin}/a`);
    await stream;
    await page.fill('textarea', 'typed');
    const fetched = page.waitForResponse((one) => 'hub-live' in one.request().headers());
    await page.click('#save');
    await page.getByText('What?').waitFor();
    assert.equal((await fetched).status(), 405);
    // A reload would have begun by the next of these.
    await page.evaluate("fetch('/a').then(() => new Promise((done) => setTimeout(done)))");
    assert.equal(await page.locator('textarea').inputValue(), 'typed');
    assert.equal(await page.locator('#hub-stale').count(), 0);
  });
});
