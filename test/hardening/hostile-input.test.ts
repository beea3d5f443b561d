import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { send } from '../support/http.ts';
import {
  FORM,
  ISSUER,
  PUBLISHER_KEY,
  signToken,
  startHub,
  SUBSCRIBER_KEY,
} from '../support/hub-server.ts';

/** What catches a hang; nothing here is timed. */
describe('hostile input: the hub stays up and responds', () => {
  it('G-452 C-293: patterns that would block a backtracking matcher for minutes', async (test) => {
    const hub = await startHub(test);
    const topics = [
      `https://${'a'.repeat(60)}.example/${'a'.repeat(1500)}`,
      `/${'-'.repeat(1500)}`,
      `/${'a'.repeat(1500)}`,
    ];
    for (const pattern of [
      '/((?:a+)+)b',
      '/{a*}*b',
      '/*a*a*a*a*a*b',
      '/:a-:b-:c-:d-:e!',
      'https://**.example.com/*',
      '/(a+)+b',
      '*://*/*a*a*a*a*a*a*a*a*b',
      `/${'*a'.repeat(90)}b`,
    ]) {
      const query = `match_urlpattern=${encodeURIComponent(pattern)}`;
      const answer = await hub.get(`/.well-known/hub?${query}`, { method: 'HEAD' });
      assert.ok(answer.status === 200 || answer.status === 400, `${pattern}: ${answer.status}`);
      if (answer.status !== 200) continue;
      await hub.subscribe(query);
      for (const topic of topics) assert.equal((await hub.post({ topic })).status, 200);
    }
  });

  it('C-265: claims with duplicate members, and claims nested a thousand deep', async (test) => {
    const hub = await startHub(test);
    const claims = { iss: ISSUER, aud: hub.url, exp: 4102444800 };
    const encode = (text: string): string => Buffer.from(text).toString('base64url');
    const header = encode('{"alg":"HS256","typ":"at+jwt"}');
    const { createHmac } = await import('node:crypto');
    const signed = (payload: string): string => {
      const input = `${header}.${encode(payload)}`;
      return `${input}.${createHmac('sha256', PUBLISHER_KEY).update(input).digest('base64url')}`;
    };
    const good = JSON.stringify(claims).slice(0, -1);
    for (const payload of [
      `${good},"exp":1}`,
      `${good},"x":{"a":1,"a":2}}`,
      `${good},"x":${'['.repeat(1000)}${']'.repeat(1000)}}`,
      `${good},"x":${'{"a":'.repeat(1000)}1${'}'.repeat(1000)}}`,
      `${good},"x":"\\ud800"`,
      '[]',
      'null',
      '"text"',
    ]) {
      const answer = await hub.post('topic=a', {
        headers: [FORM, ['Authorization', `Bearer ${signed(payload)}`]],
      });
      assert.equal(answer.status, 401, payload.slice(0, 60));
    }
  });

  it('C-244 C-246 C-247: unsigned, confused and self-certified tokens', async (test) => {
    const hub = await startHub(test);
    const claims = { iss: ISSUER, aud: hub.url };
    const encode = (value: object): string =>
      Buffer.from(JSON.stringify(value)).toString('base64url');
    const none = `${encode({ alg: 'none', typ: 'at+jwt' })}.${encode({ ...claims, exp: 4102444800 })}.`;
    const own = await signToken('a key that the attacker brought along', claims, {
      jwk: {
        kty: 'oct',
        k: Buffer.from('a key that the attacker brought along').toString('base64url'),
      },
      jku: 'http://127.0.0.1:1/keys',
      x5u: 'http://127.0.0.1:1/cert',
    });
    const role = await signToken(SUBSCRIBER_KEY, claims);
    for (const token of [none, own, role, `${none}x`, '..', 'a.b.c.d.e']) {
      const answer = await hub.post('topic=a', {
        headers: [FORM, ['Authorization', `Bearer ${token}`]],
      });
      assert.equal(answer.status, 401);
      assert.equal(answer.body, 'Unauthorized\n');
    }
  });

  it('a form with a million fields, with one endless field, and with nothing but separators', async (test) => {
    const hub = await startHub(test);
    for (const [body, status] of [
      [`${'&'.repeat(1_000_000)}topic=a`, 413],
      [`${'a&'.repeat(500_000)}topic=a`, 413],
      [`topic=${'a'.repeat(1_000_000)}`, 413],
      ['topic=a&'.repeat(1001), 413],
      [`${'%'.repeat(1_000_000)}&topic=a`, 200],
      ['topic=a'.padEnd(1024 * 1024 + 1, '&'), 413],
    ] as const) {
      assert.equal((await hub.post(body)).status, status, body.slice(0, 20));
    }
  });

  it('a query with thousands of matchers, and header fields of tens of kilobytes', async (test) => {
    const hub = await startHub(test);
    const many = await hub.get(`/.well-known/hub?${'match=a&'.repeat(5000)}`);
    assert.equal(many.status, 400);
    const cursor = await hub.subscribe('match=a', {
      headers: [['Last-Event-ID', 'x'.repeat(60_000)]],
    });
    assert.equal(cursor.status, 200);
    assert.equal(cursor.headers['hub-last-event-id'], 'earliest');
    const cookies = await send(`${hub.url}?match=a`, {
      method: 'HEAD',
      headers: [['Cookie', 'a=b; '.repeat(10_000)]],
    });
    assert.equal(cookies.status, 200);
  });
});
