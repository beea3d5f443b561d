import { readFile } from 'node:fs/promises';
import { isIP } from 'node:net';
import { networkInterfaces } from 'node:os';
import { createSecureContext, type SecureContext, type SecureContextOptions } from 'node:tls';
import type { SiteAddress, TlsConfig } from '../config/config.ts';
import type { Clock } from '../kernel/clock.ts';
import { HubgateError, messageOf } from '../kernel/error.ts';
import type { Logger } from '../kernel/log.ts';
import { type KeyPair, renewalTime } from './key-pair.ts';
import type { LocalAuthority } from './local-authority.ts';

/** Gives the certificate of a handshake. */
export interface CertificateSource {
  /**
   * The context for the server name that a client sent.
   *
   * @throws HubgateError `no-certificate` when no site has that name
   */
  contextFor(serverName: string): Promise<SecureContext>;
  /**
   * The certificate for clients that send no name, as those do that were given an IP address: all
   * addresses that the sites name, or the first site's. null when there is none.
   */
  fallback(): Promise<SecureContextOptions | null>;
}

/** A site as far as its certificate is concerned. */
export interface CertifiedSite {
  readonly addresses: readonly SiteAddress[];
  readonly tls: TlsConfig;
}

/** The certificates of one site. */
interface SiteCertificates {
  optionsFor(names: readonly string[]): Promise<SecureContextOptions>;
}

/** What a client may ask a certificate for: labels of letters, digits, hyphens (RFC 6066 §3). */
const SERVER_NAME = /^(?=.{1,253}$)[a-z0-9_-]{1,63}(?:\.[a-z0-9_-]{1,63})*$/;
/** Names for which a site without a name of its own has been contacted. */
const MAX_ISSUED = 1000;

/**
 * Opens the certificates of some sites that share a listener: files are read now, certificates of
 * the local authority are issued when a client asks for them and renewed in the last third of
 * their life.
 *
 * @throws HubgateError `certificate-unusable` for files that cannot be read or do not fit together
 */
export async function openCertificates(
  sites: readonly CertifiedSite[],
  authority: LocalAuthority,
  clock: Clock,
  log: Logger,
): Promise<CertificateSource> {
  const byHost = new Map<string, SiteCertificates>();
  for (const { addresses, tls } of sites) {
    const certificates =
      tls.source.kind === 'files'
        ? await readCertificates(tls, tls.source.certFile, tls.source.keyFile)
        : issueCertificates(tls, authority, clock, log);
    for (const { scheme, host } of addresses)
      if (scheme === 'https') byHost.set(host, certificates);
  }
  return {
    async contextFor(serverName) {
      const name = serverName.toLowerCase();
      const parent = `*${name.slice(Math.max(0, name.indexOf('.')))}`;
      const certificates = byHost.get(name) ?? byHost.get(parent) ?? byHost.get('');
      // Issued for the name itself, not for a wildcard: clients refuse `*.localhost`.
      if (certificates !== undefined && SERVER_NAME.test(name)) {
        return createSecureContext(await certificates.optionsFor([name]));
      }
      throw new HubgateError('no-certificate', `No site has the name ${JSON.stringify(name)}`);
    },
    async fallback() {
      const addresses = [...byHost.keys()].filter((host) => isIP(host) !== 0);
      const host = addresses[0] ?? (byHost.has('') ? '' : byHost.keys().next().value);
      const certificates = host === undefined ? undefined : byHost.get(host);
      if (host === undefined || certificates === undefined) return null;
      if (addresses.length > 0) return certificates.optionsFor(addresses);
      return certificates.optionsFor(host === '' ? ownNames() : [host]);
    },
  };
}

/** What a catch-all site may be called by who sends no name: this machine's own addresses. */
function ownNames(): string[] {
  const addresses = Object.values(networkInterfaces()).flatMap((list) => list ?? []);
  return ['localhost', ...addresses.map(({ address }) => address.replace(/%.*$/, ''))];
}

async function readCertificates(
  tls: TlsConfig,
  certFile: string,
  keyFile: string,
): Promise<SiteCertificates> {
  try {
    const [cert, key] = await Promise.all([readFile(certFile), readFile(keyFile)]);
    const options = { ...protocolOptions(tls), cert, key };
    createSecureContext(options);
    return { optionsFor: async () => options };
  } catch (cause) {
    throw new HubgateError(
      'certificate-unusable',
      `The certificate ${certFile} with the key ${keyFile} cannot be used: ${messageOf(cause)}`,
      { cause },
    );
  }
}

function issueCertificates(
  tls: TlsConfig,
  authority: LocalAuthority,
  clock: Clock,
  log: Logger,
): SiteCertificates {
  const issued = new Map<string, Promise<KeyPair>>();
  return {
    async optionsFor(names) {
      const id = names.join(' ');
      let pair = await issued.get(id);
      if (pair === undefined || clock.now() >= renewalTime(pair)) {
        const pending = authority.issue(names);
        remember(issued, id, pending);
        pair = await pending;
        log.debug('Issued a certificate of the local authority', { names });
      }
      return { ...protocolOptions(tls), cert: pair.chain, key: pair.key };
    },
  };
}

function remember(issued: Map<string, Promise<KeyPair>>, id: string, pair: Promise<KeyPair>): void {
  issued.delete(id);
  issued.set(id, pair);
  pair.catch(() => issued.delete(id));
  for (const oldest of issued.keys()) {
    if (issued.size <= MAX_ISSUED) return;
    issued.delete(oldest);
  }
}

function protocolOptions(tls: TlsConfig): SecureContextOptions {
  return {
    minVersion: tls.minVersion,
    maxVersion: tls.maxVersion,
    ...(tls.ciphers.length > 0 ? { ciphers: tls.ciphers.join(':') } : {}),
    ...(tls.curves.length > 0 ? { ecdhCurve: tls.curves.join(':') } : {}),
  };
}
