import { X509Certificate } from 'node:crypto';
import { join } from 'node:path';
import type { Logger } from '../kernel/log.ts';
import { fileName, namesIn, readIfPresent, readIfUsable, writePrivate } from './storage.ts';
import { coversHost, type KeyPair, readKeyPair } from './certificate.ts';

/** A certificate in the storage. */
export interface StoredCertificate {
  /** The issuer: `local`, or the host of an ACME directory. */
  readonly authority: string;
  readonly file: string;
  /** DNS names and IP addresses of the certificate. */
  readonly names: readonly string[];
  /** Milliseconds since the epoch. */
  readonly notBefore: number;
  readonly notAfter: number;
}

/**
 * The name of the local authority in the storage. Clients that trust this machine accept its certificates, the public
 * does not.
 */
export const LOCAL = 'local';

/**
 * Certificates that the gateway has obtained itself, one file each, key first:
 * `<storage>/certificates/<authority>/<name>.pem`, 0600.
 */
export class CertificateStore {
  readonly #directory: string;
  readonly #log: Logger;

  constructor(storage: string, log: Logger) {
    this.#directory = join(storage, 'certificates');
    this.#log = log;
  }

  /** The certificate for exactly these names; null if there is none, or none that can be used. */
  async read(authority: string, names: readonly string[]): Promise<KeyPair | null> {
    const text = await readIfUsable(this.#file(authority, names), this.#log);
    const pair = text === null ? null : parse(text);
    return pair !== null && isForAll(pair.chain, names) ? pair : null;
  }

  /**
   * Of the certificates that public authorities have issued for exactly these names, the one that expires
   * last; null if none is valid beyond `now`, in milliseconds since the epoch.
   */
  async readOfAny(
    names: readonly string[],
    now: number,
  ): Promise<{ readonly authority: string; readonly pair: KeyPair } | null> {
    let best: { readonly authority: string; readonly pair: KeyPair } | null = null;
    for (const authority of await namesIn(this.#directory)) {
      const pair = authority === LOCAL ? null : await this.read(authority, names);
      if (pair !== null && pair.notAfter > (best?.pair.notAfter ?? now)) best = { authority, pair };
    }
    return best;
  }

  /** Written in one step: a reader sees the old certificate with its key, or the new one with its own. */
  async write(authority: string, names: readonly string[], pair: KeyPair): Promise<void> {
    await writePrivate(this.#file(authority, names), `${pair.key.trimEnd()}\n${pair.chain}`);
  }

  /** All certificates that can be read, by authority and file. */
  async list(): Promise<StoredCertificate[]> {
    const found: StoredCertificate[] = [];
    for (const authority of await namesIn(this.#directory)) {
      for (const name of await namesIn(join(this.#directory, authority))) {
        const file = join(this.#directory, authority, name);
        const text = name.endsWith('.pem') ? await readIfPresent(file) : null;
        const pair = text === null ? null : parse(text);
        if (pair === null) continue;
        const { notBefore, notAfter } = pair;
        found.push({ authority, file, names: certificateNames(pair.chain), notBefore, notAfter });
      }
    }
    return found;
  }

  #file(authority: string, names: readonly string[]): string {
    return join(this.#directory, fileName([authority]), `${fileName(names)}.pem`);
  }
}

/** OpenSSL accepts no wildcard like `*.localhost`, so a name also counts as it is written. */
function isForAll(pem: string, names: readonly string[]): boolean {
  const own = certificateNames(pem);
  return names.every((name) => own.includes(name) || coversHost(pem, name));
}

/** The names of a certificate's subjectAltName (RFC 5280 §4.2.1.6). */
export function certificateNames(pem: string): string[] {
  const { subjectAltName } = new X509Certificate(pem);
  return (subjectAltName ?? '')
    .split(', ')
    .filter((entry) => entry !== '')
    .map((entry) => entry.replace(/^(?:DNS|IP Address):/, ''));
}

/**
 * A file that is damaged, or was not written by hubgate, is treated as absent. Another certificate replaces
 * it.
 */
function parse(text: string): KeyPair | null {
  const certificate = text.indexOf('-----BEGIN CERTIFICATE-----');
  return readKeyPair(text.slice(certificate), text.slice(0, certificate));
}
