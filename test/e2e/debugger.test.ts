import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { debug, DETAIL, event, isOpen, subscribe } from '../support/debugger.ts';

const BOOKS = 'https://example.com/books';
const MAX_ENTRIES = 500;

describe('the debugger page in Chromium (docs/debugger.md)', () => {
  for (const profile of ['', 'mercure']) {
    it(`subscribes and publishes, and says both as code without the token${profile === '' ? '' : `, profile ${profile}`}`, async (test) => {
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
      await page.getByRole('button', { name: 'Publish' }).click();
      const shown = event(page, 'Emma');
      await shown.waitFor();
      assert.equal(await shown.locator('details').count(), 2, 'JSON can be folded');
      assert.equal(await shown.locator('.topics').textContent(), `${BOOKS}/it's`);
      assert.equal(await page.locator('#empty').isVisible(), false);
      const id = await shown.getAttribute('data-id');
      assert.equal(await page.locator('#cursor').textContent(), id);
      const curl = (await page.locator('#curl').textContent()) ?? '';
      assert.match(curl, /Bearer \$TOKEN/);
      assert.ok(curl.includes(`'topic=${BOOKS}/it'\\''s'`), curl);
      await page.context().grantPermissions(['clipboard-read', 'clipboard-write']);
      await page.getByRole('button', { name: 'Copy curl' }).click();
      await page.locator('#copy-curl', { hasText: 'Copied' }).waitFor();
      assert.equal(await page.evaluate('navigator.clipboard.readText()'), curl);
      const code = curl + (await page.locator('#javascript').textContent());
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

  it('holds still while it is paused, filters by topic and type, and clears', async (test) => {
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
    await page.getByRole('button', { name: 'Publish' }).click();
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

  it(`keeps the newest ${MAX_ENTRIES} entries, and tells a screen reader of them together`, async (test) => {
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

  it('comes back to its cursor, and says that nothing was missed', async (test) => {
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
    await page.fill('#subscribe [name=last_event_id]', id);
    await page.getByRole('button', { name: 'Subscribe' }).click();
    await page.locator('.notice', { hasText: 'Connection lost' }).first().waitFor();
    await page.context().setOffline(false);
    await isOpen(page);
    await event(page, 'meanwhile').waitFor();
    await page.locator('.notice', { hasText: `behind ${id}: nothing was missed` }).waitFor();
  });

  it('says that a restart lost the history: a gap', async (test) => {
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

  it('uses the cookie where no token is pasted, and says that', async (test) => {
    const its = await debug(test);
    if (its === null) return;
    const page = await its.open();
    const cookie = { name: 'hub_token', value: await its.token(), url: its.hub, httpOnly: true };
    await page.context().addCookies([cookie]);
    await page.getByText('No token: the cookie hub_token is used').waitFor();
    await subscribe(page);
    await its.publish({ topic: 'secret', data: 'by the cookie', private: 'on' });
    await event(page, 'by the cookie').waitFor();
    assert.doesNotMatch((await page.locator('#curl').textContent()) ?? '', /TOKEN/);
    await page.getByRole('button', { name: 'Publish' }).click();
    await page.locator('#published', { hasText: /^Refused: 40/ }).waitFor();
  });

  it('says why the hub refuses, and stops', async (test) => {
    const its = await debug(test);
    if (its === null) return;
    const page = await its.open();
    await page.fill('#token', await its.token({ aud: 'https://elsewhere.example/hub' }));
    await page.getByText('The hub refuses this token: aud.').waitFor();
    await page.getByRole('button', { name: 'Subscribe' }).click();
    await page.locator('#state', { hasText: 'refused: 401' }).waitFor();
    assert.equal(await page.getByRole('button', { name: 'Stop' }).isDisabled(), true);
  });

  it('explains a token: its checks, its grants, what of the page it covers and why not the rest', async (test) => {
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

  it('shows who is subscribed, and draws it over time', async (test) => {
    const its = await debug(test);
    if (its === null) return;
    const page = await its.open();
    await page.getByRole('button', { name: 'Refresh' }).click();
    await page.getByText('It takes a token with a subscribe grant').waitFor();
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
