import { X509Certificate } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { codeOf, messageOf } from '../kernel/error.ts';
import { certificateNames, CertificateStore } from './certificate-store.ts';

/** A certificate in the listing for the operator. */
export interface ListedCertificate {
  /** DNS names and IP addresses; for an authority, its common name. */
  readonly names: readonly string[];
  /** `files`, `local`, or the host of an ACME directory. */
  readonly authority: string;
  /** Milliseconds since the epoch; null for a file that cannot be read. */
  readonly notAfter: number | null;
  readonly file: string;
  /** The reason why it cannot be read; null if it can. */
  readonly problem: string | null;
}

/**
 * The certificates that the gateway has obtained itself, with the root and the intermediate of its own
 * authority.
 */
export async function certificatesInStorage(storage: string): Promise<ListedCertificate[]> {
  const own = await Promise.all(
    ['root', 'intermediate'].map((name) =>
      readListed(join(storage, 'pki', 'local', `${name}.crt`), 'local'),
    ),
  );
  const stored = await new CertificateStore(storage).list();
  return [
    // The authority is only created when a site needs it.
    ...own.filter(({ problem }) => problem !== ABSENT),
    ...stored.map(({ names, authority, notAfter, file }) => ({
      names,
      authority,
      notAfter,
      file,
      problem: null,
    })),
  ];
}

const ABSENT = 'the file does not exist';

/** Reads the first certificate of a PEM file. */
export async function readListed(file: string, authority: string): Promise<ListedCertificate> {
  try {
    const pem = await readFile(file, 'utf8');
    const { validTo, subject } = new X509Certificate(pem);
    const names = certificateNames(pem);
    const commonName = /^CN=(.*)$/m.exec(subject)?.[1];
    return {
      names: names.length > 0 || commonName === undefined ? names : [commonName],
      authority,
      notAfter: Date.parse(validTo),
      file,
      problem: null,
    };
  } catch (error) {
    const problem = codeOf(error) === 'ENOENT' ? ABSENT : messageOf(error);
    return { names: [], authority, notAfter: null, file, problem };
  }
}
