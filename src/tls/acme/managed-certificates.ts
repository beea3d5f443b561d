import { readFile } from 'node:fs/promises';
import type { AcmeOptions, OnDemandOptions } from '../../config/config.ts';
import { HubgateError, messageOf } from '../../kernel/error.ts';
import { type Lease, LeasePool } from '../../kernel/lease.ts';
import { parseUrl } from '../../kernel/parse.ts';
import type { CertificateStore } from '../certificate-store.ts';
import { Permissions } from '../on-demand/permissions.ts';
import { Challenges } from './challenges.ts';
import type { AcmeAccount } from './client.ts';
import {
  ManagedCertificate,
  type ManagedCertificateTools,
  settingsOf,
} from './managed-certificate.ts';
import type { CertificateRequest, IssuanceTools, IssuedCertificate } from './issuance.ts';
import type { NameCheck } from './name-check.ts';
import { Semaphore } from '../../kernel/semaphore.ts';
import type { SiteCertificates } from '../certificate.ts';

export interface ManagedCertificatesOptions extends Omit<IssuanceTools, 'challenges'> {
  readonly store: CertificateStore;
  /** From 0 up to 1. */
  readonly random: () => number;
  /** The check whether a name leads to this gateway; null for no check. */
  readonly nameCheck: NameCheck | null;
}

/** Orders in progress at the same time; the other names wait. */
const MAX_ORDERS = 4;

/**
 * The certificates that this gateway gets from authorities. They outlive a configuration. A certificate that
 * two configurations use is held by both. A certificate that no configuration uses any more is not renewed.
 */
export class ManagedCertificates {
  /** The responses of the listeners to pending challenges. */
  readonly challenges: Challenges;
  /** For names that are not in a configuration. */
  readonly permissions: Permissions;
  /** Passes orders in progress for such names to another configuration. */
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
   * Claims the certificate of a name. A certificate in the storage is available at once. Otherwise it is
   * ordered when `begin` is called on it.
   *
   * @param onDemand settings of the permission check, now and at each renewal
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

/** Settings of the ACME authorities, or the gateway's own authority. */
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
      const message = `The ACME directory ${directory.slice(0, 80)} is not an https URL; correct acme_ca, acme_staging or dir`;
      throw new HubgateError('bad-acme-directory', message);
    }
    const alwaysBind = directories.length === 1;
    return { directory, email, root, externalAccount, challenges, dns, alwaysBind };
  };
  return {
    issuers: directories.map(account),
    // The key of an external account belongs to one authority, which is not the staging directory.
    staging: staging === null ? null : { ...account(staging), alwaysBind: false },
  };
}

async function readRoot(file: string): Promise<string> {
  try {
    return await readFile(file, 'utf8');
  } catch (cause) {
    throw new HubgateError(
      'certificate-unusable',
      `The root certificate ${file} (acme_ca_root or trusted_roots) cannot be read: ${messageOf(cause)}`,
      { cause },
    );
  }
}

/** The certificate of one host, obtained with ACME. It is always the one for its name. */
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

/** An active configuration, which can take over the orders of an older one. */
interface Successor {
  /** Holds the certificate of a name if this configuration still allows the name; else returns null. */
  adopt(name: string): Promise<ManagedCertificate | null>;
}

/** The configurations that can take over the orders in progress of a configuration that is replaced. */
class Handover {
  readonly #all = new Set<Successor>();

  /** Adds a configuration. The returned function removes it. */
  add(successor: Successor): () => void {
    this.#all.add(successor);
    return () => void this.#all.delete(successor);
  }

  /** Asks the newest configuration first. Returns null if none takes the certificate. */
  async adopt(name: string): Promise<ManagedCertificate | null> {
    for (const successor of [...this.#all].reverse()) {
      const adopted = await successor.adopt(name);
      if (adopted !== null) return adopted;
    }
    return null;
  }
}
