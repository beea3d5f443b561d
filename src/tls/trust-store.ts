import { X509Certificate } from 'node:crypto';
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { namesIn, readIfPresent, writePrivate } from './storage.ts';

/** A program with its arguments; no shell reads it. */
export type CommandLine = readonly [program: string, ...args: string[]];

/** A place where roots are kept that programs of this machine trust. */
export interface TrustStore {
  /** As it is named to the operator. */
  readonly name: string;
  /** Why this process cannot change it; null when it can. */
  readonly obstacle: 'permission' | 'by-hand' | null;
  /** null where that cannot be found out. */
  has(root: TrustedRoot): Promise<boolean | null>;
  install(root: TrustedRoot): readonly CommandLine[];
  remove(root: TrustedRoot): readonly CommandLine[];
}

export interface FoundStores {
  readonly stores: readonly TrustStore[];
  /** Stores that are there and cannot be used, each with the fix. */
  readonly missing: readonly string[];
}

/** A root that this machine is to trust, or not any more. */
export interface TrustedRoot {
  /** PEM. */
  readonly file: string;
  /** `hubgate-local-` and 16 digits of its SHA-256 fingerprint: its name in every store. */
  readonly label: string;
  /** Hexadecimal. */
  readonly serialNumber: string;
}

/**
 * The roots of a storage that have been put into trust stores, `<storage>/pki/trusted/<label>.crt`:
 * what has been replaced since can still be taken out of them.
 */
export class TrustedRoots {
  readonly #directory: string;

  constructor(storage: string) {
    this.#directory = join(storage, 'pki', 'trusted');
  }

  /** Remembers a root before the first store has it. */
  async add(pem: string): Promise<void> {
    const { label } = trustedRoot(pem, '');
    await writePrivate(join(this.#directory, `${label}.crt`), pem);
  }

  async list(): Promise<TrustedRoot[]> {
    const roots: TrustedRoot[] = [];
    for (const name of await this.#names()) {
      const file = join(this.#directory, name);
      const pem = await readIfPresent(file);
      if (pem !== null) roots.push(trustedRoot(pem, file));
    }
    return roots;
  }

  /** Forgets a root that no store has any more. */
  async delete({ label }: TrustedRoot): Promise<void> {
    await rm(join(this.#directory, `${label}.crt`), { force: true });
  }

  async #names(): Promise<string[]> {
    const names = await namesIn(this.#directory);
    return names.filter((name) => /^hubgate-local-[0-9a-f]{16}\.crt$/.test(name));
  }
}

/** What stores know a certificate by. */
export function trustedRoot(pem: string, file: string): TrustedRoot {
  const { fingerprint256, serialNumber } = new X509Certificate(pem);
  const digits = fingerprint256.replaceAll(':', '').toLowerCase().slice(0, 16);
  return { file, label: `hubgate-local-${digits}`, serialNumber };
}
