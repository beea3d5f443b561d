import { readFile } from 'node:fs/promises';
import type { AcmeOptions, OnDemandOptions } from '../../config/config.ts';
import type { Clock } from '../../kernel/clock.ts';
import { HubgateError, messageOf } from '../../kernel/error.ts';
import { type Lease, LeasePool } from '../../kernel/lease.ts';
import type { Logger } from '../../kernel/log.ts';
import { parseUrl } from '../../kernel/parse-url.ts';
import type { CertificateStore } from '../certificate-store.ts';
import type { LocalAuthority } from '../local-authority.ts';
import { Permissions } from '../on-demand/permissions.ts';
import { Challenges } from './challenges.ts';
import type { AcmeAccount } from './client.ts';
import {
  ManagedCertificate,
  type ManagedCertificateTools,
  settingsOf,
} from './managed-certificate.ts';
import type { CertificateRequest, IssuedCertificate } from './issuance.ts';
import type { NameCheck } from './name-check.ts';
import { Semaphore } from '../../kernel/semaphore.ts';
import type { SiteCertificates } from '../certificate.ts';

export interface ManagedCertificatesOptions {
  readonly storage: string;
  readonly store: CertificateStore;
  readonly localAuthority: Pick<LocalAuthority, 'issue'>;
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
  /** Of names that no configuration has. */
  readonly permissions: Permissions;
  /** Of what a configuration has under way for such names. */
  readonly handover = new Handover();
  readonly #tools: ManagedCertificateTools;
  readonly #pool = new LeasePool<ManagedCertificate>((certificate) => certificate.close());

  constructor(options: ManagedCertificatesOptions) {
    this.challenges = new Challenges(options.storage, options.clock);
    this.permissions = new Permissions(options.clock);
    const queue = new Semaphore(MAX_ORDERS);
    this.#tools = { ...options, challenges: this.challenges, permissions: this.permissions, queue };
  }

  /**
   * Claims the certificate of a name. What the storage has is there at once; the rest is ordered
   * when somebody calls `begin` on it.
   *
   * @param onDemand who is asked whether it may be ordered, now and when it is renewed
   *
   * @throws HubgateError `bad-acme-directory`, or `certificate-unusable` for a root that cannot be read
   */
  async acquire(
    name: string,
    authorities: readonly CertificateAuthority[],
    onDemand: OnDemandOptions | null = null,
  ): Promise<Lease<ManagedCertificate>> {
    const plans = await Promise.all(authorities.map(issuersOf));
    const request: CertificateRequest = {
      name,
      onDemand,
      issuers: plans.flatMap(({ issuers }) => issuers),
      staging: plans.find(({ staging }) => staging !== null)?.staging ?? null,
    };
    return this.#pool.acquire(settingsOf(request), () =>
      ManagedCertificate.open(request, this.#tools),
    );
  }
}

/** Authorities with what they are to be asked with, or the gateway's own. */
export type CertificateAuthority = AcmeOptions | 'local';

async function issuersOf(
  authority: CertificateAuthority,
): Promise<Pick<CertificateRequest, 'issuers' | 'staging'>> {
  if (authority === 'local') return { issuers: ['local'], staging: null };
  const { directories, staging, email, rootFile, externalAccount, dns } = authority;
  const root = rootFile === null ? null : await readRoot(rootFile);
  const challenges = dns === null ? authority.challenges : (['dns-01'] as const);
  const account = (directory: string): AcmeAccount => {
    if (parseUrl(directory)?.protocol !== 'https:') {
      const message = `The ACME directory ${directory.slice(0, 80)} is not an https URL; correct acme_ca`;
      throw new HubgateError('bad-acme-directory', message);
    }
    const alwaysBind = directories.length === 1;
    return { directory, email, root, externalAccount, challenges, dns, alwaysBind };
  };
  return {
    issuers: directories.map(account),
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

/** The certificate of one host, got by ACME: always the one of its name. */
export function managedCertificates(managed: ManagedCertificate): SiteCertificates {
  const presented = ({ pair }: IssuedCertificate) => ({ cert: pair.chain, key: pair.key });
  return {
    certificateFor: async () => presented(managed.require()),
    fallbackFor: async () => (managed.current === null ? null : presented(managed.current)),
    inUse() {
      if (managed.current === null) return [];
      const { authority, pair } = managed.current;
      return [{ names: [managed.name], authority, notAfter: pair.notAfter }];
    },
  };
}

/** A configuration that serves: it takes the orders that an older one has under way. */
interface Successor {
  /** Holds the certificate of a name, if the name is still one of its own and allowed; else null. */
  adopt(name: string): Promise<ManagedCertificate | null>;
}

/** Those that may take over what a configuration that goes has under way. */
class Handover {
  readonly #all = new Set<Successor>();

  /** From now on it is asked; the returned function ends that. */
  add(successor: Successor): () => void {
    this.#all.add(successor);
    return () => void this.#all.delete(successor);
  }

  /** Asks the newest first; null where none takes it. */
  async adopt(name: string): Promise<ManagedCertificate | null> {
    for (const successor of [...this.#all].reverse()) {
      const adopted = await successor.adopt(name);
      if (adopted !== null) return adopted;
    }
    return null;
  }
}
