import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { inspectToken } from '../../../src/auth/inspect.ts';
import { explainToken } from '../../../src/debugger/token.ts';
import {
  AUDIENCE,
  claims,
  fixture,
  NOW,
  PUBLISHER_SECRET,
  sign,
  SUBSCRIBER_SECRET,
} from './hub-fixture.ts';

const { options } = fixture();
const publish = { action: 'publish', audience: AUDIENCE, topic: 'urn:a' } as const;
const failed = async (
  token: string,
  use: Parameters<typeof inspectToken>[2] = publish,
): Promise<readonly string[]> =>
  (await inspectToken(token, options, use))
    .filter(({ passed }) => !passed)
    .map(({ check }) => check);

describe('token inspect (hubfile.md §5)', () => {
  it('passes every check of a good token, in the order of the hub', async () => {
    const checks = await inspectToken(await sign(), options, publish);
    assert.ok(checks.every(({ passed }) => passed));
    assert.deepEqual(
      checks.map(({ check }) => check),
      [
        'shape',
        'typ',
        'crit',
        'iss',
        'role',
        'alg',
        'signature',
        'aud',
        'exp',
        'nbf',
        'claims',
        'authorization_details',
        'grant',
      ],
    );
  });
  it('reports all errors at once, with the expected value and a fix, and never shows the token', async () => {
    const payload = claims({
      aud: 'https://other.example',
      exp: NOW - 5,
      authorization_details: [],
    });
    const token = await sign(payload, {
      header: { typ: 'JWT' },
      key: Buffer.from(SUBSCRIBER_SECRET),
    });
    assert.deepEqual(await failed(token), ['typ', 'signature', 'aud', 'exp', 'grant']);
    const checks = await inspectToken(token, options, publish);
    const audience = checks.find(({ check }) => check === 'aud');
    assert.equal(audience?.expected, `"${AUDIENCE}"`);
    assert.equal(audience.found, '"https://other.example"');
    assert.ok(checks.every(({ passed, fix }) => passed || fix !== ''));
    assert.ok(
      ![token, PUBLISHER_SECRET, SUBSCRIBER_SECRET].some((text) =>
        JSON.stringify(checks).includes(text),
      ),
    );
  });
  it('agrees with the debugger page, except on the checks that need the keys', async () => {
    const settings = {
      ...{ playground: false, anonymous: true, subscriptions: true, cookieName: 'c' },
      ...{ cursorHeader: 'h', legacyClaim: 'hub', compatible: false, readsLegacy: false },
      ...{ detailType: options.detailType, base: options.base, audience: AUDIENCE },
    };
    const ofKeys = ['iss', 'role', 'alg', 'signature', 'grant'];
    for (const token of [
      await sign(),
      await sign(
        claims({ exp: NOW - 5, aud: 'x', nbf: NOW + 5, authorization_details: [{ type: 1 }] }),
      ),
      await sign(claims({ jti: 1 }), { header: { typ: 'JWT' } }),
      'nonsense',
    ]) {
      const inspected = await inspectToken(token, options, publish);
      const { checks } = explainToken(token, settings, options.clock.now());
      assert.deepEqual(
        checks,
        inspected.filter(({ check }) => !ofKeys.includes(check)),
      );
    }
  });
  it('stops if the text is not a token', async () => {
    assert.deepEqual(await failed('nonsense'), ['shape']);
    // The access tokens of Hydra by default, and of other servers that no resource server can read.
    const [check] = await inspectToken('ory_at_dG9rZW4.c2lnbmF0dXJl', options, publish);
    assert.match(check?.fix ?? '', /opaque/);
  });
  it('skips the checks that depend on an unknown issuer', async () => {
    assert.deepEqual(await failed(await sign(claims({ iss: 'https://x.example' }))), ['iss']);
  });
  it('checks the grants for the action, but none without a topic', async () => {
    const subscribe = { ...publish, action: 'subscribe' } as const;
    const token = await sign(claims(), { key: Buffer.from(SUBSCRIBER_SECRET) });
    assert.deepEqual(await failed(token, subscribe), ['grant']);
    const grant = (await inspectToken(token, options, subscribe)).at(-1);
    assert.equal(grant?.found, 'no grant that covers it: the token has no such grant');
    assert.deepEqual(await failed(token, { ...subscribe, topic: null }), []);
  });
});
