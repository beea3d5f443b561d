// Decorator metadata that @peculiar/x509 reads while it loads: this import must stay first.
import 'reflect-metadata';
import { createHash, webcrypto } from 'node:crypto';
import { isIP } from 'node:net';
import {
  Extension,
  PemConverter,
  SubjectAlternativeNameExtension,
  X509CertificateGenerator,
} from '@peculiar/x509';
import type { KeyPair } from '../key-pair.ts';

const ALGORITHM = { name: 'ECDSA', namedCurve: 'P-256', hash: 'SHA-256' };
/** id-pe-acmeIdentifier (RFC 8737 §6.1). */
const ACME_IDENTIFIER = '1.3.6.1.5.5.7.1.31';
const DAY_MS = 24 * 60 * 60 * 1000;

/**
 * The self-signed certificate that answers a TLS-ALPN-01 challenge (RFC 8737 §3): for exactly one
 * name or address, with the digest of the key authorization in a critical extension.
 */
export async function challengeCertificate(
  name: string,
  keyAuthorization: string,
  now: number,
): Promise<KeyPair> {
  const keys = await webcrypto.subtle.generateKey(ALGORITHM, true, ['sign', 'verify']);
  const digest = createHash('sha256').update(keyAuthorization).digest();
  // DER: an OCTET STRING of 32 bytes.
  const value = Buffer.concat([Buffer.from([0x04, digest.length]), digest]);
  const [notBefore, notAfter] = [now - DAY_MS, now + DAY_MS];
  const certificate = await X509CertificateGenerator.createSelfSigned({
    keys,
    name: 'CN=ACME challenge',
    notBefore: new Date(notBefore),
    notAfter: new Date(notAfter),
    signingAlgorithm: ALGORITHM,
    extensions: [
      new SubjectAlternativeNameExtension([{ type: isIP(name) === 0 ? 'dns' : 'ip', value: name }]),
      new Extension(ACME_IDENTIFIER, true, value),
    ],
  });
  const key = await webcrypto.subtle.exportKey('pkcs8', keys.privateKey);
  return {
    chain: `${certificate.toString('pem')}\n`,
    key: `${PemConverter.encode(key, 'PRIVATE KEY')}\n`,
    notBefore,
    notAfter,
  };
}
