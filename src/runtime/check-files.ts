import { resolve } from 'node:path';
import type { GlobalOptions, SiteConfig } from '../config/config.ts';
import type { Report } from '../config/problem.ts';
import { filesRead } from '../config/routes.ts';
import { whyUnreadable } from '../config/unreadable.ts';
import { messageOf } from '../kernel/error.ts';
import { pairFault } from '../tls/file-certificates.ts';
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
  if (source.kind === 'files') check.pair(source);
  if (clientAuth !== null) check.roots(clientAuth, 'trustPoolFile', clientAuth.trustPoolFile);
  for (const { about, field, path } of filesRead([...site.routes, ...site.errorRoutes])) {
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

  pair(source: Extract<SiteConfig['tls']['source'], { kind: 'files' }>): void {
    const { certFile, keyFile } = source;
    const cert = this.#text(source, 'certFile', certFile);
    const key = this.#text(source, 'keyFile', keyFile);
    if (cert === null || key === null) return;
    const fault = pairFault(cert, key);
    if (fault === null) return;
    const [field, file] =
      fault.of === 'key' ? (['keyFile', keyFile] as const) : (['certFile', certFile] as const);
    this.#unusable(source, field, `cannot use the ${fault.of} ${file}: ${fault.reason}`);
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
