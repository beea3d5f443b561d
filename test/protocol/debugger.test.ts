import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { decodeJwt } from 'jose';
import { chromiumPath, launchChromium } from '../support/chromium.ts';
import { FORM, ISSUER, PUBLISHER_KEY, startHub } from '../support/hub-server.ts';

const DEBUG = '/.well-known/hub/debug/';

describe('debugger', () => {
  it('K-601: is served only when it is switched on', async (test) => {
    const off = await startHub(test);
    assert.equal((await off.get(DEBUG)).status, 404);
    const on = await startHub(test, { debugger: true });
    for (const [name, type] of [
      ['', /^text\/html/],
      ['debugger.js', /^text\/javascript/],
      ['debugger.css', /^text\/css/],
      ['design.css', /^text\/css/],
      ['icon.svg', /^image\/svg\+xml/],
    ] as const) {
      const answer = await on.get(DEBUG + name);
      assert.equal(answer.status, 200);
      assert.match(answer.headers['content-type'] ?? '', type);
    }
    for (const name of ['nothing', '__proto__', '../subscriptions']) {
      assert.equal((await on.get(DEBUG + name)).status, 404);
    }
  });

  it('K-602: gives its page the settings, but never a token', async (test) => {
    const hub = await startHub(test, { debugger: true, subscriptions: true });
    const { body, headers } = await hub.get(`${DEBUG}config.json`);
    assert.deepEqual(JSON.parse(body), {
      playground: false,
      anonymous: true,
      subscriptions: true,
      cookieName: '__Secure-hub_access_token',
      cursorHeader: 'Hub-Last-Event-ID',
      detailType: 'urn:hub:authorization-detail',
      base: 'https://hub.invalid/.well-known/hub',
      legacyClaim: 'hub',
      compatible: false,
      readsLegacy: false,
      audience: hub.url,
    });
    assert.equal(headers['cache-control'], 'no-store');
  });

  it('K-604: keeps the policy that allows scripts and styles from the hub only', async (test) => {
    const hub = await startHub(test, { debugger: true });
    const { headers, body } = await hub.get(DEBUG);
    assert.equal(headers['content-security-policy'], "default-src 'self'");
    assert.equal(/<script>| style=| on\w+=/.test(body), false);
  });
});

describe('playground', () => {
  const key = { key: PUBLISHER_KEY };
  const issuers = [{ id: ISSUER, publisher: key, subscriber: key }];

  it('K-603: issues a one-hour token for everything, signed with its own key, if the subscriber key is a secret', async (test) => {
    const hub = await startHub(test, { playground: true, issuers });
    const { body, headers, status } = await hub.get(`${DEBUG}playground-token`);
    assert.equal(status, 200);
    assert.equal(headers['cache-control'], 'no-store');
    const claims = decodeJwt(body);
    assert.deepEqual([claims.aud, claims.iss], [hub.url, 'urn:hubgate:playground']);
    assert.equal((claims.exp ?? 0) - (claims.iat ?? 0), 3600);
    const posted = await hub.post('topic=a', {
      headers: [FORM, ['Authorization', `Bearer ${body}`]],
    });
    assert.equal(posted.status, 200);
    const plain = await startHub(test, { issuers });
    const late = await plain.post('topic=a', {
      headers: [FORM, ['Authorization', `Bearer ${body}`]],
    });
    assert.equal(late.status, 401, 'its tokens end with the option');
    const apart = await startHub(test, { playground: true });
    const details = decodeJwt((await apart.get(`${DEBUG}playground-token`)).body);
    assert.match(JSON.stringify(details), /"actions":\["subscribe"\]/);
    assert.doesNotMatch(JSON.stringify(details), /publish/);
    const off = await startHub(test, { debugger: true, issuers });
    assert.equal((await off.get(`${DEBUG}playground-token`)).status, 404);
  });

  it('K-605 K-607: redirects the root to the debugger when it is switched on', async (test) => {
    const on = await startHub(test, { playground: true, issuers });
    const answer = await on.get('/');
    assert.deepEqual([answer.status, answer.headers.location], [302, DEBUG]);
    const off = await startHub(test, { debugger: true, issuers });
    assert.equal((await off.get('/')).body, 'the site');
    assert.equal((await off.get('/playground/x')).body, 'the site');
  });

  it('K-606 H-508: simulates an app with discovery headers and the cookie', async (test) => {
    const hub = await startHub(test, { playground: true, issuers });
    const { body, headers } = await hub.get('/playground/foo.jsonld?body=%7B%7D&jwt=a.b.c');
    assert.equal(body, '{}');
    assert.equal(headers['content-type'], 'application/ld+json');
    assert.equal(
      headers.link,
      '</.well-known/hub>; rel="hub"; cookie-name="hub_access_token", ' +
        '</playground/foo.jsonld?body=%7B%7D&jwt=a.b.c>; rel="self"',
    );
    assert.deepEqual(headers['set-cookie'], [
      'hub_access_token=a.b.c; Path=/.well-known/hub; HttpOnly; SameSite=Strict',
    ]);
    const forged = await hub.get('/playground/x?a=>;rel="hub",<https://evil.example/hub');
    const self = '</playground/x?a=%3E;rel=%22hub%22,%3Chttps://evil.example/hub>; rel="self"';
    assert.ok(String(forged.headers.link).endsWith(`, ${self}`), String(forged.headers.link));
    const cleared = await hub.get('/playground/foo.jsonld');
    assert.match(cleared.headers['set-cookie']?.[0] ?? '', /^hub_access_token=; Max-Age=0;/);
  });

  it('its page subscribes and publishes in a browser', async (test) => {
    const executable = chromiumPath(test);
    if (executable === null) return;
    const hub = await startHub(test, { playground: true, issuers });
    const browser = await launchChromium(test, executable, null);
    const page = await browser.newPage();
    await page.goto(`${hub.origin}/`);
    await page.locator('#start').click();
    await page.locator('#state', { hasText: /^open$/ }).waitFor();
    await page.locator('#publish [name=topic]').fill('https://example.com/a');
    await page.locator('#publish [name=data]').fill('seen in the debugger');
    await page.locator('#publish button.primary').click();
    await page.locator('#events li', { hasText: 'seen in the debugger' }).waitFor();
  });

  it('its forms cannot be submitted before its script handles them', async (test) => {
    const executable = chromiumPath(test);
    if (executable === null) return;
    const hub = await startHub(test, { playground: true, issuers });
    const browser = await launchChromium(test, executable, null);
    const page = await browser.newPage();
    let release = (): void => undefined;
    const released = new Promise<void>((resolve) => (release = resolve));
    await page.route('**/config.json', async (route) => {
      await released;
      await route.continue();
    });
    await page.goto(`${hub.origin}/`);
    const address = page.url();
    const subscribe = page.locator('#start');
    const publish = page.locator('#publish button.primary');
    assert.deepEqual([await subscribe.isDisabled(), await publish.isDisabled()], [true, true]);
    await page.locator('#more-publish > summary').click();
    await page.locator('#publish [name=id]').press('Enter');
    release();
    await subscribe.click();
    await page.locator('#state', { hasText: /^open$/ }).waitFor();
    assert.equal(page.url(), address);
  });
});
