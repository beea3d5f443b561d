import assert from 'node:assert/strict';
import { generateKeyPairSync } from 'node:crypto';
import { describe, it } from 'node:test';
import { decodeJwt, decodeProtectedHeader } from 'jose';
import { signingKey } from '../../../src/auth/key.ts';
import { type MintRequest, mintToken } from '../../../src/auth/mint.ts';
import { Secret } from '../../../src/kernel/secret.ts';
import {
  accepted,
  AUDIENCE,
  DETAIL_TYPE,
  fixture,
  issuer,
  ISSUER,
  NOW,
  NOW_MS,
  PUBLISHER_SECRET,
  refused,
  secretKeys,
} from './hub-fixture.ts';

function request(changes: Partial<MintRequest> = {}): MintRequest {
  return {
    key: signingKey(new Secret(PUBLISHER_SECRET), null),
    issuer: ISSUER,
    audience: AUDIENCE,
    issuedAtMs: NOW_MS,
    expiresAtMs: NOW_MS + 3_600_000,
    detailType: DETAIL_TYPE,
    publish: [{ match: 'a', matchType: 'exact' }],
    subscribe: [],
    ...changes,
  };
}

describe('minting tokens (I)', () => {
  it('I-517 I-518 I-519 I-520 fills header and claims', async () => {
    const { token, header, claims } = await mintToken(request());
    assert.deepEqual(decodeProtectedHeader(token), { alg: 'HS256', typ: 'at+jwt' });
    const { sub, jti } = claims;
    for (const id of [sub, jti]) assert.match(JSON.stringify(id), /^"urn:uuid:[0-9a-f-]{36}"$/);
    assert.notEqual(sub, jti);
    const expected = {
      iss: ISSUER,
      aud: AUDIENCE,
      sub,
      client_id: ISSUER,
      iat: NOW,
      exp: NOW + 3600,
      jti,
      authorization_details: [
        { type: DETAIL_TYPE, actions: ['publish'], topics: [{ match: 'a' }] },
      ],
    };
    assert.deepEqual(decodeJwt(token), expected);
    assert.deepEqual(
      { header, claims },
      { header: decodeProtectedHeader(token), claims: expected },
    );
  });
  it('I-517 I-519 sets kid, sub and client_id', async () => {
    const { header, claims } = await mintToken(
      request({ keyId: 'k', subject: 's', clientId: 'c' }),
    );
    assert.deepEqual([header['kid'], claims['sub'], claims['client_id']], ['k', 's', 'c']);
  });
  it('I-521 I-522 I-523 I-524 writes one entry per action, with patterns marked and the payload under subscribe', async () => {
    const { claims } = await mintToken(
      request({
        publish: [
          { match: 'a', matchType: 'exact' },
          { match: '/:b', matchType: 'urlpattern' },
        ],
        subscribe: [{ match: '*', matchType: 'exact' }],
        payload: { a: 1 },
      }),
    );
    assert.deepEqual(claims['authorization_details'], [
      {
        type: DETAIL_TYPE,
        actions: ['publish'],
        topics: [{ match: 'a' }, { match: '/:b', match_type: 'urlpattern' }],
      },
      { type: DETAIL_TYPE, actions: ['subscribe'], topics: [{ match: '*' }], payload: { a: 1 } },
    ]);
  });
  it('I-543 creates tokens that a hub accepts, with every kind of key', async () => {
    const rsa = generateKeyPairSync('rsa', { modulusLength: 2048 });
    const ec = generateKeyPairSync('ec', { namedCurve: 'P-256' });
    const ed = generateKeyPairSync('ed25519');
    for (const [algorithm, { publicKey, privateKey }] of [
      ['RS256', rsa],
      ['ES256', ec],
      ['EdDSA', ed],
      ['Ed25519', ed],
    ] as const) {
      const pem = privateKey.export({ type: 'pkcs8', format: 'pem' }).toString();
      const key = signingKey(new Secret(pem), algorithm);
      const publisher = secretKeys(
        publicKey.export({ type: 'spki', format: 'pem' }).toString(),
        algorithm,
      );
      const hub = fixture({ issuers: [{ ...issuer, publisher }] });
      await accepted(hub, (await mintToken(request({ key }))).token);
    }
  });
  it('I-542 I-544 mints expired tokens and unchecked patterns, which the hub refuses', async () => {
    const expired = await mintToken(request({ expiresAtMs: NOW_MS - 1000 }));
    assert.equal((await refused(fixture(), expired.token)).check, 'exp');
    const pattern = await mintToken(
      request({ publish: [{ match: '{x', matchType: 'urlpattern' }] }),
    );
    assert.match((await refused(fixture(), pattern.token)).check, /topics\[0\]/);
  });
});
