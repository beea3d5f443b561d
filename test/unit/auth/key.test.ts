import assert from 'node:assert/strict';
import { generateKeyPairSync, type KeyObject } from 'node:crypto';
import { describe, it } from 'node:test';
import { signingKey, staticKeySet } from '../../../src/auth/key.ts';
import { HubgateError } from '../../../src/kernel/error.ts';
import { Secret } from '../../../src/kernel/secret.ts';
import { accepted, claims, fixture, issuer, secretKeys, sign } from './hub-fixture.ts';

const rsa = generateKeyPairSync('rsa', { modulusLength: 2048 });
const p256 = generateKeyPairSync('ec', { namedCurve: 'P-256' });
const p384 = generateKeyPairSync('ec', { namedCurve: 'P-384' });
const p521 = generateKeyPairSync('ec', { namedCurve: 'P-521' });
const ed25519 = generateKeyPairSync('ed25519');

const spki = (key: KeyObject): string => key.export({ type: 'spki', format: 'pem' }).toString();
const pkcs8 = (key: KeyObject): string => key.export({ type: 'pkcs8', format: 'pem' }).toString();

/** Self-signed for the key that belongs to it; made once with openssl, valid until 2126. */
const CERTIFICATE = `-----BEGIN CERTIFICATE-----
MIIBhTCCASugAwIBAgIUZsXK5IHjgXGLxAafDJbK7U8A6HgwCgYIKoZIzj0EAwIw
FzEVMBMGA1UEAwwMaHViZ2F0ZS10ZXN0MCAXDTI2MTEyMDEyMTk0NVoYDzIxMjYx
MDI3MTIxOTQ1WjAXMRUwEwYDVQQDDAxodWJnYXRlLXRlc3QwWTATBgcqhkjOPQIB
BggqhkjOPQMBBwNCAAT8ZJOE9GMuHQwJC/Q5hXivCMLcpXQqpv3v9gxj4PbdJe9a
c8cx2el97LNi3rd+joJsO0VAJXYKs4L3eRqFWnMyo1MwUTAdBgNVHQ4EFgQU22Wm
Y7OpNMfgmACCpGTyR7dSrqUwHwYDVR0jBBgwFoAU22WmY7OpNMfgmACCpGTyR7dS
rqUwDwYDVR0TAQH/BAUwAwEB/zAKBggqhkjOPQQDAgNIADBFAiB20DpfkC63vqSt
VKbUQX/SKk5LQhZD4y7FBcmsV+j2pQIhAPh1z9fs/d+Wn1H6qsqZEEnwGAw7e/Nh
dXb3x/D6Vv07
-----END CERTIFICATE-----`;
const CERTIFIED_KEY = `-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQg5CbsULSqjllO5gJW
Y+Q4BxewjNrX7lMwr+fWGcNY3vGhRANCAAT8ZJOE9GMuHQwJC/Q5hXivCMLcpXQq
pv3v9gxj4PbdJe9ac8cx2el97LNi3rd+joJsO0VAJXYKs4L3eRqFWnMy
-----END PRIVATE KEY-----`;

function fails(code: string, run: () => unknown, secret?: string): void {
  assert.throws(run, (error) => {
    assert.ok(error instanceof HubgateError);
    assert.equal(error.code, code);
    if (secret !== undefined) assert.ok(!`${error.message}${String(error.cause)}`.includes(secret));
    return true;
  });
}

const load = (key: string, algorithm: string | null) => (): unknown =>
  staticKeySet({ kind: 'jwt', key: new Secret(key), algorithm });

describe('static keys that verify (C-249, C-250)', () => {
  const pairs: readonly (readonly [string, { publicKey: KeyObject; privateKey: KeyObject }])[] = [
    ['RS256', rsa],
    ['RS384', rsa],
    ['RS512', rsa],
    ['ES256', p256],
    ['ES384', p384],
    ['ES512', p521],
    ['EdDSA', ed25519],
    ['Ed25519', ed25519],
  ];
  for (const [algorithm, { publicKey, privateKey }] of pairs) {
    it(`C-249 C-250 ${algorithm} with a public key in PEM`, async () => {
      const publisher = secretKeys(`\n  ${spki(publicKey)}`, algorithm);
      const hub = fixture({ issuers: [{ ...issuer, publisher }] });
      await accepted(hub, await sign(claims(), { header: { alg: algorithm }, key: privateKey }));
    });
  }
  for (const algorithm of ['HS256', 'HS384', 'HS512']) {
    it(`C-249 ${algorithm} with a raw secret`, async () => {
      const secret = 's'.repeat(64);
      const hub = fixture({ issuers: [{ ...issuer, publisher: secretKeys(secret, algorithm) }] });
      const key = Buffer.from(secret);
      await accepted(hub, await sign(claims(), { header: { alg: algorithm }, key }));
    });
  }
  it('C-250 ES256 with a certificate in PEM', async () => {
    const publisher = secretKeys(CERTIFICATE, 'ES256');
    const hub = fixture({ issuers: [{ ...issuer, publisher }] });
    const { material } = signingKey(new Secret(CERTIFIED_KEY), 'ES256');
    await accepted(hub, await sign(claims(), { header: { alg: 'ES256' }, key: material }));
  });
  it('H-513 uses HS256 for a raw secret if no algorithm is set', () => {
    assert.deepEqual(secretKeys('secret', '').algorithms, ['HS256']);
  });
});

describe('static keys that cause a load error (H.2)', () => {
  it('H-485 H-487 a PEM without algorithm, or with one from an unset variable', () => {
    fails('pem-without-algorithm', load(spki(rsa.publicKey), null));
    fails('pem-without-algorithm', load(spki(rsa.publicKey), ''));
  });
  it('H-486 a PEM with HMAC, wherever the PEM is in the value', () => {
    fails('pem-with-hmac', load(spki(rsa.publicKey), 'HS256'));
    fails('pem-with-hmac', load(`\n\t ${spki(rsa.publicKey)}`, 'HS512'));
    fails('pem-with-hmac', load(`key: ${spki(rsa.publicKey)}`, 'HS256'));
  });
  for (const algorithm of ['none', 'PS256', 'FOO', 'hs256', 'RSA-OAEP', 'toString']) {
    it(`H-488 C-249 the algorithm ${algorithm}`, () => {
      fails('unsupported-algorithm', load('secret', algorithm));
      fails('unsupported-algorithm', load(spki(rsa.publicKey), algorithm));
    });
  }
  it('H-489 a PEM of the wrong kind or curve, or broken, without quoting it', () => {
    fails('invalid-key', load(spki(rsa.publicKey), 'ES256'));
    fails('invalid-key', load(spki(p256.publicKey), 'RS256'));
    fails('invalid-key', load(spki(p256.publicKey), 'ES384'));
    fails('invalid-key', load(spki(p256.publicKey), 'EdDSA'));
    const broken = '-----BEGIN PUBLIC KEY-----\nVERYSECRET\n-----END PUBLIC KEY-----';
    fails('invalid-key', load(broken, 'RS256'), 'VERYSECRET');
    fails('invalid-key', load('no pem at all', 'RS256'), 'no pem at all');
  });
  it('H-489 an RSA key with which no token can be verified', () => {
    const { publicKey, privateKey } = generateKeyPairSync('rsa', { modulusLength: 1024 });
    fails('invalid-key', load(spki(publicKey), 'RS256'));
    fails('invalid-key', () => signingKey(new Secret(pkcs8(privateKey)), 'RS256'));
  });
  it('H-489 a private key in place of the public one', () => {
    fails('private-key', load(pkcs8(rsa.privateKey), 'RS256'));
  });
  it('H-493 an empty key', () => {
    assert.equal(staticKeySet({ kind: 'jwt', key: new Secret(''), algorithm: 'HS256' }), null);
  });
});

describe('signing keys (I)', () => {
  it('I-533 a raw secret is HS256 unless HS384 or HS512 is chosen', () => {
    assert.equal(signingKey(new Secret('s'), null).algorithm, 'HS256');
    assert.equal(signingKey(new Secret('s'), 'HS512').algorithm, 'HS512');
  });
  it('I-534 a PEM needs an algorithm, which cannot be HMAC', () => {
    fails('pem-without-algorithm', () => signingKey(new Secret(pkcs8(rsa.privateKey)), null));
    fails('pem-with-hmac', () => signingKey(new Secret(pkcs8(rsa.privateKey)), 'HS256'));
  });
  it('I-535 accepts PKCS#8, PKCS#1 and SEC1', () => {
    const pkcs1 = rsa.privateKey.export({ type: 'pkcs1', format: 'pem' }).toString();
    const sec1 = p256.privateKey.export({ type: 'sec1', format: 'pem' }).toString();
    for (const [pem, algorithm] of [
      [pkcs8(rsa.privateKey), 'RS256'],
      [pkcs1, 'PS384'],
      [sec1, 'ES256'],
      [pkcs8(p384.privateKey), 'ES384'],
      [pkcs8(ed25519.privateKey), 'EdDSA'],
    ] as const) {
      assert.equal(signingKey(new Secret(pem), algorithm).algorithm, algorithm);
    }
  });
  it('I-536 refuses public keys, wrong types and wrong curves', () => {
    fails('invalid-key', () => signingKey(new Secret(spki(rsa.publicKey)), 'RS256'));
    fails('invalid-key', () => signingKey(new Secret(pkcs8(rsa.privateKey)), 'ES256'));
    fails('invalid-key', () => signingKey(new Secret(pkcs8(p256.privateKey)), 'ES384'));
    fails('missing-key', () => signingKey(new Secret(''), null));
  });
  it('I-537 refuses the algorithm none and unknown algorithms', () => {
    for (const algorithm of ['none', 'FOO', 'A256GCM']) {
      fails('unsupported-algorithm', () => signingKey(new Secret('s'), algorithm));
    }
  });
});
