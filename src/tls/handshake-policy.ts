import { hash, X509Certificate } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { createSecureContext, type SecureContextOptions } from 'node:tls';
import type { SiteAddress, TlsConfig } from '../config/config.ts';
import { HubgateError, messageOf } from '../kernel/error.ts';
import { orNull } from '../kernel/parse.ts';

export type ClientAuthMode = NonNullable<TlsConfig['clientAuth']>['mode'];

/**
 * The properties of a handshake, apart from the certificate that it presents. OpenSSL settles them before it
 * asks for that certificate, so each policy has a TLS server of its own.
 */
export interface HandshakePolicy {
  /**
   * 32 hexadecimal digits, the same for policies with the same properties. It is the session id context: a
   * session is resumed only under the policy that it began with. With client certificates, it also differs by
   * site and by the content of the trust pool.
   */
  readonly id: string;
  readonly options: SecureContextOptions;
  /** The protocols to offer, the preferred one first; empty for those of the listener. */
  readonly alpn: TlsConfig['alpn'];
  /** What the client must present; null for nothing. */
  readonly clientAuth: ClientAuthMode | null;
}

/**
 * The suites of TLS 1.2 unless `ciphers` sets others: forward secrecy and authenticated encryption only (RFC
 * 9325 §4.2).
 */
export const TLS12_CIPHERS: readonly string[] = [
  'ECDHE-ECDSA-AES128-GCM-SHA256',
  'ECDHE-RSA-AES128-GCM-SHA256',
  'ECDHE-ECDSA-AES256-GCM-SHA384',
  'ECDHE-RSA-AES256-GCM-SHA384',
  'ECDHE-ECDSA-CHACHA20-POLY1305',
  'ECDHE-RSA-CHACHA20-POLY1305',
];

/**
 * OpenSSL's defaults. They have to be listed, because Node turns off TLS 1.3 if a list has no suite of it.
 */
const TLS13_CIPHERS: readonly string[] = [
  'TLS_AES_256_GCM_SHA384',
  'TLS_CHACHA20_POLY1305_SHA256',
  'TLS_AES_128_GCM_SHA256',
];

const CERTIFICATE = /-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----/g;

/**
 * Reads the handshake settings of a site.
 *
 * @param opened policies by their ids. One with the same id is returned; a new one is added
 * @throws HubgateError `trust-pool-unusable` for a file that cannot be read or has no certificate,
 * `tls-unusable` for cipher suites or curves that OpenSSL does not know
 */
export async function openHandshakePolicy(
  tls: TlsConfig,
  addresses: readonly SiteAddress[],
  opened = new Map<string, HandshakePolicy>(),
): Promise<HandshakePolicy> {
  const { minVersion, maxVersion, curves, alpn, clientAuth } = tls;
  const files = clientAuth?.trustPoolFiles ?? [];
  const trustPool = (await Promise.all(files.map(readTrustPool))).flat();
  const ciphers = cipherList(tls.ciphers.map(openSslCipher));
  const asked = clientAuth === null ? null : { mode: clientAuth.mode, trustPool, addresses };
  const settled = JSON.stringify([minVersion, maxVersion, ciphers, curves, asked, alpn]);
  const id = hash('sha256', settled, 'hex').slice(0, 32);
  const same = opened.get(id);
  if (same !== undefined) return same;
  const options: SecureContextOptions = {
    minVersion,
    maxVersion,
    ciphers,
    ...(curves.length > 0 ? { ecdhCurve: curves.join(':') } : {}),
    ...(trustPool.length > 0 ? { ca: trustPool.join('') } : {}),
  };
  try {
    createSecureContext(options);
  } catch (cause) {
    const message = `The tls settings cannot be used: ${messageOf(cause)}`;
    throw new HubgateError('tls-unusable', message, { cause });
  }
  const policy = { id, options, alpn, clientAuth: clientAuth?.mode ?? null };
  opened.set(id, policy);
  return policy;
}

/** If a list has no suite of TLS 1.2 or none of TLS 1.3, that version keeps its default. */
function cipherList(named: readonly string[]): string {
  const newer = named.filter((name) => name.startsWith('TLS_'));
  const older = named.filter((name) => !name.startsWith('TLS_'));
  return [
    ...(newer.length > 0 ? newer : TLS13_CIPHERS),
    ...(older.length > 0 ? older : TLS12_CIPHERS),
  ].join(':');
}

/**
 * The certificates in a string, each as PEM.
 *
 * @throws Error if it contains none, or one that cannot be read
 */
export function certificatesIn(text: string): readonly string[] {
  const certificates = text.match(CERTIFICATE) ?? [];
  if (certificates.length === 0) throw new TypeError('it has no certificate in PEM');
  return certificates.map((pem) => new X509Certificate(pem).toString());
}

async function readTrustPool(file: string): Promise<readonly string[]> {
  try {
    return certificatesIn(await readFile(file, 'utf8'));
  } catch (cause) {
    throw new HubgateError(
      'trust-pool-unusable',
      `The trust pool ${file} cannot be used: ${messageOf(cause)}`,
      { cause },
    );
  }
}

/** Suites of TLS 1.3. OpenSSL and the standard use the same names for them. */
const TLS13 = new Set([...TLS13_CIPHERS, 'TLS_AES_128_CCM_SHA256', 'TLS_AES_128_CCM_8_SHA256']);

const STANDARD =
  /^TLS_(?:(ECDHE)_(ECDSA|RSA)|RSA)_WITH_(?:AES_(128|256)_(GCM|CBC)_(SHA\d*)|(CHACHA20_POLY1305)(?:_SHA256)?)$/;

/** OpenSSL's name of a suite. A Caddyfile contains the name of the standard. */
function openSslCipher(name: string): string {
  const [all, exchange, signature, bits, mode, digest] = STANDARD.exec(name) ?? [];
  if (all === undefined) return name;
  const agreed = exchange === undefined ? '' : `${exchange}-${signature}-`;
  if (bits === undefined) return `${agreed}CHACHA20-POLY1305`;
  return `${agreed}AES${bits}${mode === 'GCM' ? '-GCM' : ''}-${digest}`;
}

/** Whether a suite, by either name, can be used. */
export function isCipher(name: string): boolean {
  if (TLS13.has(name)) return true;
  const openSsl = openSslCipher(name);
  return !openSsl.startsWith('TLS_') && isAccepted({ ciphers: openSsl });
}

/** Whether a group for the key exchange can be used. */
export function isCurve(name: string): boolean {
  return isAccepted({ ecdhCurve: name });
}

function isAccepted(options: Parameters<typeof createSecureContext>[0]): boolean {
  // OpenSSL only reports that no suite fits.
  return orNull(() => createSecureContext(options)) !== null;
}

/** The parts of a TLS connection that identify the client. */
export interface ClientIdentity {
  getPeerX509Certificate(): X509Certificate | undefined;
  readonly authorized: boolean;
  /** An error code of OpenSSL, which Node's types declare as an Error. */
  readonly authorizationError: unknown;
}

/**
 * The reason why a client is rejected after its handshake; null if it is accepted. The certificate is checked
 * before `authorized`, because Node sets `authorized` on a resumed TLS 1.3 session that has no certificate.
 *
 * @param nowMs milliseconds since the Unix epoch
 */
export function refusalReason(
  client: ClientIdentity,
  mode: ClientAuthMode,
  nowMs = Date.now(),
): string | null {
  const given = client.getPeerX509Certificate();
  switch (mode) {
    case 'request':
      return null;
    case 'require':
      return given === undefined ? 'no certificate was given' : null;
    case 'verify_if_given':
      return given === undefined ? null : distrust(client, given, nowMs);
    case 'require_and_verify':
      return given === undefined ? 'no certificate was given' : distrust(client, given, nowMs);
  }
}

/** Whether the client has proven its identity: its certificate was verified and belongs to the trust pool. */
export function isVerified(
  client: ClientIdentity,
  mode: ClientAuthMode,
  nowMs = Date.now(),
): boolean {
  const verifies = mode === 'verify_if_given' || mode === 'require_and_verify';
  const given = client.getPeerX509Certificate();
  return verifies && given !== undefined && distrust(client, given, nowMs) === null;
}

/**
 * The reason why a certificate is not trusted; null if it is. OpenSSL verifies a certificate once. A resumed session
 * (RFC 8446 §2.2) keeps the result, so whether the certificate has expired since is checked here.
 */
function distrust(
  { authorized, authorizationError }: ClientIdentity,
  { validTo }: X509Certificate,
  nowMs: number,
): string | null {
  if (!authorized) return `the certificate is not trusted: ${String(authorizationError)}`;
  return Date.parse(validTo) < nowMs ? 'the certificate has expired' : null;
}
