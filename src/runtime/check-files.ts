import { registry } from '../directives/registry.ts';
import { resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { jwksFault } from '../auth/jwks.ts';
import type { GlobalOptions, JwksKeySource, SiteAddress, SiteConfig } from '../config/config.ts';
import { hubsOf } from '../config/sites.ts';
import { type Report, whyUnreadable } from '../config/problem.ts';
import { filesRead } from '../config/routes.ts';
import { messageOf } from '../kernel/error.ts';
import { certificateNames } from '../tls/certificate-store.ts';
import { coversHost, pairFault } from '../tls/file-certificates.ts';
import { certificatesIn } from '../tls/handshake-policy.ts';

/** The content of the file at an absolute path; throws if it cannot be read. */
export type ReadFile = (path: string) => Uint8Array;

/** Whether the file of roots that the options name can be used. */
export function checkOptionFiles({ acme }: GlobalOptions, read: ReadFile, report: Report): void {
  new FileCheck(read, report).roots(acme, 'rootFile', acme.rootFile);
}

/** Whether the certificates, keys and trust pools that a site names are there and can be used. */
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
  if (clientAuth !== null) check.roots(clientAuth, 'trustPoolFile', clientAuth.trustPoolFile);
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
      this.#report(source, { severity: 'error', code: 'invalid-jwks', message }, { field: 'uri' });
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
    if (fault === null) {
      this.#names(source, cert, addresses);
      return;
    }
    const [field, file] =
      fault.of === 'key' ? (['keyFile', keyFile] as const) : (['certFile', certFile] as const);
    this.#unusable(source, field, `cannot use the ${fault.of} ${file}: ${fault.reason}`);
  }

  /** Browsers refuse a certificate that is for others. */
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
    const hint = 'give the site the certificate of its name; clients refuse this one';
    const code = 'certificate-for-others';
    this.#report(source, { severity: 'warning', code, message, hint }, { field: 'certFile' });
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
      this.#report(about, { severity: 'error', code: 'unreadable-file', message }, { field });
      return null;
    }
  }

  #unusable(about: object, field: string, message: string): void {
    const code = 'certificate-unusable';
    this.#report(about, { severity: 'error', code, message }, { field });
  }
}
