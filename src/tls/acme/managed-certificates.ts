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
import type { CertificateRequest } from './issuance.ts';
import type { NameCheck } from './name-check.ts';
import { OrderQueue } from './order-queue.ts';

export interface ManagedCertificatesOptions {
  readonly storage: string;
  readonly store: CertificateStore;
  readonly clock: Clock;
  readonly log: Logger;
  /** From 0 up to 1. */
  readonly random: () => number;
  /** How it is seen whether a name leads here; it is not looked where this is null. */
  readonly nameCheck: NameCheck | null;
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
    const { accounts, staging } = await accountsOf(options);
    const { challenges } = options;
    const key = JSON.stringify([
      name,
      challenges,
      staging?.directory,
      accounts.map(({ externalAccount, ...rest }) => [
        rest,
        externalAccount?.keyId,
        externalAccount?.macKey.reveal(),
      ]),
    ]);
    return this.#pool.acquire(key, () => {
      const request = { name, accounts, staging, challenges };
      return ManagedCertificate.open(request, this.#tools);
    });
  }
}

async function accountsOf({
  directories,
  staging,
  email,
  rootFile,
  externalAccount,
}: AcmeOptions): Promise<Pick<CertificateRequest, 'accounts' | 'staging'>> {
  const root = rootFile === null ? null : await readRoot(rootFile);
  const account = (directory: string): AcmeAccount => {
    if (parseUrl(directory)?.protocol !== 'https:') {
      const message = `The ACME directory ${directory.slice(0, 80)} is no https URL; correct acme_ca`;
      throw new HubgateError('bad-acme-directory', message);
    }
    return { directory, email, root, externalAccount, alwaysBind: directories.length === 1 };
  };
  return {
    accounts: directories.map(account),
    // Keys of accounts are for the authority that they were given for.
    staging: staging === null ? null : { ...account(staging), alwaysBind: false },
  };
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
