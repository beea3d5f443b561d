// Clients that send no server name, because they connect to an IP address, get a certificate for
// the addresses of the sites, or of this machine for a catch-all site.

import { isIP } from 'node:net';
import { networkInterfaces } from 'node:os';
import type { GlobalOptions, SiteAddress, TlsConfig } from '../config/config.ts';
import type { Clock } from '../kernel/clock.ts';
import { HubgateError } from '../kernel/error.ts';
import type { Logger } from '../kernel/log.ts';
import type { Scope } from '../kernel/scope.ts';
import { challengeName } from './acme/challenges.ts';
import type { ManagedCertificate } from './acme/managed-certificate.ts';
import { managedCertificates, type ManagedCertificates } from './acme/managed-certificates.ts';
import type { Certificate, CertificateInUse, SiteCertificates } from './certificate.ts';
import { certificateOrigin } from './certificate-policy.ts';
import type { CertificateStore } from './certificate-store.ts';
import {
  onDemandCertificates,
  type OnDemandCertificates,
} from './on-demand/on-demand-certificates.ts';
import { readCertificates } from './file-certificates.ts';
import { type LocalAuthority, localCertificates } from './local-authority.ts';

/** Gives the certificate of a handshake. */
export interface CertificateSource {
  /**
   * The certificate for the server name that a client sent.
   *
   * @throws HubgateError `no-certificate` when no site has that name, `certificate-pending` while
   *   its site waits for one
   * @param mayWait for one that is on its way: not who is proving the name meanwhile
   */
  certificateFor(serverName: string, mayWait?: boolean): Promise<Certificate>;
  /** The answer to a TLS-ALPN-01 challenge for a server name; null when none is pending. */
  challengeFor(serverName: string): Promise<Certificate | null>;
  /**
   * The certificate for clients that send no name, as those do that were given an IP address: all
   * addresses that the sites name, or the first site's. null when there is none.
   */
  fallback(): Promise<Certificate | null>;
  /** Calls `follower` when {@link fallback} has another; the returned function ends that. */
  onFallback(follower: () => void): () => void;
  /** Those that have been read, or issued until now. */
  certificates(): readonly CertificateInUse[];
  /** What `begin` would order at once: names, and the authorities that may be asked. */
  orders(): readonly CertificateOrder[];
  /** From now on certificates are ordered: the ports are open, on which authorities will ask. */
  begin(): void;
}

export interface CertificateOrder {
  readonly name: string;
  readonly authorities: readonly string[];
}

/** A site as far as its certificate is concerned. */
export interface CertifiedSite {
  readonly addresses: readonly SiteAddress[];
  readonly tls: TlsConfig;
}

export interface CertificateTools {
  readonly options: Pick<GlobalOptions, 'acme' | 'localCerts' | 'onDemand'>;
  readonly authority: LocalAuthority;
  readonly store: CertificateStore;
  readonly managed: ManagedCertificates;
  /** Then the local authority is not made where there is none. */
  readonly dryRun?: boolean;
  readonly clock: Clock;
  readonly log: Logger;
}

/** What a client may ask a certificate for: labels of letters, digits, hyphens (RFC 6066 §3). */
const SERVER_NAME = /^(?=.{1,253}$)[a-z0-9_-]{1,63}(?:\.[a-z0-9_-]{1,63})*$/;

/**
 * Opens the certificates of some sites that share a listener: files are read now, certificates of
 * the local authority are issued when a client asks for them, those of public ones are ordered in
 * the background after `begin`. The scope gives back what is claimed.
 *
 * @throws HubgateError `certificate-unusable` for files that cannot be read or do not fit together,
 *   `acme-wildcard` or `acme-any-host` for what ACME cannot certify
 */
export async function openCertificates(
  sites: readonly CertifiedSite[],
  tools: CertificateTools,
  scope: Scope,
): Promise<CertificateSource> {
  const { store, managed } = tools;
  const hosts = new Set(sites.flatMap(({ addresses }) => secureHosts(addresses)));
  const byHost = new Map<string, SiteCertificates>();
  const ordered = new Map<string, ManagedCertificate>();
  const onDemand = new Map<SiteCertificates, OnDemandCertificates>();
  const local = localCertificates({ ...tools, store, hosts });
  for (const { addresses, tls } of sites) {
    const files = new Map<string, Promise<SiteCertificates>>();
    for (const host of secureHosts(addresses)) {
      const origin = certificateOrigin(host, tls, tools.options);
      switch (origin.kind) {
        case 'files': {
          const { certFile, keyFile } = origin;
          const read = files.get(certFile) ?? readCertificates(certFile, keyFile);
          files.set(certFile, read);
          byHost.set(host, await read);
          break;
        }
        case 'local':
          byHost.set(host, local);
          break;
        case 'acme': {
          const lease = await managed.acquire(host, origin.authorities);
          scope.defer(() => lease.release());
          ordered.set(host, lease.value);
          byHost.set(host, managedCertificates(lease.value));
          break;
        }
        case 'on-demand': {
          const certificates = onDemandCertificates({ ...tools, ...origin });
          scope.defer(() => certificates.close());
          byHost.set(host, certificates);
          onDemand.set(certificates, certificates);
          break;
        }
        case 'none': {
          const { code, message, hint } = origin.error;
          throw new HubgateError(code, `${message}: ${hint}`);
        }
      }
    }
  }
  // Only for who needs it: what is wrong with its files concerns nobody else.
  if (tools.dryRun !== true && [...byHost.values()].includes(local))
    await tools.authority.prepare();
  const challenged = new Set([...ordered.keys()].map(challengeName));
  const fallbackHosts = hostsOfFallback(byHost);
  const certificatesOf = (name: string): SiteCertificates | undefined => {
    const parent = `*${name.slice(Math.max(0, name.indexOf('.')))}`;
    return byHost.get(name) ?? byHost.get(parent) ?? byHost.get('');
  };
  // Another process of the same storage may be ordering it.
  const onDemandOf = (name: string): OnDemandCertificates | undefined => {
    const certificates = SERVER_NAME.test(name) ? certificatesOf(name) : undefined;
    return certificates && onDemand.get(certificates);
  };
  return {
    async certificateFor(serverName, mayWait = true) {
      const name = serverName.toLowerCase();
      const certificates = certificatesOf(name);
      // Issued for the name itself, not for a wildcard: clients refuse `*.localhost`.
      if (certificates !== undefined && SERVER_NAME.test(name)) {
        return certificates.certificateFor([name], mayWait);
      }
      throw new HubgateError('no-certificate', `No site has the name ${JSON.stringify(name)}`);
    },
    async challengeFor(serverName) {
      const name = serverName.toLowerCase();
      // Looked up for our own names only: who else asks costs no file access.
      const ours = challenged.has(name) || onDemandOf(name) !== undefined;
      const answer = ours ? await managed.challenges.certificate(name) : null;
      return answer && { cert: answer.chain, key: answer.key };
    },
    async fallback() {
      const [host] = fallbackHosts;
      const certificates = host === undefined ? undefined : byHost.get(host);
      return certificates?.fallbackFor(host === '' ? ownNames() : fallbackHosts) ?? null;
    },
    onFallback(follower) {
      return ordered.get(fallbackHosts[0] ?? '')?.onChange(follower) ?? (() => {});
    },
    orders: () =>
      [...ordered.values()].flatMap(({ name, wouldAsk }) =>
        wouldAsk.length === 0 ? [] : [{ name, authorities: wouldAsk }],
      ),
    certificates: () => [...new Set(byHost.values())].flatMap((one) => one.inUse()),
    begin() {
      for (const certificate of ordered.values()) certificate.begin();
      if (onDemand.size === 0) return;
      const adopt = async (name: string) => (await onDemandOf(name)?.adopt(name)) ?? null;
      scope.defer(managed.handover.add({ adopt }));
    },
  };
}

function secureHosts(addresses: readonly SiteAddress[]): string[] {
  return addresses.flatMap(({ scheme, host }) => (scheme === 'https' ? [host] : []));
}

/** All addresses with the certificates of the first, else the catch-all site, else the first host. */
function hostsOfFallback(byHost: ReadonlyMap<string, SiteCertificates>): readonly string[] {
  const [address] = [...byHost.keys()].filter((host) => isIP(host) !== 0);
  if (address !== undefined) {
    const certificates = byHost.get(address);
    return [...byHost].flatMap(([host, one]) =>
      isIP(host) !== 0 && one === certificates ? [host] : [],
    );
  }
  return byHost.has('') ? [''] : [...byHost.keys()].slice(0, 1);
}

/** What a catch-all site may be called by who sends no name: this machine's own addresses. */
function ownNames(): string[] {
  const addresses = Object.values(networkInterfaces()).flatMap((list) => list ?? []);
  return ['localhost', ...addresses.map(({ address }) => address.replace(/%.*$/, ''))];
}
