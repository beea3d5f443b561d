import type { KeyObject } from 'node:crypto';

interface Algorithm {
  readonly kind: 'hmac' | 'public';
  /** Verifies with a key written in the configuration, not only with one of a JWK Set. */
  readonly asStaticKey: boolean;
  /** `kty` of a JWK. */
  readonly keyType: 'oct' | 'RSA' | 'EC' | 'OKP';
  /** JWK `crv`, and what Node calls it. */
  readonly curve?: readonly [jwk: string, node: string];
}

const rsa: Algorithm = { kind: 'public', asStaticKey: true, keyType: 'RSA' };
const hmac: Algorithm = { kind: 'hmac', asStaticKey: true, keyType: 'oct' };
const ec = (jwk: string, node: string): Algorithm => ({
  kind: 'public',
  asStaticKey: true,
  keyType: 'EC',
  curve: [jwk, node],
});

/** Every JOSE algorithm that hubgate knows (RFC 7518, RFC 8037). What is not here is refused. */
const ALGORITHMS: ReadonlyMap<string, Algorithm> = new Map([
  ['HS256', hmac],
  ['HS384', hmac],
  ['HS512', hmac],
  ['RS256', rsa],
  ['RS384', rsa],
  ['RS512', rsa],
  ['PS256', { ...rsa, asStaticKey: false }],
  ['PS384', { ...rsa, asStaticKey: false }],
  ['PS512', { ...rsa, asStaticKey: false }],
  ['ES256', ec('P-256', 'prime256v1')],
  ['ES384', ec('P-384', 'secp384r1')],
  ['ES512', ec('P-521', 'secp521r1')],
  ['EdDSA', { ...ec('Ed25519', 'ed25519'), keyType: 'OKP' }],
]);

export const STATIC_ALGORITHMS: readonly string[] = names(({ asStaticKey }) => asStaticKey);
export const SIGNING_ALGORITHMS: readonly string[] = names(() => true);
/** What a JWK Set may verify: a symmetric key has no business in a public document. */
export const JWKS_ALGORITHMS: readonly string[] = names(({ kind }) => kind === 'public');

export function isHmac(algorithm: string): boolean {
  return ALGORITHMS.get(algorithm)?.kind === 'hmac';
}

/** Whether an asymmetric key is of the kind and curve that the algorithm wants. */
export function fitsKeyObject(algorithm: string, key: KeyObject): boolean {
  const known = ALGORITHMS.get(algorithm);
  if (known === undefined || known.kind === 'hmac') return false;
  const type = key.asymmetricKeyType;
  if (known.keyType === 'RSA') return type === 'rsa';
  if (known.keyType === 'OKP') return type === known.curve?.[1];
  return type === 'ec' && key.asymmetricKeyDetails?.namedCurve === known.curve?.[1];
}

/** Whether a JWK of this type and curve can verify the algorithm. */
export function fitsJwk(
  algorithm: string,
  jwk: { readonly kty?: unknown; readonly crv?: unknown },
): boolean {
  const known = ALGORITHMS.get(algorithm);
  return known?.keyType === jwk.kty && (known?.curve === undefined || known.curve[0] === jwk.crv);
}

function names(accepts: (algorithm: Algorithm) => boolean): readonly string[] {
  return [...ALGORITHMS].filter(([, algorithm]) => accepts(algorithm)).map(([name]) => name);
}
