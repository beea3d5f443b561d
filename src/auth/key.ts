import { createPrivateKey, createPublicKey, hash, KeyObject } from 'node:crypto';
import type { StaticKeySource } from '../config/config.ts';
import { HubgateError } from '../kernel/error.ts';
import type { Secret } from '../kernel/secret.ts';
import { fitsKeyObject, isHmac, SIGNING_ALGORITHMS, STATIC_ALGORITHMS } from './algorithms.ts';

/** What verifies or signs: bytes of a shared secret, or an asymmetric key. */
export type KeyMaterial = Uint8Array | KeyObject;

/** The part of a token's header that chooses the key. */
export interface KeyHint {
  readonly alg: string;
  readonly kid: string | null;
}

/** Where the keys of one issuer and role come from. */
export interface KeySet {
  /** Equal for equal configurations. A digest of key material: not for printing. */
  readonly identity: string;
  /** Algorithms that a token may name. */
  readonly algorithms: readonly string[];
  /** Grows whenever the keys change. */
  readonly generation: number;
  /** The keys to try; none when no key answers the hint. */
  find(hint: KeyHint): readonly KeyMaterial[] | Promise<readonly KeyMaterial[]>;
}

const PEM = '-----BEGIN ';
const PRIVATE_PEM = /-----BEGIN (?:[A-Z]+ )*PRIVATE KEY-----/;

/**
 * The key of a `jwt` setting: a raw secret, or the PEM of a public key or certificate.
 *
 * @returns null for an empty key, which counts as not configured
 * @throws HubgateError `pem-without-algorithm`, `pem-with-hmac`, `unsupported-algorithm`,
 *   `invalid-key`, `private-key`
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
    find: () => keys,
  };
}

/**
 * The key that a token is signed with: a raw secret, or the PEM of a private key (PKCS#8, PKCS#1 or
 * SEC1).
 *
 * @throws HubgateError `missing-key`, `pem-without-algorithm`, `pem-with-hmac`,
 *   `unsupported-algorithm`, `invalid-key`
 */
export function signingKey(
  key: Secret,
  algorithm: string | null,
): { readonly algorithm: string; readonly material: KeyMaterial } {
  const text = key.reveal();
  if (text === '') throw new HubgateError('missing-key', 'the key is empty');
  const chosen = algorithmFor(text, algorithm, SIGNING_ALGORITHMS);
  const material = isHmac(chosen) ? key.bytes() : privateKey(text, chosen);
  return { algorithm: chosen, material };
}

/** Whether what one key signs can be verified with the other: equal secrets, or a key pair. */
export function isCounterpart(signing: KeyMaterial, verifying: KeyMaterial): boolean {
  if (signing instanceof KeyObject) {
    return verifying instanceof KeyObject && createPublicKey(signing).equals(verifying);
  }
  return !(verifying instanceof KeyObject) && Buffer.compare(signing, verifying) === 0;
}

/** An algorithm is chosen by the operator, never guessed from a key and never taken from a token. */
function algorithmFor(key: string, wanted: string | null, supported: readonly string[]): string {
  const isPem = key.includes(PEM);
  // A variable that is not set arrives as an empty string.
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
      `the algorithm "${algorithm.slice(0, 40)}" is not supported here; use one of ${supported.join(', ')}`,
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
    // The cause may quote the key; it is left out.
    throw new HubgateError('invalid-key', `the PEM does not hold a readable ${kind} key`);
  }
}

function curveOf(key: KeyObject): string {
  const curve = key.asymmetricKeyDetails?.namedCurve;
  return curve === undefined ? '' : ` (${curve})`;
}
