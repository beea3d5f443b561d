import { X509Certificate } from 'node:crypto';
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { namesIn, readIfPresent, writePrivate } from './storage.ts';

/** A program with its arguments, run without a shell. */
export type CommandLine = readonly [program: string, ...args: string[]];

/** A place with roots that programs of this machine trust. */
export interface TrustStore {
  /** The name that the operator sees. */
  readonly name: string;
  /** Why this process cannot change it; null if it can. */
  readonly obstacle: 'permission' | 'by-hand' | null;
  /** Whether the root is in it; null if that cannot be determined. */
  has(root: TrustedRoot): Promise<boolean | null>;
  install(root: TrustedRoot): readonly CommandLine[];
  remove(root: TrustedRoot): readonly CommandLine[];
}

export interface FoundStores {
  readonly stores: readonly TrustStore[];
  /** Stores that exist but cannot be used, each with the fix. */
  readonly missing: readonly string[];
}

/** A root that this machine is to trust, or to trust no longer. */
export interface TrustedRoot {
  /** PEM. */
  readonly file: string;
  /** `hubgate-local-` and 16 digits of its SHA-256 fingerprint: its name in every store. */
  readonly label: string;
  /** Hexadecimal. */
  readonly serialNumber: string;
}

/**
 * The roots of a storage that have been put into trust stores, `<storage>/pki/trusted/<label>.crt`. Roots
 * that have been replaced since can still be removed from the stores.
 */
export class TrustedRoots {
  readonly #directory: string;

  constructor(storage: string) {
    this.#directory = join(storage, 'pki', 'trusted');
  }

  /** Records a root before it is put into the first store. */
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

  /** Deletes the record of a root that no store contains any more. */
  async delete({ label }: TrustedRoot): Promise<void> {
    await rm(join(this.#directory, `${label}.crt`), { force: true });
  }

  async #names(): Promise<string[]> {
    const names = await namesIn(this.#directory);
    return names.filter((name) => /^hubgate-local-[0-9a-f]{16}\.crt$/.test(name));
  }
}

/** The values by which stores identify a certificate. */
export function trustedRoot(pem: string, file: string): TrustedRoot {
  const { fingerprint256, serialNumber } = new X509Certificate(pem);
  const digits = fingerprint256.replaceAll(':', '').toLowerCase().slice(0, 16);
  return { file, label: `hubgate-local-${digits}`, serialNumber };
}
