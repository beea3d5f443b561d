// Permission for an on-demand certificate is checked twice: in the handshake, before anything is held or
// stored, and in each order, so that a renewal needs permission too. A reload passes the orders in progress
// to the newest configuration.

import type { OnDemandOptions } from '../../config/config.ts';
import { type Clock, within } from '../../kernel/clock.ts';
import { HubgateError, messageOf } from '../../kernel/error.ts';
import type { Lease } from '../../kernel/lease.ts';
import type { Logger } from '../../kernel/log.ts';
import type { ManagedCertificate } from '../acme/managed-certificate.ts';
import {
  type CertificateAuthority,
  managedCertificates,
  type ManagedCertificates,
} from '../acme/managed-certificates.ts';
import type { SiteCertificates } from '../certificate.ts';

export interface OnDemandCertificatesOptions {
  readonly onDemand: OnDemandOptions;
  readonly authorities: readonly CertificateAuthority[];
  readonly managed: ManagedCertificates;
  readonly clock: Clock;
  readonly log: Logger;
  /** @default 1000 */
  readonly maxHeld?: number;
}

export interface OnDemandCertificates extends SiteCertificates {
  /**
   * Takes over the certificate of a name from another configuration, if the name is allowed; else returns
   * null.
   */
  adopt(name: string): Promise<ManagedCertificate | null>;
  /** Releases all certificates. The orders in progress go to a successor of {@link ManagedCertificates}. */
  close(): Promise<void>;
}

/**
 * Longest time that a handshake waits for its certificate. It is shorter than the limit of the whole
 * handshake.
 */
const HANDSHAKE_WAIT_MS = 8_000;
/** Certificates that one site holds at the same time. The others are only in the storage. */
const MAX_HELD = 1_000;
/** Handshakes of one site that wait at the same time. */
const MAX_WAITING = 1_000;

/**
 * Certificates for names that clients use for a site but that are not in the configuration. A certificate is
 * obtained when a client first asks for it, if the operator's app allows it, while the handshake waits.
 */
export function onDemandCertificates(options: OnDemandCertificatesOptions): OnDemandCertificates {
  const { onDemand, authorities, managed, clock, log, maxHeld = MAX_HELD } = options;
  /** The least recently used entry is the first. */
  const held = new Map<string, Promise<Lease<ManagedCertificate>>>();
  /** The certificates of these leases that have been opened. */
  const values = new Set<ManagedCertificate>();
  let waiting = 0;
  let closed = false;

  const giveBack = async (lease: Promise<Lease<ManagedCertificate>>): Promise<void> => {
    // A lease that failed need not be released.
    await lease.then(
      (one) => {
        values.delete(one.value);
        return one.release();
      },
      () => {},
    );
  };

  const handOver = async (
    name: string,
    lease: Promise<Lease<ManagedCertificate>>,
  ): Promise<void> => {
    const one = await lease.catch(() => null);
    if (one === null || !one.value.isUnderWay) return;
    const adopted = await managed.handover.adopt(name);
    if (adopted === null) log.warn('The order of a certificate on demand was cancelled', { name });
    else if (adopted !== one.value) {
      log.info('A certificate on demand is ordered again with the new configuration', { name });
    }
  };

  const take = async (name: string): Promise<Lease<ManagedCertificate>> => {
    const lease = await managed.acquire(name, authorities, onDemand);
    const { current } = lease.value;
    if (current !== null && current.pair.notAfter > clock.now()) {
      lease.value.begin();
      return lease;
    }
    try {
      if (!(await managed.permissions.allows(name, onDemand))) throw refused(name);
      const wouldOrder = lease.value.isDue && !lease.value.isUnderWay;
      if (wouldOrder && !managed.permissions.mayOrder(onDemand)) {
        log.warn('No certificate on demand: the limit of on_demand_tls is reached', {
          name,
        });
        throw new HubgateError('on-demand-limit', `${name} must wait for its certificate`);
      }
    } catch (error) {
      await lease.release();
      throw error;
    }
    lease.value.begin();
    return lease;
  };

  const hold = (name: string): Promise<Lease<ManagedCertificate>> => {
    const known = held.get(name);
    held.delete(name);
    const lease = known ?? take(name);
    held.set(name, lease);
    if (known === undefined) {
      lease.then(
        ({ value }) => {
          if (held.get(name) === lease) values.add(value);
        },
        (error: unknown) => {
          log.debug('No certificate on demand', { name, error: messageOf(error) });
          if (held.get(name) === lease) held.delete(name);
        },
      );
    }
    for (const [oldest, one] of held) {
      if (held.size <= maxHeld) break;
      held.delete(oldest);
      void giveBack(one);
    }
    return lease;
  };

  return {
    async certificateFor([name = ''], mayWait = true) {
      if (closed || (waiting >= MAX_WAITING && !held.has(name))) {
        throw new HubgateError('on-demand-limit', 'Too many handshakes wait for a certificate');
      }
      if (!held.has(name) && managed.permissions.refuses(name, onDemand)) throw refused(name);
      waiting += 1;
      try {
        const { value } = await within(HANDSHAKE_WAIT_MS, clock, hold(name), pending);
        const fresh = value.current !== null && value.current.pair.notAfter > clock.now();
        if (!fresh && mayWait) await within(HANDSHAKE_WAIT_MS, clock, value.settled(), pending);
        return await managedCertificates(value).certificateFor([name]);
      } finally {
        waiting -= 1;
      }
    },
    async adopt(name) {
      if (closed) return null;
      return hold(name).then(
        ({ value }) => value,
        () => null,
      );
    },
    fallbackFor: async () => null,
    inUse: () => [...values].flatMap((one) => managedCertificates(one).inUse()),
    async close() {
      closed = true;
      const all = [...held];
      held.clear();
      await Promise.all(
        all.map(async ([name, lease]) => {
          await handOver(name, lease);
          await giveBack(lease);
        }),
      );
    },
  };
}

function refused(name: string): HubgateError {
  return new HubgateError('on-demand-refused', `${name} is not allowed to have a certificate`);
}

function pending(): HubgateError {
  return new HubgateError('certificate-pending', 'The certificate takes too long');
}
