// Clients that connect to an IP address send no server name. They get a certificate for the addresses of the
// sites, or for those of this machine if there is a catch-all site.

import { isIP } from 'node:net';
import { networkInterfaces } from 'node:os';
import type { GlobalOptions, SiteAddress, TlsConfig } from '../config/config.ts';
import { within } from '../kernel/clock.ts';
import { HubgateError, messageOf } from '../kernel/error.ts';
import { orNull } from '../kernel/parse.ts';
import type { Scope } from '../kernel/scope.ts';
import { challengeName } from './acme/challenges.ts';
import type { ManagedCertificate } from './acme/managed-certificate.ts';
import { managedCertificates, type ManagedCertificates } from './acme/managed-certificates.ts';
import type { Certificate, CertificateInUse, SiteCertificates } from './certificate.ts';
import { certificateOrigin } from './certificate-policy.ts';
import { certificateNames } from './certificate-store.ts';
import {
  onDemandCertificates,
  type OnDemandCertificates,
} from './on-demand/on-demand-certificates.ts';
import { localCertificates, type LocalCertificatesOptions } from './local-authority.ts';
import { createPrivateKey, type KeyObject, X509Certificate } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { createSecureContext } from 'node:tls';

/** Provides the certificate for a handshake. */
export interface CertificateSource {
  /**
   * The certificate for the server name that a client sent.
   *
   * @throws HubgateError `no-certificate` if no site has that name, `certificate-pending` while its site
   * waits for one
   * @param mayWait whether to wait for a certificate in progress; false while an authority validates the name
   */
  certificateFor(serverName: string, mayWait?: boolean): Promise<Certificate>;
  /** The certificate that answers a TLS-ALPN-01 challenge for a server name; null if none is pending. */
  challengeFor(serverName: string): Promise<Certificate | null>;
  /**
   * The certificate for clients that send no name because they connect to an IP address. It is for all
   * addresses of the sites; without addresses it is the one of the first site. null if there is none.
   */
  fallback(): Promise<Certificate | null>;
  /** Calls `follower` when {@link fallback} changes. The returned function unsubscribes it. */
  onFallback(follower: () => void): () => void;
  /** The certificates that have been read or issued so far. */
  certificates(): readonly CertificateInUse[];
  /** The names that `begin` would order at once, each with the authorities that may be asked. */
  orders(): readonly CertificateOrder[];
  /** Orders certificates from now on. The ports must be open, because authorities connect to them. */
  begin(): void;
}

export interface CertificateOrder {
  readonly name: string;
  readonly authorities: readonly string[];
}

/** The parts of a site that concern its certificate. */
export interface CertifiedSite {
  readonly addresses: readonly SiteAddress[];
  readonly tls: TlsConfig;
}

export interface CertificateTools extends Omit<LocalCertificatesOptions, 'hosts'> {
  readonly options: Pick<GlobalOptions, 'acme' | 'localCerts' | 'onDemand'>;
  readonly managed: ManagedCertificates;
  /**
   * All sites of the configuration, also those of other listeners: their certificates are used for the sites
   * without `tls`. By default, the sites of the listener.
   */
  readonly allSites?: readonly CertifiedSite[];
  /** If true, a missing local authority is not created. */
  readonly dryRun?: boolean;
}

/** Time for reading the certificate of a challenge. A file system may never answer. */
const CHALLENGE_READ_MS = 2_000;
const readTooSlow = () => new HubgateError('storage-too-slow', 'The storage does not answer');

/** A server name that a client may send: labels of letters, digits, hyphens (RFC 6066 §3). */
const SERVER_NAME = /^(?=.{1,253}$)[a-z0-9_-]{1,63}(?:\.[a-z0-9_-]{1,63})*$/;

/**
 * Opens the certificates of the sites that share a listener. Files are read now. The local authority issues
 * its certificates when a client asks for them. Public authorities get their orders in the background after
 * `begin`. The scope releases what is claimed.
 *
 * @throws HubgateError `certificate-unusable` for files that cannot be read or do not fit together,
 * `acme-wildcard` or `acme-any-host` for names that ACME cannot certify
 */
export async function openCertificates(
  sites: readonly CertifiedSite[],
  tools: CertificateTools,
  scope: Scope,
): Promise<CertificateSource> {
  const { managed } = tools;
  const hosts = new Set(sites.flatMap(({ addresses }) => secureHosts(addresses)));
  const byHost = new Map<string, SiteCertificates>();
  const ordered = new Map<string, ManagedCertificate>();
  const onDemand = new Map<SiteCertificates, OnDemandCertificates>();
  const local = localCertificates({ ...tools, hosts });
  const read: ReadFiles = new Map();
  const lenderOf = await lendersAmong(tools.allSites ?? sites, tools.options, read);
  for (const { addresses, tls } of sites) {
    for (const host of secureHosts(addresses)) {
      const lender = isWithoutOwn(tls) ? lenderOf(host) : undefined;
      const origin = certificateOrigin(lender?.host ?? host, lender?.tls ?? tls, tools.options);
      switch (origin.kind) {
        case 'files': {
          const files = lender?.files ?? (await filesOf(tls, read));
          if (files !== null) byHost.set(host, files);
          break;
        }
        case 'local':
          byHost.set(host, local);
          break;
        case 'acme': {
          const name = lender?.host ?? host;
          const certificate = scope.hold(await managed.acquire(name, origin.authorities));
          ordered.set(host, certificate);
          byHost.set(host, managedCertificates(certificate));
          break;
        }
        case 'on-demand': {
          const certificates = onDemandCertificates({ ...tools, ...origin });
          byHost.set(host, scope.use(certificates));
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
  // Only if a host needs it: damaged files of the authority must not affect other configurations.
  if (tools.dryRun !== true && [...byHost.values()].includes(local))
    await tools.authority.prepare();
  const challenged = new Set([...ordered.keys()].map(challengeName));
  const fallbackHosts = hostsOfFallback(byHost);
  const certificatesOf = (name: string): SiteCertificates | undefined => {
    const parent = `*${name.slice(Math.max(0, name.indexOf('.')))}`;
    return byHost.get(name) ?? byHost.get(parent) ?? byHost.get('');
  };
  // Another process that shares the storage may be ordering it.
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
      // Looked up for the names of this listener only, so that other names cause no file access.
      const ours = challenged.has(name) || onDemandOf(name) !== undefined;
      if (!ours) return null;
      try {
        const read = managed.challenges.certificate(name);
        const answer = await within(CHALLENGE_READ_MS, tools.clock, read, readTooSlow);
        return answer && { cert: answer.chain, key: answer.key };
      } catch (error) {
        // Handshakes with TLS 1.2 ask as well. They must not fail because the storage does.
        tools.log.debug('A challenge cannot be read', { name, error: messageOf(error) });
        return null;
      }
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
      [...new Set(ordered.values())].flatMap(({ name, wouldAsk }) =>
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

/** The certificate files that have been read. */
type ReadFiles = Map<TlsConfig['source'], SiteCertificates>;

/** Where a host without `tls` gets its certificate: from another site, as in Caddy. */
interface Lender {
  readonly tls: TlsConfig;
  /** The host of that site, or the wildcard that it orders. */
  readonly host: string;
  /** The files of that site; null if it has others. */
  readonly files: SiteCertificates | null;
}

/**
 * Finds the site that lends its certificate to a host: one with `tls` that has the same host, on another port;
 * else one whose files are for the host; else one that orders the wildcard of the host. Without this, a name
 * that a wildcard covers would be ordered by itself, and published in the logs of its authority.
 */
async function lendersAmong(
  sites: readonly CertifiedSite[],
  options: CertificateTools['options'],
  read: ReadFiles,
): Promise<(host: string) => Lender | undefined> {
  const named = new Map<string, Lender>();
  const covering = new Map<string, Lender>();
  const ordering = new Map<string, Lender>();
  const add = (lenders: Map<string, Lender>, name: string, lender: Omit<Lender, 'host'>): void => {
    if (!lenders.has(name)) lenders.set(name, { ...lender, host: name });
  };
  for (const { addresses, tls } of sites) {
    const files = await filesOf(tls, read);
    for (const host of secureHosts(addresses)) {
      if (!isWithoutOwn(tls)) add(named, host, { tls, files });
      const isWildcard = host.startsWith('*.');
      if (isWildcard && certificateOrigin(host, tls, options).kind === 'acme')
        add(ordering, host, { tls, files });
    }
    for (const name of files?.inUse()[0]?.names ?? [])
      add(covering, name.toLowerCase(), { tls, files });
  }
  return (host) => {
    const wildcard = `*${host.slice(host.indexOf('.'))}`;
    const lender = named.get(host) ?? covering.get(host) ?? covering.get(wildcard);
    return host === '' ? undefined : (lender ?? ordering.get(wildcard));
  };
}

/** Whether nothing in the site says which certificate it gets. */
function isWithoutOwn({ source, dns, onDemand }: TlsConfig): boolean {
  return source.kind === 'auto' && dns === null && !onDemand;
}

/**
 * The addresses that have the same certificates as the first address; else the catch-all site; else the first
 * host.
 */
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

/**
 * The names under which clients without a server name can reach a catch-all site: `localhost` and the
 * addresses of this machine.
 */
function ownNames(): string[] {
  const addresses = Object.values(networkInterfaces()).flatMap((list) => list ?? []);
  return ['localhost', ...addresses.map(({ address }) => address.replace(/%.*$/, ''))];
}

/** The certificate files of a site; null if it names none. */
async function filesOf({ source }: TlsConfig, read: ReadFiles): Promise<SiteCertificates | null> {
  if (source.kind !== 'files') return null;
  const known = read.get(source) ?? (await readCertificates(source.certFile, source.keyFile));
  read.set(source, known);
  return known;
}

/**
 * Reads the certificate files of a site.
 *
 * @throws HubgateError `certificate-unusable` for files that cannot be read or do not fit together
 */
async function readCertificates(certFile: string, keyFile: string): Promise<SiteCertificates> {
  try {
    const [cert, key] = await Promise.all([readFile(certFile, 'utf8'), readFile(keyFile, 'utf8')]);
    createSecureContext({ cert, key });
    const notAfter = Date.parse(new X509Certificate(cert).validTo);
    const inUse = { names: certificateNames(cert), authority: 'files', notAfter };
    const certificateFor = async () => ({ cert, key });
    return { certificateFor, fallbackFor: certificateFor, inUse: () => [inUse] };
  } catch (cause) {
    throw new HubgateError(
      'certificate-unusable',
      `The certificate ${certFile} with the key ${keyFile} cannot be used: ${messageOf(cause)}`,
      { cause },
    );
  }
}

/** The reason why a certificate and a key cannot be used. */
export interface PairFault {
  /** The part that has the fault. */
  readonly of: 'certificate' | 'key';
  readonly reason: string;
}

/** Checks whether a certificate and a key, both PEM, can be used together. Returns null if they can. */
export function pairFault(cert: string, key: string): PairFault | null {
  const certificate = orNull(() => new X509Certificate(cert));
  if (certificate === null) return { of: 'certificate', reason: 'it has no certificate in PEM' };
  const privateKey: KeyObject | null = orNull(() => createPrivateKey(key));
  if (privateKey === null) {
    return {
      of: 'key',
      reason: 'it has no private key in PEM that can be read without a password',
    };
  }
  if (!certificate.checkPrivateKey(privateKey)) {
    return { of: 'key', reason: 'it is not the key of the certificate' };
  }
  try {
    createSecureContext({ cert, key });
    return null;
  } catch (thrown) {
    return { of: 'certificate', reason: messageOf(thrown) };
  }
}
