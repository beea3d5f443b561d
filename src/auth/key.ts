import { createPrivateKey, createPublicKey, hash, KeyObject } from 'node:crypto';
import type { StaticKeySource } from '../config/config.ts';
import { HubgateError } from '../kernel/error.ts';
import { Secret } from '../kernel/secret.ts';

/** A key that verifies or signs: the bytes of a shared secret, or an asymmetric key. */
export type KeyMaterial = Uint8Array | KeyObject;

/** The members of a token's header that select the key. */
export interface KeyHint {
  readonly alg: string;
  readonly kid: string | null;
}

type FoundKeys = readonly KeyMaterial[] | null;

/** The source of the keys of one issuer and role. */
export interface KeySet {
  /** Equal for equal configurations. A digest of key material: not for printing. */
  readonly identity: string;
  /** Algorithms that a token may use. */
  readonly algorithms: readonly string[];
  /** Increases whenever the keys change. */
  readonly generation: number;
  /** Why the current keys could not be read; null if they could. Further keys may then exist. */
  readonly fault: string | null;
  /** The keys to try; empty if none fits the hint; null if that is not known now. */
  find(hint: KeyHint): FoundKeys | Promise<FoundKeys>;
}

const PEM = '-----BEGIN ';
const PRIVATE_PEM = /-----BEGIN (?:[A-Z]+ )*PRIVATE KEY-----/;

/**
 * The key of a `jwt` setting: a raw secret, or the PEM of a public key or certificate.
 *
 * @returns null for an empty key, which counts as not configured
 * @throws HubgateError `pem-without-algorithm`, `pem-with-hmac`, `unsupported-algorithm`, `invalid-key`,
 * `private-key`
 */
export function staticKeySet(source: StaticKeySource): KeySet | null {
  const text = source.key.reveal();
  if (text === '') return null;
  const algorithm = algorithmFor(text, source.algorithm, STATIC_ALGORITHMS);
  const keys = [isHmac(algorithm) ? source.key.bytes() : publicKey(text, algorithm)];
  return {
    identity: hash('sha256', JSON.stringify(['jwt', algorithm, source.key.isText, text])),
    algorithms: [algorithm],
    generation: 0,
    fault: null,
    find: () => keys,
  };
}

/**
 * The key for signing tokens: a raw secret, or the PEM of a private key (PKCS#8, PKCS#1 or SEC1).
 *
 * @throws HubgateError `missing-key`, `pem-without-algorithm`, `pem-with-hmac`, `unsupported-algorithm`,
 * `invalid-key`
 */
export function signingKey(
  key: Secret,
  algorithm: string | null,
): { readonly algorithm: string; readonly material: KeyMaterial } {
  if (!(key instanceof Secret) || !(algorithm === null || typeof algorithm === 'string')) {
    throw new HubgateError(
      'invalid-argument',
      'signingKey needs a Secret, and an algorithm or null',
    );
  }
  const text = key.reveal();
  if (text === '') throw new HubgateError('missing-key', 'the key is empty');
  const chosen = algorithmFor(text, algorithm, SIGNING_ALGORITHMS);
  const material = isHmac(chosen) ? key.bytes() : privateKey(text, chosen);
  return { algorithm: chosen, material };
}

/** Whether signatures of one key can be verified with the other: equal secrets, or a key pair. */
export function isCounterpart(signing: KeyMaterial, verifying: KeyMaterial): boolean {
  if (signing instanceof KeyObject) {
    return verifying instanceof KeyObject && createPublicKey(signing).equals(verifying);
  }
  return !(verifying instanceof KeyObject) && Buffer.compare(signing, verifying) === 0;
}

/** Longest name of an algorithm that a message repeats. */
const MAX_ALGORITHM = 12;

/** The operator selects the algorithm. It is never guessed from a key and never taken from a token. */
function algorithmFor(key: string, wanted: string | null, supported: readonly string[]): string {
  const isPem = key.includes(PEM);
  // An unset variable arrives as an empty string.
  if (isPem && (wanted === null || wanted === '')) {
    throw new HubgateError(
      'pem-without-algorithm',
      'a PEM key needs its algorithm beside it, for instance RS256 or ES256',
    );
  }
  const algorithm = wanted === null || wanted === '' ? 'HS256' : wanted;
  if (!supported.includes(algorithm)) {
    throw new HubgateError(
      'unsupported-algorithm',
      `${quotedAlgorithm(algorithm)} is not supported here; use one of ${supported.join(', ')}`,
    );
  }
  if (isPem && isHmac(algorithm)) {
    throw new HubgateError(
      'pem-with-hmac',
      `a PEM key with ${algorithm} would make the public key the secret; use the algorithm of the key pair`,
    );
  }
  if (!isPem && !isHmac(algorithm)) {
    throw new HubgateError('invalid-key', `${algorithm} needs a key in PEM format`);
  }
  return algorithm;
}

function publicKey(pem: string, algorithm: string): KeyObject {
  if (PRIVATE_PEM.test(pem)) {
    throw new HubgateError(
      'private-key',
      'this is a private key; the hub needs only the public one (openssl pkey -pubout)',
    );
  }
  return fitting(algorithm, 'public', () => createPublicKey(pem.trim()));
}

function privateKey(pem: string, algorithm: string): KeyObject {
  return fitting(algorithm, 'private', () => createPrivateKey(pem.trim()));
}

function fitting(algorithm: string, kind: string, read: () => KeyObject): KeyObject {
  const key = readOrRefuse(kind, read);
  const short = shortRsaKey(key);
  if (short !== null) throw new HubgateError('invalid-key', `this is ${short}`);
  if (fitsKeyObject(algorithm, key)) return key;
  throw new HubgateError(
    'invalid-key',
    `the PEM holds a key of type ${key.asymmetricKeyType}${curveOf(key)}, which does not fit ${algorithm}`,
  );
}

function readOrRefuse(kind: string, read: () => KeyObject): KeyObject {
  try {
    return read();
  } catch {
    // The cause may contain the key, so it is left out.
    throw new HubgateError('invalid-key', `the PEM does not hold a readable ${kind} key`);
  }
}

/** RFC 7518 §3.3, §3.5; jose uses no shorter one. */
const MIN_RSA_BITS = 2048;

/** Describes an RSA key that is too short for any token; null for every other key. */
export function shortRsaKey(key: KeyMaterial): string | null {
  const bits = key instanceof KeyObject ? key.asymmetricKeyDetails?.modulusLength : undefined;
  if (bits === undefined || bits >= MIN_RSA_BITS) return null;
  return `an RSA key of ${bits} bits, and tokens need at least ${MIN_RSA_BITS} (RFC 7518 §3.3)`;
}

function curveOf(key: KeyObject): string {
  const curve = key.asymmetricKeyDetails?.namedCurve;
  return curve === undefined ? '' : ` (${curve})`;
}

interface Algorithm {
  readonly kind: 'hmac' | 'public';
  /** Whether it can be used with a key in the configuration, not only with one of a JWK Set. */
  readonly asStaticKey: boolean;
  /** `kty` of a JWK. */
  readonly keyType: 'oct' | 'RSA' | 'EC' | 'OKP';
  /** JWK `crv`, and Node's name for it. */
  readonly curve?: readonly [jwk: string, node: string];
}

const rsa: Algorithm = { kind: 'public', asStaticKey: true, keyType: 'RSA' };
const ed25519: Algorithm = {
  kind: 'public',
  asStaticKey: true,
  keyType: 'OKP',
  curve: ['Ed25519', 'ed25519'],
};
const hmac: Algorithm = { kind: 'hmac', asStaticKey: true, keyType: 'oct' };
const ec = (jwk: string, node: string): Algorithm => ({
  kind: 'public',
  asStaticKey: true,
  keyType: 'EC',
  curve: [jwk, node],
});

/** All JOSE algorithms that hubgate supports (RFC 7518, RFC 8037, RFC 9864). Others are refused. */
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
  ['EdDSA', ed25519],
  ['Ed25519', ed25519],
]);

const STATIC_ALGORITHMS: readonly string[] = names(({ asStaticKey }) => asStaticKey);
export const SIGNING_ALGORITHMS: readonly string[] = names(() => true);
/** The algorithms for a JWK Set. A symmetric key must not be in a public document. */
export const JWKS_ALGORITHMS: readonly string[] = names(({ kind }) => kind === 'public');

export function isHmac(algorithm: string): boolean {
  return ALGORITHMS.get(algorithm)?.kind === 'hmac';
}

/** Whether an asymmetric key has the type and curve that the algorithm requires. */
function fitsKeyObject(algorithm: string, key: KeyObject): boolean {
  const known = ALGORITHMS.get(algorithm);
  if (known === undefined || known.kind === 'hmac') return false;
  const type = key.asymmetricKeyType;
  if (known.keyType === 'RSA') return type === 'rsa';
  if (known.keyType === 'OKP') return type === known.curve?.[1];
  return type === 'ec' && key.asymmetricKeyDetails?.namedCurve === known.curve?.[1];
}

/** Whether a JWK with this type and curve can be used with the algorithm. */
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

/** A longer word may be the key, if the two are in the wrong order. */
function quotedAlgorithm(text: string): string {
  return text.length <= MAX_ALGORITHM ? `the algorithm "${text}"` : 'this algorithm';
}
