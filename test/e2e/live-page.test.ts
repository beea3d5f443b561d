import assert from 'node:assert/strict';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { describe, it, type TestContext } from 'node:test';
import type { BrowserContext, Page, Route } from 'playwright-core';
import { chromiumPath, launchChromium } from '../support/chromium.ts';
import { HUB, liveHubfile, type Site, startSite } from '../unit/discovery/site.ts';

interface Board {
  readonly site: Site;
  readonly context: BrowserContext;
  readonly messages: string[];
  /** How often the page was asked for. */
  loads: number;
  open(prepare?: (page: Page) => Promise<void>): Promise<Page>;
}

interface BoardOptions {
  /** Goes into the body. */
  readonly more?: (messages: readonly string[]) => string;
  readonly hubfile?: string;
  /** Where the pages are. */
  readonly host?: string;
  readonly backForwardCache?: boolean;
}

const HUBFILE = liveHubfile(`changes public {
			also /
		}`);

/** The hub is another site than the pages. */
const TWO_SITES = `http://localhost:{port} {${HUB}
		anonymous
		cors_origins http://127.0.0.1:{port}
	}
}
http://127.0.0.1:{port} {
	discovery {
		hub http://localhost:{port}
		changes public {
			also /
		}
		live
	}
	reverse_proxy localhost:{app}
}
`;

/** A second of silence, as a WAVE file. */
function silence(): string {
  const head = Buffer.from(
    '524946468c1f000057415645666d74201000000001000100401f0000401f00000100080064617461401f0000',
    'hex',
  );
  const bytes = Buffer.concat([head, Buffer.alloc(8000, 0x80)]);
  return `data:audio/wav;base64,${bytes.toString('base64')}`;
}

/** A board that knows of nobody, as HTML. */
async function board(
  test: TestContext,
  {
    more = () => '',
    hubfile = HUBFILE,
    host = 'localhost',
    backForwardCache = false,
  }: BoardOptions = {},
): Promise<Board | null> {
  const executable = chromiumPath(test, { isWhole: backForwardCache });
  if (executable === null) return null;
  const messages = ['welcome'];
  const state: { loads: number } = { loads: 0 };
  const app = async (request: IncomingMessage, response: ServerResponse): Promise<void> => {
    if (request.method === 'POST') {
      let body = '';
      for await (const chunk of request) body += String(chunk);
      messages.push(new URLSearchParams(body).get('text') ?? '');
      response.writeHead(303, { Location: '/' }).end();
      return;
    }
    if (request.url !== '/') {
      response.writeHead(404).end('nothing here');
      return;
    }
    state.loads += 1;
    const items = messages.map((text) => `<li>${text}</li>`).join('');
    response
      .writeHead(200, { 'Content-Type': 'text/html; charset=utf-8' })
      .end(
        `<!doctype html><html><head><title>${messages.length} messages</title></head><body><ul>${items}</ul>` +
          `<form method=post action=/messages><input name=text><textarea name=more></textarea><button>Say</button></form>${more(messages)}</body></html>`,
      );
  };
  const site = await startSite(test, (request, response) => void app(request, response), {
    hubfile,
  });
  const browser = await launchChromium(test, executable, null, { backForwardCache });
  const context = await browser.newContext();
  return {
    site,
    context,
    messages,
    get loads() {
      return state.loads;
    },
    async open(prepare = async () => {}) {
      const page = await context.newPage();
      await prepare(page);
      const stream = page.waitForResponse((response) =>
        response.url().includes('/.well-known/hub?'),
      );
      await page.goto(`${site.origin.replace('localhost', host)}/`);
      await stream;
      return page;
    },
  };
}

const ONLINE = "dispatchEvent(new Event('online'))";

const seen = (page: Page, text: string): Promise<unknown> =>
  page.getByText(text, { exact: true }).waitFor();

const say = (site: Site, text: string) =>
  fetch(`${site.origin}/messages`, {
    method: 'POST',
    body: new URLSearchParams({ text }),
    redirect: 'manual',
  });

describe('a live page in Chromium', () => {
  it('shows what another visitor changed, and keeps what this visitor types', async (test) => {
    const its = await board(test);
    if (its === null) return;
    const [reader, writer] = [await its.open(), await its.open()];
    await reader.fill('textarea', 'a long');
    await reader.locator('input').pressSequentially('half a sen');
    await reader.evaluate(`(() => document.querySelector('input')?.setSelectionRange(2, 5))()`);
    await writer.fill('input', 'from the other');
    await writer.click('button');
    await seen(reader, 'from the other');
    await reader.keyboard.type('X');
    const typed = await reader.evaluate(`(() => [
      document.querySelector('input')?.value,
      document.querySelector('textarea')?.value,
      document.activeElement?.tagName,
      document.title,
    ])()`);
    assert.deepEqual(typed, ['haXa sen', 'a long', 'INPUT', '2 messages']);
    assert.equal(await reader.locator('script').count(), 1);
  });

  it('keeps open details, the scroll position, disabled regions, and what scripts have added', async (test) => {
    const its = await board(test, {
      more: (messages) => `<details><summary>s</summary>${messages.length} in it</details>
<div id=scroll style="height:50px;overflow:auto"><div style="height:500px">long</div></div>
<p data-hub-live=off>off ${messages.length}</p>
<p data-hub-live=children class="c${messages.length}">children ${messages.length}</p>
<p data-hub-live=replace class="c${messages.length}"><b>replaced ${messages.length}</b></p>
<audio></audio><div style="height:3000px"></div>`,
    });
    if (its === null) return;
    const page = await its.open();
    await page.evaluate(`(() => {
      document.querySelector('details')?.setAttribute('open', '');
      const scroll = document.querySelector('#scroll');
      if (scroll !== null) scroll.scrollTop = 123;
      const chat = document.createElement('div');
      chat.textContent = 'a chat';
      document.body.append(chat);
      Object.assign(window, { kept: document.querySelector('[data-hub-live=replace] b') });
      window.scrollTo(0, 700);
    })()`);
    await say(its.site, 'news');
    await seen(page, 'replaced 2');
    await seen(page, 'a chat');
    const state = await page.evaluate(`(() => ({
      open: document.querySelector('details')?.open,
      inside: document.querySelector('details')?.textContent,
      inner: document.querySelector('#scroll')?.scrollTop,
      off: document.querySelector('[data-hub-live=off]')?.textContent,
      children: document.querySelector('[data-hub-live=children]')?.outerHTML,
      replaced: document.querySelector('[data-hub-live=replace]')?.className,
      isOther: Reflect.get(window, 'kept') !== document.querySelector('[data-hub-live=replace] b'),
      scrolled: window.scrollY > 600,
    }))()`);
    assert.deepEqual(state, {
      open: true,
      inside: 's2 in it',
      inner: 123,
      off: 'off 1',
      children: '<p data-hub-live="children" class="c1">children 2</p>',
      replaced: 'c2',
      isOther: true,
      scrolled: true,
    });
  });

  it('shows the title of the server again once the script that has changed it puts it back', async (test) => {
    const its = await board(test);
    if (its === null) return;
    const page = await its.open();
    const title = async (text: string, byScript: string): Promise<string> => {
      await page.evaluate(`document.title = ${JSON.stringify(byScript)}`);
      await say(its.site, text);
      await seen(page, text);
      return page.title();
    };
    assert.equal(await title('one', '(1) 1 messages'), '(1) 1 messages');
    assert.equal(await title('two', '1 messages'), '3 messages');
  });

  it('dispatches events, which can be cancelled', async (test) => {
    const its = await board(test);
    if (its === null) return;
    const page = await its.open();
    await page.evaluate(`(() => {
      const told = [];
      Object.assign(window, { told });
      for (const name of ['hub:update', 'hub:morphed']) {
        document.addEventListener(name, (event) => {
          told.push(name);
          if (told.length < 3) event.preventDefault();
          document.documentElement.dataset['told'] = String(told.length);
        });
      }
    })()`);
    const told = (count: number) =>
      page.locator(`html[data-told="${count}"]`).waitFor({ state: 'attached' });
    const before = its.loads;
    await say(its.site, 'one');
    await told(1);
    await page.evaluate(`(() => Reflect.get(window, 'told').push('skip'))()`);
    await say(its.site, 'two');
    await seen(page, 'two');
    assert.equal(its.loads, before + 1, 'a prevented update fetches nothing');
    assert.deepEqual(await page.evaluate(`(() => Reflect.get(window, 'told'))()`), [
      'hub:update',
      'skip',
      'hub:update',
      'hub:morphed',
    ]);
  });

  it('catches up when it reconnects after being offline, and when the user returns to it', async (test) => {
    const its = await board(test);
    if (its === null) return;
    const page = await its.open();
    await its.context.setOffline(true);
    await say(its.site, 'while offline');
    await its.context.setOffline(false);
    await seen(page, 'while offline');
    await page.goto('about:blank');
    await say(its.site, 'while away');
    await page.goBack();
    await seen(page, 'while away');
  });

  for (const [when, act] of [
    ['after 2 minutes', (page: Page) => page.clock.runFor(122_000)],
    ['when the browser is online again', (page: Page) => page.evaluate(ONLINE)],
  ] as const) {
    it(`gives up a fetch that is not answered ${when}, and follows the server again`, async (test) => {
      const its = await board(test);
      if (its === null) return;
      let isHeld = false;
      const page = await its.open(async (fresh) => {
        await fresh.clock.install();
        await fresh.route(`${its.site.origin}/`, (route) => {
          if (isHeld || !('hub-live' in route.request().headers())) return route.continue();
          isHeld = true;
          return undefined;
        });
      });
      const fetched = page.waitForRequest((request) => 'hub-live' in request.headers());
      await say(its.site, 'unanswered');
      await fetched;
      await act(page);
      await page.clock.resume();
      await seen(page, 'unanswered');
    });
  }

  it('waits for a page that the gateway and the app together need more than a minute for', async (test) => {
    const its = await board(test);
    if (its === null) return;
    const held: Route[] = [];
    // The clock of the test hides the cursor of the document from the page, so its first fetch names no update.
    const isForUpdate = (request: { headers(): Record<string, string> }): boolean =>
      (request.headers()['hub-live'] ?? '') !== '';
    const page = await its.open(async (fresh) => {
      await fresh.clock.install();
      await fresh.route(`${its.site.origin}/`, (route) => {
        if (!isForUpdate(route.request())) return route.continue();
        held.push(route);
        return undefined;
      });
    });
    const fetched = page.waitForRequest(isForUpdate);
    await say(its.site, 'late');
    await fetched;
    // The gateway may hold it for 70 s.
    await page.clock.runFor(100_000);
    for (const route of held) await route.continue();
    await page.clock.resume();
    await seen(page, 'late');
    assert.equal(held.length, 1);
  });

  it('sends the same request after failed attempts as at first', async (test) => {
    const its = await board(test);
    if (its === null) return;
    const tries: string[] = [];
    const page = await its.open(async (page) => {
      await page.route(/\/\.well-known\/hub\?/, (route) => {
        tries.push(new URL(route.request().url()).search);
        return tries.length < 3 ? route.abort() : route.continue();
      });
    });
    await say(its.site, 'once it is there');
    await seen(page, 'once it is there');
    assert.equal(tries.length, 3);
    assert.equal(new Set(tries).size, 1);
  });

  it('closes its stream after 10 s in the background, and catches up when it is visible again', async (test) => {
    const its = await board(test);
    if (its === null) return;
    const page = await its.open((fresh) => fresh.clock.install());
    const show = (hidden: boolean): Promise<unknown> =>
      page.evaluate(`(() => {
        Object.defineProperty(document, 'hidden', { value: ${hidden}, configurable: true });
        document.dispatchEvent(new Event('visibilitychange'));
      })()`);
    const isHub = (request: { url(): string }): boolean => request.url().includes('/hub?');
    let streams = 0;
    page.on('request', (request) => (streams += isHub(request) ? 1 : 0));
    await show(true);
    await page.clock.runFor(5_000);
    await show(false);
    assert.equal(streams, 0, 'who is back soon has kept his stream');
    await show(true);
    const over = page.waitForEvent('requestfailed', isHub);
    await page.clock.runFor(10_000);
    await over;
    const before = its.loads;
    await say(its.site, 'out of sight');
    await page.clock.runFor(60_000);
    assert.equal(its.loads, before, 'nobody looks at it');
    await page.clock.resume();
    await show(false);
    await seen(page, 'out of sight');
    assert.equal(streams, 1);
  });

  it('is kept in the back-forward cache, and is up to date when it is restored', async (test) => {
    const its = await board(test, { backForwardCache: true });
    if (its === null) return;
    const page = await its.open();
    await page.evaluate(
      `addEventListener('pageshow', ({ persisted }) => (window.kept = persisted))`,
    );
    await page.goto(`${its.site.origin}/elsewhere`);
    await say(its.site, 'while away');
    // Who comes out of the cache is not loaded.
    await page.goBack({ waitUntil: 'commit' });
    await seen(page, 'while away');
    assert.equal(await page.evaluate(`window.kept`), true);
  });

  it('lets media continue to play, whatever the new page does with them', async (test) => {
    const audio = (id: string): string => `<audio id=${id} loop muted src="${silence()}"></audio>`;
    const its = await board(test, {
      more: ({ length }) =>
        length === 1
          ? `<main><div>${audio('same')}${audio('changed')}</div><p>${audio('gone')}</p></main>`
          : `<main class=new><div>${audio('same')}<audio id=changed src="${silence()}#signed"></audio></div></main>`,
    });
    if (its === null) return;
    const page = await its.open();
    await page.evaluate(`(async () => {
      window.played = [...document.querySelectorAll('audio')];
      for (const one of window.played) await one.play();
    })()`);
    await say(its.site, 'news');
    await seen(page, 'news');
    const now = await page.evaluate(`(async () => {
      const turned = (one) => new Promise((done) => one.addEventListener('timeupdate', done, { once: true }));
      await Promise.all(window.played.map(turned));
      return window.played.map((one) => [one.id, one.isConnected, one.paused, one.currentTime > 0]);
    })()`);
    assert.deepEqual(now, [
      ['same', true, false, true],
      ['changed', true, false, true],
      ['gone', true, false, true],
    ]);
    assert.equal(await page.locator('main.new').count(), 1);
    // A change of its address, such as a signed one that differs each time, would take it back to the start.
    await page.evaluate(`window.played[1].pause()`);
    await say(its.site, 'more news');
    await seen(page, 'more news');
    assert.ok(await page.evaluate(`window.played[1].currentTime > 0`));
  });

  it('loses no click while it shows what has changed', async (test) => {
    const its = await board(test, { more: () => '<button id=count>count</button>' });
    if (its === null) return;
    const page = await its.open();
    await page.evaluate(`(() => {
      window.clicks = 0;
      document.getElementById('count').onclick = () => (window.clicks += 1);
    })()`);
    const { x = 0, y = 0 } = (await page.locator('#count').boundingBox()) ?? {};
    // During a View Transition, the browser gives each click to the root of the page.
    await page.evaluate(
      `document.getElementById('count').style.cssText = 'position:fixed;left:${x}px;top:${y}px'`,
    );
    let clicks = 0;
    for (const text of ['one', 'two', 'three']) {
      await say(its.site, text);
      await seen(page, text);
      for (let click = 0; click < 5; click += 1) {
        await page.mouse.click(x + 5, y + 5);
        clicks += 1;
      }
    }
    assert.equal(await page.evaluate(`window.clicks`), clicks);
  });

  it('follows a hub on another site', async (test) => {
    const its = await board(test, { hubfile: TWO_SITES, host: '127.0.0.1' });
    if (its === null) return;
    const [page, other] = [await its.open(), await its.open()];
    await other.fill('input', 'from afar');
    await other.click('button');
    await seen(page, 'from afar');
  });

  it('is unchanged without JavaScript', async (test) => {
    const its = await board(test);
    if (its === null) return;
    const browser = its.context.browser();
    const context = await browser?.newContext({ javaScriptEnabled: false });
    const page = await context?.newPage();
    await page?.goto(`${its.site.origin}/`);
    assert.equal(await page?.locator('li').count(), 1);
  });
});
