import assert from 'node:assert/strict';
import { createHmac, generateKeyPairSync } from 'node:crypto';
import { describe, it } from 'node:test';
import { CompactEncrypt } from 'jose';
import { inspectToken } from '../../../src/auth/inspect.ts';
import { MatcherCache } from '../../../src/hub/matcher.ts';
import { parseTopic } from '../../../src/hub/topic.ts';
import {
  accepted,
  AUDIENCE,
  claims,
  detail,
  fixture,
  issuer,
  ISSUER,
  NOW,
  NOW_MS,
  PUBLISH_ALL,
  PUBLISHER_SECRET,
  refused,
  secretKeys,
  sign,
  SUBSCRIBER_SECRET,
} from './hub-fixture.ts';
import { mayPublish } from '../../support/without-pauses.ts';

const encode = (text: string): string => Buffer.from(text).toString('base64url');

/** A token with exactly these texts, signed with the publisher's secret. */
function signText(header: string, payload: string | Buffer): string {
  const signed = `${encode(header)}.${Buffer.from(payload).toString('base64url')}`;
  const signature = createHmac('sha256', PUBLISHER_SECRET).update(signed).digest('base64url');
  return `${signed}.${signature}`;
}

const HEADER = '{"alg":"HS256","typ":"at+jwt"}';

describe('a valid token (C.2–C.5)', () => {
  it('C-237 C-242 C-251 is accepted with its grants, expiry, issuer and id', async () => {
    const token = await accepted(fixture(), await sign());
    assert.equal(token.issuer, ISSUER);
    assert.equal(token.tokenId, 'urn:token:1');
    assert.equal(token.expiresAtMs, NOW_MS + 60_000);
    assert.ok(mayPublish(token.grants, [parseTopic('urn:x', AUDIENCE)]));
  });

  it('may have null for sub, iat and nbf, as if they were absent', async () => {
    const extra = { sub: null, iat: null, nbf: null };
    assert.equal((await accepted(fixture(), await sign(claims(extra)))).issuer, ISSUER);
  });

  it('C-262 C-267 needs no sub, jti, iat or client_id, and may carry unknown claims', async () => {
    const extra = { sub: undefined, jti: undefined, iat: NOW + 999, client_id: 7, foo: [1] };
    const token = await accepted(fixture(), await sign(claims(extra)));
    assert.equal(token.tokenId, null);
  });

  it('C-254 is valid for its role only', async () => {
    const hub = fixture();
    const token = await sign(claims(), { key: Buffer.from(SUBSCRIBER_SECRET) });
    await accepted(hub, token, 'subscriber');
    assert.equal((await refused(hub, token)).check, 'signature');
    const publisher = await sign();
    assert.equal((await refused(hub, publisher, { role: 'subscriber' })).check, 'signature');
  });
});

describe('size and shape (C.2)', () => {
  it('C-237 accepts 65536 bytes and refuses 65537', async () => {
    const hub = fixture();
    const bare = (await sign(claims({ pad: '' }))).length;
    const near = Math.floor(((65_536 - bare) * 3) / 4);
    const sizes = new Map<number, string>();
    for (let pad = near - 8; pad <= near + 8; pad += 1) {
      const token = await sign(claims({ pad: 'x'.repeat(pad) }));
      sizes.set(token.length, token);
    }
    const fits = sizes.get(65_536) ?? sizes.get(65_535);
    const exceeds = sizes.get(65_537) ?? sizes.get(65_538);
    assert.ok(fits !== undefined && exceeds !== undefined, [...sizes.keys()].join());
    await accepted(hub, fits);
    assert.equal((await refused(hub, exceeds)).expected, 'at most 65536 bytes');
  });

  for (const [name, token] of [
    ['an empty string', ''],
    ['one part', 'abc'],
    ['two parts', 'abc.def'],
    ['four parts', 'a.b.c.d'],
    ['padding', `${encode(HEADER)}=.${encode('{}')}.AAAA`],
    ['a header that is not JSON', `${encode('{')}.${encode('{}')}.AAAA`],
    ['a header that is an array', `${encode('[]')}.${encode('{}')}.AAAA`],
    ['other characters', 'é.b.c'],
  ] as const) {
    it(`C-238 refuses ${name}`, async () => {
      assert.equal((await refused(fixture(), token)).check, 'shape');
    });
  }

  it('C-239 refuses an encrypted token', async () => {
    const key = Buffer.alloc(32, 1);
    const jwe = await new CompactEncrypt(Buffer.from('{}'))
      .setProtectedHeader({ alg: 'dir', enc: 'A256GCM' })
      .encrypt(key);
    assert.match((await refused(fixture(), jwe)).found, /parts/);
  });

  it('C-241 refuses an unknown critical header', async () => {
    const header = '{"alg":"HS256","typ":"at+jwt","crit":["x"],"x":1}';
    const token = signText(header, JSON.stringify(claims()));
    assert.equal((await refused(fixture(), token)).check, 'crit');
  });

  for (const payload of ['[]', '"x"', '1', 'null', '']) {
    it(`C-264 refuses signed claims that are ${payload === '' ? 'empty' : payload}`, async () => {
      assert.equal((await refused(fixture(), signText(HEADER, payload))).check, 'shape');
    });
  }

  const body = JSON.stringify(claims()).slice(1);
  for (const [name, payload] of [
    ['a claim twice', `{"exp":1,${body}`],
    ['a claim twice, one of them escaped', `{"\\u0065xp":1,${body}`],
    ['a member twice, deep inside', `{"a":[{"b":{"c":1,"c":2}}],${body}`],
    ['a number beyond a double', `{"a":1e999,${body}`],
    ['nesting beyond 64 levels', `{"a":${'['.repeat(70)}${']'.repeat(70)},${body}`],
  ] as const) {
    it(`C-265 refuses signed claims with ${name}`, async () => {
      assert.equal((await refused(fixture(), signText(HEADER, payload))).check, 'shape');
    });
  }

  it('C-265 refuses claims that are not UTF-8', async () => {
    const bytes = Buffer.concat([
      Buffer.from('{"a":"'),
      Buffer.from([0xff]),
      Buffer.from(`",${body}`),
    ]);
    assert.equal((await refused(fixture(), signText(HEADER, bytes))).check, 'shape');
  });

  it('C-265 accepts the same name in two objects, and strings that look like JSON', async () => {
    const payload = `{"a":{"b":1},"c":{"b":1},"d":"{\\"b\\":1,\\"b\\":2}",${body}`;
    await accepted(fixture(), signText(HEADER, payload));
  });
});

describe('header checks (C.3)', () => {
  for (const typ of ['at+jwt', 'AT+JWT', 'application/at+jwt', 'Application/AT+JWT']) {
    it(`C-242 accepts typ ${typ}`, async () => {
      await accepted(fixture(), await sign(claims(), { header: { typ } }));
    });
  }
  for (const typ of [undefined, 'JWT', 'jwt', 'id_token+jwt', 7, 'application/jwt']) {
    it(`C-243 refuses typ ${String(typ)}`, async () => {
      const header = JSON.stringify({ alg: 'HS256', typ });
      const token = signText(header, JSON.stringify(claims()));
      assert.equal((await refused(fixture(), token)).check, 'typ');
    });
  }
  for (const alg of ['none', 'None', 'NONE', 'nOnE']) {
    it(`C-244 rejects alg ${alg}, with or without a signature`, async () => {
      const payload = JSON.stringify(claims());
      const signed = signText(JSON.stringify({ alg, typ: 'at+jwt' }), payload);
      assert.equal((await refused(fixture(), signed)).check, 'alg');
      const bare = signed.slice(0, signed.lastIndexOf('.') + 1);
      assert.equal((await refused(fixture(), bare)).check, 'shape');
    });
  }
  it('C-245 refuses another algorithm of the same family', async () => {
    const token = await sign(claims(), { header: { alg: 'HS512' } });
    assert.deepEqual((await refused(fixture(), token)).expected, 'HS256');
  });
  it('C-246 refuses an HMAC made with the bytes of the public key', async () => {
    const { publicKey, privateKey } = generateKeyPairSync('rsa', { modulusLength: 2048 });
    const pem = publicKey.export({ type: 'spki', format: 'pem' }).toString();
    const hub = fixture({ issuers: [{ ...issuer, publisher: secretKeys(pem, 'RS256') }] });
    await accepted(hub, await sign(claims(), { header: { alg: 'RS256' }, key: privateKey }));
    const forged = await sign(claims(), { key: Buffer.from(pem) });
    assert.equal((await refused(hub, forged)).check, 'alg');
  });
  it('C-247 never uses a key from the token', async () => {
    const { publicKey, privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
    const pem = generateKeyPairSync('ec', { namedCurve: 'P-256' });
    const trusted = pem.publicKey.export({ type: 'spki', format: 'pem' }).toString();
    const hub = fixture({ issuers: [{ ...issuer, publisher: secretKeys(trusted, 'ES256') }] });
    const jwk = publicKey.export({ format: 'jwk' });
    const header = { alg: 'ES256', jwk, jku: 'https://evil.example/jwks' };
    assert.equal(
      (await refused(hub, await sign(claims(), { header, key: privateKey }))).check,
      'signature',
    );
    await accepted(hub, await sign(claims(), { header, key: pem.privateKey }));
  });
  it('C-248 ignores kid with a static key', async () => {
    await accepted(fixture(), await sign(claims(), { header: { kid: 'any' } }));
  });
});

describe('claim checks (C.4, C.5)', () => {
  for (const iss of [
    undefined,
    'https://other.example',
    `${ISSUER}/`,
    ISSUER.toUpperCase(),
    7,
    '',
  ]) {
    it(`C-251 refuses iss ${String(iss)}`, async () => {
      assert.equal((await refused(fixture(), await sign(claims({ iss })))).check, 'iss');
    });
  }
  it('C-252 never verifies a token with the key of another issuer', async () => {
    const other = {
      id: 'https://b.example',
      publisher: secretKeys('the secret of the issuer called b'),
      subscriber: null,
    };
    const hub = fixture({ issuers: [issuer, other] });
    const token = await sign(claims(), { key: Buffer.from('the secret of the issuer called b') });
    assert.equal((await refused(hub, token)).check, 'signature');
  });
  it('C-253 refuses tokens of an issuer that has no key for the role', async () => {
    const hub = fixture({ issuers: [{ ...issuer, publisher: null }] });
    assert.equal((await refused(hub, await sign())).check, 'role');
    assert.deepEqual(hub.verifier.roles, { publisher: false, subscriber: true });
  });
  it('C-255 accepts an audience that is one of several', async () => {
    await accepted(fixture(), await sign(claims({ aud: ['https://a.example', AUDIENCE] })));
  });
  for (const aud of [
    undefined,
    null,
    [],
    7,
    [AUDIENCE, 7],
    'https://other.example/.well-known/hub',
    'https://hub.example:8443/.well-known/hub',
    'https://hub.example',
    `${AUDIENCE}/`,
    AUDIENCE.toUpperCase(),
    AUDIENCE.replace('https', 'http'),
  ]) {
    it(`C-256 refuses aud ${JSON.stringify(aud)}`, async () => {
      assert.equal((await refused(fixture(), await sign(claims({ aud })))).check, 'aud');
    });
  }
  it('C-271 refuses every token when the identity of the hub is unknown', async () => {
    const token = await sign(claims({ aud: '' }));
    assert.equal((await refused(fixture(), token, { audience: '' })).check, 'aud');
  });
  for (const exp of [undefined, null, NOW, NOW - 1, String(NOW + 60), {}, []]) {
    it(`C-257 C-258 C-261 refuses exp ${JSON.stringify(exp)}`, async () => {
      const token = signText(HEADER, JSON.stringify(claims({ exp })));
      assert.equal((await refused(fixture(), token)).check, 'exp');
    });
  }
  it('C-259 C-260 applies nbf without leeway, and accepts fractions', async () => {
    const hub = fixture();
    const token = await sign(claims({ nbf: NOW + 1.5, exp: NOW + 9.5 }));
    assert.equal((await refused(hub, token)).check, 'nbf');
    hub.clock.advance(1500);
    assert.equal((await accepted(hub, token)).expiresAtMs, NOW_MS + 9500);
  });
  for (const wrong of [
    { nbf: 'x' },
    { nbf: {} },
    { iat: '1' },
    { iat: {} },
    { sub: 7 },
    { jti: [] },
  ]) {
    it(`C-261 C-263 refuses ${JSON.stringify(wrong)}`, async () => {
      await refused(fixture(), signText(HEADER, JSON.stringify(claims(wrong))));
    });
  }
  it('C-266 reads claim names case-sensitively', async () => {
    const renamed = { authorization_details: undefined, AUTHORIZATION_DETAILS: [PUBLISH_ALL] };
    const token = await accepted(fixture(), await sign(claims(renamed)));
    assert.deepEqual(token.grants, { publish: [], subscribe: [] });
    assert.equal(
      (await refused(fixture(), await sign(claims({ exp: undefined, EXP: NOW + 60 })))).check,
      'exp',
    );
  });
});

describe('the cache of verified tokens', () => {
  it('returns a cached token without a promise', async () => {
    const { verifier } = fixture();
    const token = await sign();
    const first = await verifier.verify(token, 'publisher', AUDIENCE);
    assert.equal(verifier.verify(token, 'publisher', AUDIENCE), first);
  });
  it('forgets old tokens when the patterns of new ones need the memory', async () => {
    const { verifier } = fixture();
    const groups = [1, 2, 3, 4, 5].map((at) => `:x${at}([a-z]{1,90}x)`).join('/');
    const topics = Array.from({ length: 100 }, (_, at) => ({
      match: `/${at}/${groups}`,
      match_type: 'urlpattern',
    }));
    const signed = (jti: string) =>
      sign(claims({ jti, authorization_details: [detail('publish', ...topics)] }));
    // About 1.4 MB each.
    const tokens = await Promise.all(Array.from({ length: 30 }, (_, at) => signed(String(at))));
    for (const token of tokens) await verifier.verify(token, 'publisher', AUDIENCE);
    const isKnown = (token: string) =>
      !(verifier.verify(token, 'publisher', AUDIENCE) instanceof Promise);
    assert.ok(isKnown(tokens.at(-1) ?? ''), 'the newest');
    assert.ok(!isKnown(tokens[0] ?? ''), 'the oldest');
  });
  it('counts the memory of a token once, even if it is verified several times at once', async () => {
    const { verifier } = fixture({ cache: new MatcherCache(1_000) });
    // 100 times the same pattern, which is compiled once but counts for each: 4.6 MB of the 32 MiB for all tokens.
    const topic = { match: '/(a{990}b{990}c{990}d{990})', match_type: 'urlpattern' };
    const topics = Array.from({ length: 100 }, () => topic);
    const token = await sign(claims({ authorization_details: [detail('publish', ...topics)] }));
    const verdicts = Array.from({ length: 10 }, () =>
      verifier.verify(token, 'publisher', AUDIENCE),
    );
    assert.ok(verdicts.every((verdict) => verdict instanceof Promise));
    await Promise.all(verdicts);
    assert.ok(!(verifier.verify(token, 'publisher', AUDIENCE) instanceof Promise));
  });
  it('C-258 drops a token when it expires', async () => {
    const hub = fixture();
    const token = await sign();
    await accepted(hub, token);
    hub.clock.advance(60_000);
    assert.equal((await refused(hub, token)).check, 'exp');
  });
  it('C-254 C-268 keeps roles and audiences apart', async () => {
    const both = {
      id: ISSUER,
      publisher: secretKeys(PUBLISHER_SECRET),
      subscriber: secretKeys(PUBLISHER_SECRET),
    };
    const hub = fixture({ issuers: [both] });
    const token = await sign();
    const publisher = await accepted(hub, token);
    const subscriber = await accepted(hub, token, 'subscriber');
    assert.notEqual(publisher.issuerKey, subscriber.issuerKey);
    assert.equal(
      (await refused(hub, token, { audience: 'https://other.example/hub' })).check,
      'aud',
    );
  });
  it('verifies again after the keys have changed', async () => {
    let generation = 1;
    let keys: readonly Uint8Array[] = [Buffer.from(PUBLISHER_SECRET)];
    const rotating = {
      identity: 'x',
      algorithms: ['HS256'],
      fault: null,
      get generation() {
        return generation;
      },
      find: () => keys,
    };
    const hub = fixture({ issuers: [{ ...issuer, publisher: rotating }] });
    const [token, other] = [await sign(), await sign(claims({ jti: 'other' }))];
    await accepted(hub, token);
    const underWay = accepted(hub, other);
    keys = [Buffer.from('another secret of more than 32 bytes')];
    generation += 1;
    assert.equal((await refused(hub, token)).check, 'signature');
    await underWay;
    assert.equal((await refused(hub, other)).check, 'signature', 'checked with the removed key');
  });
  it('L-39 vouches for a token as long as its issuer and key are unchanged', async () => {
    const { issuerKey } = await accepted(fixture(), await sign());
    assert.ok(fixture().verifier.issuerKeys.has(issuerKey));
    const changed = { ...issuer, publisher: secretKeys('another secret of more than 32 bytes') };
    assert.ok(!fixture({ issuers: [changed] }).verifier.issuerKeys.has(issuerKey));
    const renamed = { ...issuer, id: 'https://b.example' };
    assert.ok(!fixture({ issuers: [renamed] }).verifier.issuerKeys.has(issuerKey));
  });
});

describe('0.x tokens without the build option (J)', () => {
  it('J-545 stay invalid even if the hub asks for compatibility', async () => {
    const hub = fixture({ legacyClaim: 'hub' });
    assert.equal(hub.verifier.acceptsLegacy, false);
    const old = { hub: { publish: [{ match: '*' }] }, authorization_details: undefined };
    const token = await accepted(hub, await sign(claims(old)));
    assert.deepEqual(token.grants.publish, []);
    const bare = await sign({ hub: { publish: [{ match: '*' }] } }, { header: { typ: 'JWT' } });
    await refused(hub, bare);
    // The operator is told what it takes, not what is wrong with a token of another kind.
    const checks = await inspectToken(bare, hub.options, {
      ...{ action: 'publish', audience: AUDIENCE, topic: null },
    });
    assert.deepEqual(
      checks.filter(({ passed }) => !passed).map(({ check, fix }) => [check, fix]),
      [['hub', 'start hubgate with NODE_OPTIONS=--conditions=deprecated_claim']],
    );
  });
});

describe('grants do not extend to other actions (D)', () => {
  it('D-322 D-337 a subscribe entry does not allow publishing, a publish entry does not allow reading', async () => {
    const hub = fixture();
    const reader = await sign(
      claims({ authorization_details: [detail('subscribe', { match: '*' })] }),
    );
    assert.deepEqual((await accepted(hub, reader)).grants.publish, []);
    assert.deepEqual((await accepted(hub, await sign())).grants.subscribe, []);
  });
});
