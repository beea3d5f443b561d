import { registry } from '../directives/registry.ts';
import { dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { jwksFault } from '../auth/jwks.ts';
import type {
  AccessLogConfig,
  Config,
  GlobalOptions,
  JwksKeySource,
  LogOptions,
  SiteAddress,
  SiteConfig,
} from '../config/config.ts';
import { hubsOf } from '../config/sites.ts';
import {
  type Report,
  type UnplacedProblem,
  whyUnreadable,
  error,
  warning,
} from '../config/problem.ts';
import { filesRead } from '../config/routes.ts';
import { codeOf, messageOf } from '../kernel/error.ts';
import { certificateNames } from '../tls/certificate-store.ts';
import { coversHost } from '../tls/certificate.ts';
import { pairFault } from '../tls/certificates.ts';
import { certificatesIn } from '../tls/handshake-policy.ts';
import { accessSync, constants, statSync } from 'node:fs';
import { defaultStorage } from '../tls/storage.ts';
import { type DnsChallengeConfig, providerFault } from '../config/dns-challenge.ts';
import { orNull, parseUrl } from '../kernel/parse.ts';
import { certificateOrigin } from '../tls/certificate-policy.ts';
import { historyNames } from './history-names.ts';

/** Returns the content of the file at an absolute path; throws if it cannot be read. */
export type ReadFile = (path: string) => Uint8Array;

/** Checks that the file of roots in the options can be used. */
export function checkOptionFiles({ acme }: GlobalOptions, read: ReadFile, report: Report): void {
  new FileCheck(read, report).roots(acme, 'rootFile', acme.rootFile);
}

/** Checks that the certificates, keys and trust pools of a site exist and can be used. */
export function checkSiteFiles(site: SiteConfig, read: ReadFile, report: Report): void {
  const check = new FileCheck(read, report);
  const { source, clientAuth } = site.tls;
  if (source.kind === 'files') check.pair(source, site.addresses);
  for (const issuer of source.kind === 'issuers' ? source.issuers : []) {
    if (issuer.kind === 'acme') check.roots(issuer, 'rootFile', issuer.rootFile);
  }
  for (const { publisher, subscriber } of hubsOf(site).flatMap(({ issuers }) => issuers)) {
    for (const keys of new Set([publisher, subscriber])) {
      if (keys?.kind === 'jwks' && keys.uri.startsWith('file:')) check.keySet(keys);
    }
  }
  for (const file of clientAuth?.trustPoolFiles ?? []) {
    check.roots(clientAuth ?? site, 'trustPoolFiles', file);
  }
  for (const { about, field, path } of filesRead([...site.routes, ...site.errorRoutes], registry)) {
    check.roots(about, field, path);
  }
}

class FileCheck {
  readonly #read: ReadFile;
  readonly #report: Report;

  constructor(read: ReadFile, report: Report) {
    this.#read = read;
    this.#report = report;
  }

  keySet(source: JwksKeySource): void {
    const unusable = (message: string) =>
      this.#report(source, error('invalid-jwks', message), { field: 'uri' });
    let content: Uint8Array;
    try {
      content = this.#read(fileURLToPath(source.uri));
    } catch (thrown) {
      unusable(`cannot read the JWK Set ${source.uri}: ${whyUnreadable(thrown)}`);
      return;
    }
    const fault = jwksFault(content);
    if (fault !== null) unusable(`cannot use the JWK Set ${source.uri}: ${fault}`);
  }

  pair(
    source: Extract<SiteConfig['tls']['source'], { kind: 'files' }>,
    addresses: readonly SiteAddress[],
  ): void {
    const { certFile, keyFile } = source;
    const cert = this.#text(source, 'certFile', certFile);
    const key = this.#text(source, 'keyFile', keyFile);
    if (cert === null || key === null) return;
    const fault = pairFault(cert, key);
    if (fault === null) return this.#names(source, cert, addresses);
    const [field, file] =
      fault.of === 'key' ? (['keyFile', keyFile] as const) : (['certFile', certFile] as const);
    this.#unusable(source, field, `cannot use the ${fault.of} ${file}: ${fault.reason}`);
  }

  /** Browsers refuse a certificate for other names. */
  #names(
    source: object & { readonly certFile: string },
    cert: string,
    addresses: readonly SiteAddress[],
  ): void {
    const missing = addresses
      .filter(({ scheme, host }) => scheme === 'https' && host !== '' && !coversHost(cert, host))
      .map(({ host }) => host);
    if (missing.length === 0) return;
    const message = `the certificate ${source.certFile} is not for ${missing.join(', ')}, but for ${certificateNames(cert).join(', ') || 'no name'}`;
    const hint = 'use a certificate for the name of the site; clients reject this one';
    this.#report(source, warning('certificate-for-others', message, hint), { field: 'certFile' });
  }

  roots(about: object, field: string, file: string | null): void {
    if (file === null) return;
    const text = this.#text(about, field, file);
    if (text === null) return;
    try {
      certificatesIn(text);
    } catch (thrown) {
      this.#unusable(about, field, `cannot use ${file}: ${messageOf(thrown)}`);
    }
  }

  #text(about: object, field: string, file: string): string | null {
    try {
      return Buffer.from(this.#read(resolve(file))).toString('utf8');
    } catch (thrown) {
      const message = `cannot read ${file}: ${whyUnreadable(thrown)}`;
      this.#report(about, error('unreadable-file', message), { field });
      return null;
    }
  }

  #unusable(about: object, field: string, message: string): void {
    this.#report(about, error('certificate-unusable', message), { field });
  }
}

/** Checks that a log can be written at its path. Nothing is created. */
export function checkLogFile(log: LogOptions | AccessLogConfig, report: Report): void {
  const { output } = log;
  if (output === null || output === 'stderr' || output === 'stdout') return;
  const fault = logFileFault(output);
  if (fault === null) return;
  const { severity, reason } = fault;
  const message = `cannot write the log to ${output}: ${reason}`;
  const finding: UnplacedProblem =
    severity === 'error'
      ? error('unusable-log-file', message)
      : warning(
          'unusable-log-file',
          message,
          'run the gateway as a user who may, or change the owner of the file',
        );
  report(log, finding, { field: 'output' });
}

function logFileFault(path: string): Fault | null {
  try {
    const found = statSync(path);
    if (found.isDirectory()) return { severity: 'error', reason: 'it is a directory' };
    if (!found.isFile() && !found.isFIFO() && !found.isCharacterDevice()) {
      return { severity: 'error', reason: 'it is not a file' };
    }
    accessSync(path, constants.W_OK);
    return null;
  } catch (thrown) {
    return faultBehind(path, thrown);
  }
}

/** Checks that certificates, keys and history can be stored at their path. Nothing is created. */
export function checkStorage(options: GlobalOptions, report: Report): void {
  const path = resolve(options.storage ?? defaultStorage());
  const fault = directoryFault(path);
  if (fault === null) return;
  const message = `certificates, keys and history cannot be kept in ${path}: ${fault.reason}`;
  const code = 'storage-unusable';
  const hint = 'choose another directory with the global option storage <dir>';
  report(options, { severity: fault.severity, code, message, hint }, { field: 'storage' });
}

interface Fault {
  readonly severity: 'error' | 'warning';
  readonly reason: string;
}

function directoryFault(path: string): Fault | null {
  try {
    if (!statSync(path).isDirectory())
      return { severity: 'error', reason: `${path} is not a directory` };
    accessSync(path, constants.W_OK | constants.X_OK);
    return null;
  } catch (thrown) {
    return faultBehind(path, thrown);
  }
}

/** The fault behind the error of a look at a path. What does not exist is created below the first existing directory. */
function faultBehind(path: string, thrown: unknown): Fault | null {
  switch (codeOf(thrown)) {
    case 'ENOENT':
    case 'ENOTDIR':
      return path === dirname(path) ? null : directoryFault(dirname(path));
    case 'EROFS':
      return { severity: 'error', reason: `${path} is on a read-only file system` };
    default:
      // The gateway may run as another user.
      return { severity: 'warning', reason: `the current user may not write to ${path}` };
  }
}

/** Checks that every HTTPS address can get its certificate. */
export function checkCertificates(
  { options, sites }: Config,
  read: ReadFile,
  report: Report,
): void {
  let ordered = false;
  for (const { addresses, tls } of sites) {
    for (const address of addresses) {
      if (address.scheme !== 'https') continue;
      const origin = certificateOrigin(address.host, tls, options);
      if (origin.kind === 'none' && tls.onDemand && options.onDemand === null) {
        // The fault of one line for all addresses. `adapt` leaves out that line, and not the site.
        report(tls, origin.error, { field: 'onDemand' });
        break;
      }
      if (origin.kind === 'none') report(address, origin.error);
      if (origin.kind === 'local' && origin.warning !== undefined) {
        if (!isInFiles(address.host, sites, read)) report(address, origin.warning);
      }
      ordered ||= origin.kind === 'acme' || origin.kind === 'on-demand';
    }
  }
  const issuers = sites.flatMap(({ tls }) =>
    tls.source.kind === 'issuers' ? tls.source.issuers.filter((each) => each.kind === 'acme') : [],
  );
  for (const { dns } of [options.acme, ...sites.map(({ tls }) => tls), ...issuers]) {
    if (dns !== null) checkProvider(dns, report);
  }
  for (const issuer of issuers) {
    const { directory } = issuer;
    if (directory !== null && !isDirectory(directory)) report(issuer, badDirectory(directory));
  }
  if (!ordered) return;
  for (const directory of options.acme.directories) {
    if (isDirectory(directory)) continue;
    report(options, badDirectory(directory), { field: 'acme' });
  }
}

/** Whether the certificate files of a site are for a host: then a site without `tls` uses them. */
function isInFiles(host: string, sites: readonly SiteConfig[], read: ReadFile): boolean {
  return sites.some(({ tls: { source } }) => {
    if (source.kind !== 'files') return false;
    // Files that cannot be used are reported where they are named.
    const path = resolve(source.certFile);
    return orNull(() => coversHost(Buffer.from(read(path)).toString('utf8'), host)) === true;
  });
}

function isDirectory(url: string): boolean {
  return parseUrl(url)?.protocol === 'https:';
}

function badDirectory(url: string): UnplacedProblem {
  const message = `${url.slice(0, 80)} is not a URL of an ACME directory`;
  const hint = 'the URL must begin with https:// (RFC 8555 §6.1)';
  return error('bad-acme-directory', message, hint);
}

function checkProvider({ provider }: DnsChallengeConfig, report: Report): void {
  const fault = providerFault(provider);
  if (fault === null) return;
  const message = `${provider.kind} cannot write records: ${fault}`;
  report(provider, error('bad-dns-provider', message));
}

/**
 * Checks that the histories of a project from its last run still belong to a hub, and that it does not share
 * one with another project.
 *
 * @param project the configuration file, absolute
 */
export function checkHistories(config: Config, project: string, report: Report): void {
  const storage = resolve(config.options.storage ?? defaultStorage());
  const { leftBehind, shared } = historyNames(config, storage, project);
  for (const name of leftBehind) {
    const message = `hub ${name} is no longer configured: its history stays in ${join(storage, 'history')}, unused, and its streams end`;
    const hint = 'if the hub only changes its addresses, give it a name first: hub { name … }';
    report(null, warning('history-left-behind', message, hint));
  }
  for (const [name, other] of shared) {
    const message = `the history of ${name} in ${join(storage, 'history')} also belongs to ${other}`;
    const hint =
      'give this project its own storage: storage .hubgate in the global options. If it is the same project under another name, ignore this';
    report(null, warning('history-shared', message, hint));
  }
}
