import { createHash } from 'node:crypto';
import type { KeyPair } from '../key-pair.ts';

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
  const digest = createHash('sha256').update(keyAuthorization).digest();
  // DER: an OCTET STRING of 32 bytes.
  const extension = Buffer.concat([Buffer.from([0x04, digest.length]), digest]);
  const [notBefore, notAfter] = [now - DAY_MS, now + DAY_MS];
  const { makeCertificate } = await import('../make-certificate.ts');
  const request = { kind: 'challenge', name, extension } as const;
  const { pem, key } = await makeCertificate(request, { notBefore, notAfter });
  return { chain: pem, key, notBefore, notAfter };
}
