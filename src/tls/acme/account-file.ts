import { createHash, generateKeyPair } from 'node:crypto';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { HubgateError } from '../../kernel/error.ts';
import { createPrivate, fileName, readIfPresent, writePrivate } from '../storage.ts';
import { requireUrl } from '../../kernel/parse-url.ts';

/** The fields that identify an account with an authority: two accounts with the same values are the same. */
export interface AccountIdentity {
  /** URL of the directory. */
  readonly directory: string;
  readonly email: string | null;
  /** Id of the external account's key (RFC 8555 §7.3.4). */
  readonly externalKeyId: string | null;
}

export interface AccountKey {
  /** PKCS #8, PEM. */
  readonly key: string;
  /** URL of the account; null until the authority has returned it. */
  readonly url: string | null;
}

/** An account's key and URL, `<storage>/acme/<directory host>/account-<digest>.json`, 0600. */
export class AccountFile {
  readonly #file: string;

  constructor(storage: string, { directory, email, externalKeyId }: AccountIdentity) {
    const digest = createHash('sha256')
      .update(JSON.stringify([directory, email, externalKeyId]))
      .digest('hex');
    const host = fileName([requireUrl(directory).host]);
    this.#file = join(storage, 'acme', host, `account-${digest.slice(0, 16)}.json`);
  }

  /** The existing key, or a new one. If several processes ask at once, all get the same key. */
  async open(): Promise<AccountKey> {
    const present = await this.#read();
    if (present !== null) return present;
    await createPrivate(this.#file, text({ key: await generateKey(), url: null }));
    const made = await this.#read();
    if (made === null) {
      throw new HubgateError('account-unusable', `${this.#file} is not an ACME account; remove it`);
    }
    return made;
  }

  async write(account: AccountKey): Promise<void> {
    await writePrivate(this.#file, text(account));
  }

  async #read(): Promise<AccountKey | null> {
    const written = await readIfPresent(this.#file);
    if (written === null) return null;
    try {
      const value: unknown = JSON.parse(written);
      if (typeof value !== 'object' || value === null) return null;
      const { key, url } = value as Partial<Record<keyof AccountKey, unknown>>;
      if (typeof key !== 'string') return null;
      return { key, url: typeof url === 'string' ? url : null };
    } catch {
      return null;
    }
  }
}

/** A new P-256 key, PKCS #8 in PEM. */
export async function generateKey(): Promise<string> {
  const { privateKey } = await promisify(generateKeyPair)('ec', { namedCurve: 'P-256' });
  return privateKey.export({ type: 'pkcs8', format: 'pem' }).toString();
}

function text(account: AccountKey): string {
  return `${JSON.stringify(account, null, 2)}\n`;
}
