import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import {
  debug,
  DETAIL,
  event,
  isOpen,
  publishButton,
  start,
  subscribe,
  unfold,
} from '../support/debugger.ts';

const BOOKS = 'https://example.com/books';
const MAX_ENTRIES = 500;

describe('the debugger page in Chromium (docs/debugger.md)', () => {
  for (const profile of ['', 'mercure']) {
    it(`subscribes and publishes, and shows both as code without the token${profile === '' ? '' : `, profile ${profile}`}`, async (test) => {
      const its = await debug(test, profile);
      if (its === null) return;
      const page = await its.open();
      const asked: string[] = [];
      page.on('request', (request) => asked.push(request.url()));
      assert.equal(await page.locator('#empty').isVisible(), true);
      await page.getByText('hubgate token --iss ISSUER').waitFor();
      const token = await its.token();
      await page.fill('#token', token);
      await subscribe(page);
      await page.fill('#publish [name=topic]', `${BOOKS}/it's`);
      await page.fill('#publish [name=data]', '{"title":"Emma","tags":["a"]}');
      await publishButton(page).press('Enter');
      const shown = event(page, 'Emma');
      await shown.waitFor();
      assert.equal(await shown.locator('.line').textContent(), '{"title":"Emma","tags":["a"]}');
      assert.equal(await shown.locator('.json').count(), 0, 'one line until it is opened');
      await shown.locator('summary').first().click();
      await shown.locator('.json').waitFor();
      assert.equal(await shown.locator('.json details').count(), 2, 'JSON can be folded');
      assert.equal(await shown.locator('.topics').textContent(), `${BOOKS}/it's`);
      assert.equal(await page.locator('#empty').isVisible(), false);
      const id = (await shown.getAttribute('data-id')) ?? '';
      const short = `${id.replace('urn:uuid:', '').slice(0, 8)}…`;
      assert.equal(await page.locator('#cursor').textContent(), short);
      assert.equal(await page.locator('#cursor').getAttribute('title'), id);
      await page.context().grantPermissions(['clipboard-read', 'clipboard-write']);
      await shown.getByRole('button', { name: 'Copy id' }).click();
      await shown.getByText('Copied').waitFor();
      assert.equal(await page.evaluate('navigator.clipboard.readText()'), id);
      await page.locator('#publish-code > summary').click();
      await page.locator('#subscribe-code > summary').click();
      const curl = (await page.locator('#publish-code .curl').textContent()) ?? '';
      assert.match(curl, /Bearer \$TOKEN/);
      assert.ok(curl.includes(`'topic=${BOOKS}/it'\\''s'`), curl);
      const copy = page.locator('#publish-code').getByRole('button', { name: 'Copy curl' });
      await copy.click();
      await copy.getByText('Copied').waitFor();
      assert.equal(await page.evaluate('navigator.clipboard.readText()'), curl);
      const code = (await page.locator('.drawer pre').allTextContents()).join();
      assert.match(code, /EventSource sends no token/);
      assert.equal(code.includes(token), false);
      assert.equal(
        await page.evaluate('JSON.stringify({ ...localStorage, ...sessionStorage })'),
        '{}',
      );
      assert.deepEqual(await page.evaluate('window.violations'), []);
      assert.deepEqual(
        asked.filter((url) => !url.startsWith(its.hub) || url.includes(token)),
        [],
        'everything comes from the hub, and no URL has the token',
      );
      await its.publish({ topic: 'secret', data: 'whisper', private: 'on' });
      await event(page, 'whisper').waitFor();
    });
  }

  it('does not change while it is paused, filters by topic and type, and clears', async (test) => {
    const its = await debug(test);
    if (its === null) return;
    const page = await its.open();
    await subscribe(page);
    await its.publish({ topic: `${BOOKS}/1`, data: 'one', type: 'change' });
    await event(page, 'one').waitFor();
    const pause = page.getByRole('button', { name: 'Pause' });
    await pause.click();
    assert.equal(await pause.getAttribute('aria-pressed'), 'true');
    await its.publish({ topic: `${BOOKS}/2`, data: 'two' });
    await page.getByText('1 held back').waitFor();
    assert.equal(await event(page, 'two').count(), 0);
    await pause.click();
    await event(page, 'two').waitFor();
    await page.selectOption('#filter-type', 'change');
    assert.deepEqual(
      [await event(page, 'one').isVisible(), await event(page, 'two').isVisible()],
      [true, false],
    );
    await page.selectOption('#filter-type', '');
    await page.fill('#filter', 'TWO');
    assert.deepEqual(
      [await event(page, 'one').isVisible(), await event(page, 'two').isVisible()],
      [false, true],
    );
    await page.getByRole('button', { name: 'Clear' }).click();
    assert.equal(await page.locator('#events > li').count(), 0);

    await page.fill('#filter', '');
    await page.fill('#token', await its.token());
    await page.fill('#publish [name=topic]', `${BOOKS}/own`);
    await page.fill('#publish [name=data]', 'of this page');
    await publishButton(page).press('Enter');
    await page.locator('.topics', { hasText: `${BOOKS}/own` }).waitFor();
    await page.fill('#filter', `${BOOKS}/own`);
    assert.equal(
      await event(page, 'of this page').isVisible(),
      true,
      'by a topic that the page knows',
    );
    await page.fill('#filter', `${BOOKS}/other`);
    assert.equal(await event(page, 'of this page').isVisible(), false);
  });

  it(`keeps the newest ${MAX_ENTRIES} entries, and announces them to a screen reader together`, async (test) => {
    const its = await debug(test);
    if (its === null) return;
    const page = await its.open();
    await subscribe(page);
    await page.evaluate(`(() => {
      window.told = 0;
      new MutationObserver(() => (window.told += 1)).observe(document.querySelector('#told'), { childList: true });
    })()`);
    for (let i = 0; i < MAX_ENTRIES + 20; i += 20) {
      const some = Array.from({ length: 20 }, (_, at) => `number ${i + at} of many`);
      await Promise.all(some.map((data) => its.publish({ topic: 'many', data })));
    }
    await its.publish({ topic: 'many', data: 'the last one' });
    await event(page, 'the last one').waitFor();
    assert.equal(await page.locator('#events > li').count(), MAX_ENTRIES);
    await page.getByText(`the newest ${MAX_ENTRIES} are kept`).waitFor();
    const told = Number(await page.evaluate('window.told'));
    assert.ok(told <= 20, `${told} announcements`);
    assert.equal(await page.locator('#told').getAttribute('role'), 'status');
    assert.equal(await page.locator('#events').getAttribute('aria-live'), null);
  });

  it('resumes from its cursor, and says that nothing was missed', async (test) => {
    const its = await debug(test);
    if (its === null) return;
    const page = await its.open();
    await subscribe(page);
    const id = await its.publish({ topic: 'a', data: 'before' });
    await event(page, 'before').waitFor();
    await page.context().setOffline(true);
    // Chromium ends no stream for that: the page does, and takes up where it was.
    await page.getByRole('button', { name: 'Stop' }).click();
    await page.locator('#state', { hasText: 'closed' }).waitFor();
    await its.publish({ topic: 'a', data: 'meanwhile' });
    await unfold(page, 'more-subscribe');
    await page.fill('#subscribe [name=last_event_id]', id);
    await start(page).press('Enter');
    await page.locator('.notice', { hasText: 'Connection lost' }).first().waitFor();
    await page.context().setOffline(false);
    await isOpen(page);
    await event(page, 'meanwhile').waitFor();
    await page.locator('.notice', { hasText: `after ${id}: nothing was missed` }).waitFor();
  });

  it('reports a gap when a restart has lost the history', async (test) => {
    const its = await debug(test);
    if (its === null) return;
    const page = await its.open();
    await subscribe(page);
    const id = await its.publish({ topic: 'a', data: 'before' });
    await event(page, 'before').waitFor();
    const again = page.waitForRequest((request) => request.headers()['last-event-id'] === id);
    await its.restart();
    await again;
    await page.locator('.notice', { hasText: 'Connection lost' }).first().waitFor();
    await page.locator('.notice', { hasText: `does not reach back to ${id}` }).waitFor();
    await isOpen(page);
    await its.publish({ topic: 'a', data: 'after' });
    await event(page, 'after').waitFor();
  });

  it('uses the cookie if no token is pasted, and says so', async (test) => {
    const its = await debug(test);
    if (its === null) return;
    const page = await its.open();
    const cookie = { name: 'hub_token', value: await its.token(), url: its.hub, httpOnly: true };
    await page.context().addCookies([cookie]);
    await page.getByText('Without a token the cookie hub_token is sent').waitFor();
    await subscribe(page);
    await its.publish({ topic: 'secret', data: 'by the cookie', private: 'on' });
    await event(page, 'by the cookie').waitFor();
    assert.doesNotMatch((await page.locator('#subscribe-code').textContent()) ?? '', /TOKEN/);
    await publishButton(page).press('Enter');
    await page.locator('#published', { hasText: /^Refused: 40/ }).waitFor();
    assert.equal(await page.locator('#publish-code').isVisible(), false, 'no code for a failure');
  });

  it('says which grant to paste when the hub refuses', async (test) => {
    const its = await debug(test);
    if (its === null) return;
    const page = await its.open();
    await page.fill('#publish [name=topic]', `${BOOKS}/it's`);
    await publishButton(page).press('Enter');
    const published = page.locator('#published');
    await published
      .getByText(`Paste a token with a publish grant that covers ${BOOKS}/it's`)
      .waitFor();
    const command = (await published.locator('code').textContent()) ?? '';
    assert.ok(command.endsWith(`--publish '${BOOKS}/it'\\''s'`), command);
    const authorization_details = [
      { type: DETAIL, actions: ['subscribe'], topics: [{ match: '*' }] },
    ];
    await page.fill('#token', await its.token({ authorization_details }));
    await publishButton(page).press('Enter');
    await published.getByText(/^Refused: 403 .*Paste a token with a publish grant/).waitFor();
    await page.fill('#token', await its.token({ aud: 'https://elsewhere.example/hub' }));
    await start(page).press('Enter');
    await page
      .locator('.notice', { hasText: 'does not accept this token. Paste a token with a subscribe' })
      .waitFor();
    assert.equal(await page.locator('#subscribe-code').isVisible(), false);
  });

  it('starts from now, without the history, when it reconnects before the first update', async (test) => {
    const its = await debug(test);
    if (its === null) return;
    const page = await its.open();
    await its.publish({ topic: 'a', data: 'from before' });
    await subscribe(page);
    await page.getByRole('button', { name: 'Restart' }).waitFor();
    assert.equal(await page.locator('#cursor').textContent(), 'no update yet');
    await page.evaluate(`(() => {
      const real = window.fetch;
      window.asked = [];
      window.fetch = (target, options) => {
        if (String(target).includes('match=')) asked.push(String(target) + (options.headers.get('Last-Event-ID') ?? ''));
        return real(target, options);
      };
    })()`);
    const again = page.waitForRequest((request) => request.url().includes('match='));
    await its.restart();
    await again;
    await page.locator('.notice', { hasText: 'Connection lost' }).first().waitFor();
    await page.locator('.notice', { hasText: 'Reconnected. Updates published' }).waitFor();
    await isOpen(page);
    await its.publish({ topic: 'a', data: 'from now on' });
    await event(page, 'from now on').waitFor();
    assert.equal(await event(page, 'from before').count(), 0);
    const asked = await page.evaluate<string[]>('window.asked');
    assert.deepEqual([...new Set(asked)], [`${its.hub}?match=*`]);
  });

  it('shows one first step, no chart, and helper text for each field when it is empty', async (test) => {
    const its = await debug(test);
    if (its === null) return;
    const page = await its.open();
    assert.equal(await page.locator('#traffic').isVisible(), false);
    assert.equal(await page.locator('.drawer').first().isVisible(), false);
    const helped = page.locator('#controls').locator('input:not([type=checkbox]), textarea');
    for (const field of await helped.all()) {
      const help = await field.getAttribute('aria-describedby');
      assert.notEqual(await page.locator(`#${help}`).textContent(), '', String(help));
    }
    await page.getByRole('button', { name: 'Start receiving' }).click();
    await isOpen(page);
    await its.publish({ topic: 'a', data: 'first' });
    await event(page, 'first').waitFor();
    assert.equal(await page.locator('#traffic').isVisible(), true);
    const [who, updates] = await Promise.all(
      ['#who', '#updates'].map((id) => page.locator(id).boundingBox()),
    );
    assert.ok((who?.y ?? 900) < (updates?.y ?? 0), 'subscribers stand above the updates');
  });

  it('takes a token from the fragment of its address, and removes it there', async (test) => {
    const its = await debug(test);
    if (its === null) return;
    const page = await its.open();
    await page.goto(`${its.hub}/debug/#token=${await its.token()}`);
    await page.getByText('This token looks right.').waitFor();
    assert.equal(page.url(), `${its.hub}/debug/`);
    assert.equal(await page.locator('#teach-token').isVisible(), false);
    await page.getByRole('button', { name: 'Start receiving' }).click();
    await page.locator('#subscribers td', { hasText: '*' }).waitFor();
  });

  it('says why the hub refuses, and stops', async (test) => {
    const its = await debug(test);
    if (its === null) return;
    const page = await its.open();
    await page.fill('#token', await its.token({ aud: 'https://elsewhere.example/hub' }));
    await page.getByText('The hub refuses this token: aud.').waitFor();
    assert.equal(await page.locator('#rights').isVisible(), false, 'its reasons alone');
    await start(page).press('Enter');
    await page.locator('#state', { hasText: 'refused: 401' }).waitFor();
    assert.equal(await page.getByRole('button', { name: 'Stop' }).isDisabled(), true);
  });

  it('explains a token: its checks, its grants, and which topics of the page it does and does not cover', async (test) => {
    const its = await debug(test);
    if (its === null) return;
    const page = await its.open();
    const explained = page.locator('#explained');
    await page.fill('#token', 'not.a.token');
    await explained.getByText('shape').first().waitFor();
    const details = (actions: string[], match: string, match_type = 'urlpattern') => ({
      type: DETAIL,
      actions,
      topics: [{ match, match_type }],
    });
    await page.fill('#token', await its.token({ exp: 1_600_000_000 }));
    await explained.getByText('The hub refuses this token: exp.').waitFor();
    await page.fill('#subscribe [name=match]', `${BOOKS}/1\nhttps://example.org/books/1\nnews`);
    await unfold(page, 'more-subscribe');
    await page.fill('#subscribe [name=match_urlpattern]', `https://example.com/*\n${BOOKS}/:id`);
    await page.fill('#publish [name=topic]', `${BOOKS}/1`);
    const authorization_details = [details(['subscribe'], `${BOOKS}/:id`)];
    await page.fill('#token', await its.token({ authorization_details }));
    await explained.getByText('This token looks right.').waitFor();
    await page
      .locator('#allowed')
      .getByText(`subscribe all URLs that match "${BOOKS}/:id"`)
      .waitFor();
    const covered = await page.locator('#covered > li').allInnerTexts();
    const verdicts = covered.map((text) => text.replaceAll('\n', ' '));
    assert.match(verdicts[0] ?? '', /✓ covered subscribe https:\/\/example.com\/books\/1/);
    assert.match(verdicts[1] ?? '', /✕ not covered .*another host than "example.org"/);
    assert.match(verdicts[2] ?? '', /✕ not covered subscribe news/);
    assert.match(verdicts[3] ?? '', /◐ in part subscribe https:\/\/example.com\/\* /);
    assert.match(verdicts[4] ?? '', /✓ covered subscribe .*:id/);
    assert.match(verdicts[5] ?? '', /✕ not covered publish .*no such grant/);
    await page.getByText('Header and claims').click();
    await page.locator('#contents').getByText('"at+jwt"', { exact: true }).waitFor();
  });

  it('shows the subscribers, and charts them over time', async (test) => {
    const its = await debug(test);
    if (its === null) return;
    const page = await its.open();
    await page.getByRole('button', { name: 'Refresh' }).click();
    await page.getByText('Paste a token with a subscribe grant').waitFor();
    await page.fill('#token', await its.token());
    await page.fill('#subscribe [name=match]', `${BOOKS}/7`);
    await subscribe(page);
    await page.locator('#subscribers td', { hasText: `${BOOKS}/7` }).waitFor();
    await its.publish({ topic: `${BOOKS}/7`, data: 'seven' });
    await page.locator('#traffic-summary', { hasText: /1 update in .*1 subscription/ }).waitFor();
    assert.ok((await page.locator('#plot rect.rate').count()) > 0);
    assert.equal(
      await page.locator('.topics').textContent(),
      `${BOOKS}/7`,
      'the only topic it can be',
    );
  });
});
