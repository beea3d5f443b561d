import { createPrivateKey, type KeyObject, X509Certificate } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { isIP } from 'node:net';
import { createSecureContext } from 'node:tls';
import { HubgateError, messageOf } from '../kernel/error.ts';
import type { SiteCertificates } from './certificate.ts';
import { certificateNames } from './certificate-store.ts';

/**
 * Reads the certificate files of a site.
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

/** The reason why a certificate and a key cannot be used. */
export interface PairFault {
  /** The part that has the fault. */
  readonly of: 'certificate' | 'key';
  readonly reason: string;
}

/** Checks whether a certificate and a key, both PEM, can be used together. Returns null if they can. */
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
  // A certificate for a wildcard is valid for any name below it.
  const name = host.replace(/^\*\./, 'any-name.');
  return certificate.checkHost(name, { subject: 'never' }) !== undefined;
}

/** Returns null if OpenSSL refuses the input. OpenSSL's own message would not help an operator. */
function attempt<T>(read: () => T): T | null {
  try {
    return read();
  } catch {
    // The caller reports which file is missing.
    return null;
  }
}
