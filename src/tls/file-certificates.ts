import { createPrivateKey, type KeyObject, X509Certificate } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { isIP } from 'node:net';
import { createSecureContext } from 'node:tls';
import { HubgateError, messageOf } from '../kernel/error.ts';
import type { SiteCertificates } from './certificate.ts';
import { certificateNames } from './certificate-store.ts';

/**
 * Reads the certificate that a site names.
 *
 * @throws HubgateError `certificate-unusable` for files that cannot be read or do not fit together
 */
export async function readCertificates(
  certFile: string,
  keyFile: string,
): Promise<SiteCertificates> {
  try {
    const [cert, key] = await Promise.all([readFile(certFile, 'utf8'), readFile(keyFile, 'utf8')]);
    createSecureContext({ cert, key });
    const notAfter = Date.parse(new X509Certificate(cert).validTo);
    const inUse = { names: certificateNames(cert), authority: 'files', notAfter };
    const certificateFor = async () => ({ cert, key });
    return { certificateFor, fallbackFor: certificateFor, inUse: () => [inUse] };
  } catch (cause) {
    throw new HubgateError(
      'certificate-unusable',
      `The certificate ${certFile} with the key ${keyFile} cannot be used: ${messageOf(cause)}`,
      { cause },
    );
  }
}

/** Why a certificate and a key cannot be used. */
export interface PairFault {
  /** Which of the two it is. */
  readonly of: 'certificate' | 'key';
  readonly reason: string;
}

/** What keeps a certificate and a key, both PEM, from being used together; null for nothing. */
export function pairFault(cert: string, key: string): PairFault | null {
  const certificate = attempt(() => new X509Certificate(cert));
  if (certificate === null) return { of: 'certificate', reason: 'it has no certificate in PEM' };
  const privateKey: KeyObject | null = attempt(() => createPrivateKey(key));
  if (privateKey === null) {
    return {
      of: 'key',
      reason: 'it has no private key in PEM that can be read without a password',
    };
  }
  if (!certificate.checkPrivateKey(privateKey)) {
    return { of: 'key', reason: 'it is not the key of the certificate' };
  }
  try {
    createSecureContext({ cert, key });
    return null;
  } catch (thrown) {
    return { of: 'certificate', reason: messageOf(thrown) };
  }
}

/** Whether a certificate, in PEM, is for a host: a name, a wildcard or an address (RFC 9525 §6). */
export function coversHost(cert: string, host: string): boolean {
  const certificate = new X509Certificate(cert);
  if (isIP(host) !== 0) return certificate.checkIP(host) !== undefined;
  // That of a wildcard is good for any name below it.
  const name = host.replace(/^\*\./, 'any-name.');
  return certificate.checkHost(name, { subject: 'never' }) !== undefined;
}

/** null where OpenSSL refuses; its own words would say nothing to an operator. */
function attempt<T>(read: () => T): T | null {
  try {
    return read();
  } catch {
    // Whoever asks says what is missing.
    return null;
  }
}
