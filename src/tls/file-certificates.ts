import { X509Certificate } from 'node:crypto';
import { readFile } from 'node:fs/promises';
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
