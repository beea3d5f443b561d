import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import {
  debug,
  event,
  isOpen,
  publishButton,
  showPart,
  subscribe,
  unfold,
} from '../support/debugger.ts';
import { poorContrast } from '../support/page-contrast.ts';

describe('accessibility of the debugger page, in Chromium (docs/debugger.md)', () => {
  it('can be used with the keyboard alone', async (test) => {
    const its = await debug(test);
    if (its === null) return;
    const page = await its.open();
    const { keyboard } = page;
    await keyboard.press('Tab');
    assert.equal(await page.evaluate('document.activeElement.textContent'), 'Skip to the updates');
    await keyboard.press('t');
    assert.equal(await page.evaluate('document.activeElement.id'), 'token');
    await keyboard.insertText(await its.token());
    await unfold(page, 'more-subscribe');
    await page.evaluate('document.activeElement.blur()');
    await keyboard.press('s');
    await isOpen(page);
    await keyboard.press('n');
    await keyboard.press('Control+A');
    await keyboard.type('typed');
    await keyboard.press('Tab');
    await keyboard.press('Control+A');
    await keyboard.type('by hand; s p c are letters here');
    await keyboard.press('Control+Enter');
    await event(page, 'by hand').waitFor();
    const unreached = new Set([
      'token',
      'match',
      'match_urlpattern',
      'last_event_id',
      'stop',
      'topic',
      'data',
      'private',
      'filter',
      'filter-type',
      'pause',
      'clear',
      'As code',
      'refresh',
      'shortcuts-on',
    ]);
    // Several rounds: after the last control, the focus takes a way through the browser, and a look may miss a step.
    for (let i = 0; i < 240 && unreached.size > 0; i += 1) {
      await keyboard.press('Tab');
      unreached.delete(
        String(
          await page.evaluate(
            `(() => { const a = document.activeElement; return a.id || a.name || a.textContent.trim(); })()`,
          ),
        ),
      );
    }
    assert.deepEqual([...unreached], [], 'is not reached by Tab');
    const off = page.getByLabel('Single-key shortcuts');
    await off.uncheck();
    await keyboard.press('c');
    assert.equal(await event(page, 'by hand').count(), 1, 'shortcuts can be switched off');
  });

  it('has landmarks, and a name for every control', async (test) => {
    const its = await debug(test);
    if (its === null) return;
    const page = await its.open();
    await page.fill('#token', await its.token());
    await subscribe(page);
    await its.publish({ topic: 'a', data: '{"a":[1]}' });
    await page.locator('#events summary').first().waitFor();
    const session = await page.context().newCDPSession(page);
    const { nodes } = await session.send('Accessibility.getFullAXTree');
    const known = nodes.filter(({ ignored }) => !ignored);
    const roles = known.map(({ role }) => String(role?.value));
    for (const role of ['banner', 'main', 'contentinfo', 'form', 'region', 'heading', 'status']) {
      assert.ok(roles.includes(role), role);
    }
    const usable = [
      'button',
      'textbox',
      'searchbox',
      'checkbox',
      'combobox',
      'link',
      'form',
      'region',
      'DisclosureTriangle',
    ];
    const nameless = known.filter(
      ({ role, name }) =>
        usable.includes(String(role?.value)) && String(name?.value ?? '').trim() === '',
    );
    assert.deepEqual(
      nameless.map(({ role }) => role?.value),
      [],
    );
  });

  for (const colorScheme of ['light', 'dark'] as const) {
    it(`has text with enough contrast, ${colorScheme}, and fits 360 px (WCAG 2.2 §1.4.3, §1.4.10)`, async (test) => {
      const its = await debug(test);
      if (its === null) return;
      const page = await its.open({ colorScheme, viewport: { width: 360, height: 740 } });
      await showPart(page, 'Token');
      await page.fill('#token', await its.token({ aud: 'another' }));
      await page.getByText('The hub refuses this token').waitFor();
      assert.deepEqual(await poorContrast(page), []);
      await page.fill('#token', await its.token());
      await page.getByText('This token looks right').waitFor();
      await showPart(page, 'Stream');
      assert.equal(await page.locator('#token').isVisible(), false, 'one part at a time');
      await subscribe(page);
      await its.publish({
        topic: 'a',
        data: JSON.stringify({ a: 'x'.repeat(300), b: [1, true, null] }),
      });
      await event(page, 'xxx').locator('summary').first().click();
      await event(page, 'xxx').locator('.json').waitFor();
      for (const part of ['Stream', 'Token', 'Publish'] as const) {
        await showPart(page, part);
        if (part === 'Publish') {
          await publishButton(page).press('Enter');
          await page.locator('#published', { hasText: 'Published' }).waitFor();
        }
        await page.evaluate('scrollTo(0, document.body.scrollHeight)');
        const state = await page.locator('#state').boundingBox();
        assert.ok(state !== null && state.y >= 0 && state.y < 120, 'the state stays in sight');
        assert.deepEqual(await poorContrast(page), [], part);
        assert.equal(await page.evaluate('document.documentElement.scrollWidth'), 360, part);
      }
      assert.deepEqual(await page.evaluate('window.violations'), []);
    });
  }
});
