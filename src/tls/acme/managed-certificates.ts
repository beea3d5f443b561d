import { readFile } from 'node:fs/promises';
import type { AcmeOptions } from '../../config/config.ts';
import type { Clock } from '../../kernel/clock.ts';
import { HubgateError, messageOf } from '../../kernel/error.ts';
import { type Lease, LeasePool } from '../../kernel/lease.ts';
import type { Logger } from '../../kernel/log.ts';
import { parseUrl } from '../../kernel/parse-url.ts';
import type { CertificateStore } from '../certificate-store.ts';
import { Challenges } from './challenges.ts';
import type { AcmeAccount } from './client.ts';
import { ManagedCertificate, type ManagedCertificateTools } from './managed-certificate.ts';
import { OrderQueue } from './order-queue.ts';

export interface ManagedCertificatesOptions {
  readonly storage: string;
  readonly store: CertificateStore;
  readonly clock: Clock;
  readonly log: Logger;
  /** From 0 up to 1. */
  readonly random: () => number;
}

/** Orders on their way at once; the other names wait. */
const MAX_ORDERS = 4;

/**
 * The certificates that this gateway gets from authorities. They outlive a configuration: what two
 * of them want is held by both, and what none wants any more is no longer renewed.
 */
export class ManagedCertificates {
  /** What listeners answer while an order is on its way. */
  readonly challenges: Challenges;
  readonly #tools: ManagedCertificateTools;
  readonly #pool = new LeasePool<ManagedCertificate>((certificate) => certificate.close());

  constructor(options: ManagedCertificatesOptions) {
    this.challenges = new Challenges(options.storage, options.clock);
    const queue = new OrderQueue(MAX_ORDERS);
    this.#tools = { ...options, challenges: this.challenges, queue };
  }

  /**
   * Claims the certificate of a name. What the storage has is there at once; the rest is ordered
   * when somebody calls `begin` on it.
   *
   * @throws HubgateError `bad-acme-directory`, or `certificate-unusable` for a root that cannot be read
   */
  async acquire(name: string, options: AcmeOptions): Promise<Lease<ManagedCertificate>> {
    const accounts = await accountsOf(options);
    const key = JSON.stringify([
      name,
      accounts.map(({ externalAccount, ...rest }) => [
        rest,
        externalAccount?.keyId,
        externalAccount?.macKey.reveal(),
      ]),
    ]);
    return this.#pool.acquire(key, () => ManagedCertificate.open({ name, accounts }, this.#tools));
  }
}

async function accountsOf({
  directories,
  email,
  rootFile,
  externalAccount,
}: AcmeOptions): Promise<readonly AcmeAccount[]> {
  const root = rootFile === null ? null : await readRoot(rootFile);
  return directories.map((directory) => {
    if (parseUrl(directory)?.protocol !== 'https:') {
      const message = `The ACME directory ${directory.slice(0, 80)} is no https URL; correct acme_ca`;
      throw new HubgateError('bad-acme-directory', message);
    }
    return { directory, email, root, externalAccount, alwaysBind: directories.length === 1 };
  });
}

async function readRoot(file: string): Promise<string> {
  try {
    return await readFile(file, 'utf8');
  } catch (cause) {
    throw new HubgateError(
      'certificate-unusable',
      `The root certificate ${file} of acme_ca_root cannot be read: ${messageOf(cause)}`,
      { cause },
    );
  }
}
