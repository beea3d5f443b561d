import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { decodeJwt, decodeProtectedHeader } from 'jose';
import { signToken, type SignTokenOptions } from '../../../src/auth/mint.ts';

const OPTIONS = {
  iss: 'https://example.com',
  aud: 'https://example.com/.well-known/hub',
  key: 'a secret of more than 32 bytes, for the tests',
} as const;

async function claimsOf(options: Partial<SignTokenOptions>): Promise<Record<string, unknown>> {
  return decodeJwt(await signToken({ ...OPTIONS, ...options }));
}

describe('signToken (RFC 9068, RFC 9396)', () => {
  it('grants what the caller asks for, for one hour, with a generated subject', async () => {
    const token = await signToken({
      ...OPTIONS,
      publish: 'https://example.com/books/1',
      subscribe: ['*', { urlpattern: 'https://example.com/users/42/*' }],
      payload: { name: 'Ada' },
    });
    assert.deepEqual(decodeProtectedHeader(token), { alg: 'HS256', typ: 'at+jwt' });
    const { sub, jti, iat = 0, exp, ...claims } = decodeJwt(token);
    assert.equal(exp, iat + 3600);
    assert.match(`${sub} ${jti}`, /^urn:uuid:\S{36} urn:uuid:\S{36}$/);
    const type = 'urn:hub:authorization-detail';
    assert.deepEqual(claims, {
      iss: OPTIONS.iss,
      aud: OPTIONS.aud,
      client_id: OPTIONS.iss,
      authorization_details: [
        { type, actions: ['publish'], topics: [{ match: 'https://example.com/books/1' }] },
        {
          type,
          actions: ['subscribe'],
          topics: [
            { match: '*' },
            { match: 'https://example.com/users/42/*', match_type: 'urlpattern' },
          ],
          payload: { name: 'Ada' },
        },
      ],
    });
  });

  it('accepts seconds or a duration, a subject, a client and the names of another profile', async () => {
    for (const [ttl, seconds] of [
      [90, 90],
      ['10m', 600],
    ] as const) {
      const { iat, exp } = await claimsOf({ subscribe: '*', ttl });
      assert.equal(Number(exp) - Number(iat), seconds);
    }
    const claims = await claimsOf({
      subscribe: '*',
      sub: 'alice',
      clientId: 'shop',
      profile: 'mercure',
    });
    assert.deepEqual([claims['sub'], claims['client_id']], ['alice', 'shop']);
    assert.match(JSON.stringify(claims), /https:\/\/mercure\.rocks\/authorization-detail/);
  });

  it('refuses to create a token that grants nothing, never expires or has no key', async () => {
    await assert.rejects(claimsOf({}), { code: 'token-without-grant' });
    await assert.rejects(claimsOf({ publish: [] }), { code: 'token-without-grant' });
    for (const ttl of [0, -1, Number.NaN, Infinity, '', 'soon', '0'])
      await assert.rejects(claimsOf({ subscribe: '*', ttl }), { code: 'invalid-lifetime' });
    await assert.rejects(claimsOf({ subscribe: '*', key: '' }), { code: 'missing-key' });
  });
});
