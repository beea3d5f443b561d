import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { findIssuer, type TrustedIssuer } from '../../../src/auth/issuer.ts';
import { parseToken } from '../../../src/auth/unverified-token.ts';

const declared = (id: string | null): TrustedIssuer => ({ id, publisher: null, subscriber: null });
const OWN: TrustedIssuer = { ...declared('urn:hubgate:playground'), own: true };

function issuerOf(
  issuers: readonly TrustedIssuer[],
  claims: object,
  relaxed: boolean,
): string | null | undefined {
  const part = (value: object): string => Buffer.from(JSON.stringify(value)).toString('base64url');
  const token = parseToken(`${part({ alg: 'HS256' })}.${part(claims)}.c2ln`);
  const { issuer, check } = findIssuer(issuers, token, relaxed);
  assert.equal(check.passed, issuer !== null);
  return issuer === null ? undefined : issuer.id;
}

describe('the issuer of a token', () => {
  const A = declared('https://a.example');
  const B = declared('https://b.example');

  it('is the one that the token names, byte for byte', () => {
    assert.equal(issuerOf([A, B], { iss: 'https://b.example' }, false), B.id);
    assert.equal(issuerOf([A, B], { iss: 'https://b.example/' }, false), undefined);
    assert.equal(issuerOf([A], {}, false), undefined);
  });

  it('can be missing if the hub reads 0.x tokens and has only one issuer', () => {
    assert.equal(issuerOf([A], {}, true), A.id);
    assert.equal(issuerOf([A], { iss: 'nobody' }, true), A.id);
    assert.equal(issuerOf([A, B], {}, true), undefined);
    assert.equal(issuerOf([A, B, declared(null)], {}, true), null);
    assert.equal(issuerOf([A], { iss: 7 }, true), undefined);
  });

  it('is never the gateway’s own unless the token names it; that one does not count as a second issuer', () => {
    assert.equal(issuerOf([A, OWN], {}, true), A.id);
    assert.equal(issuerOf([OWN], {}, true), undefined);
    assert.equal(issuerOf([A, OWN], { iss: OWN.id }, true), OWN.id);
  });
});
