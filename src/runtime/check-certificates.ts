import type { Config } from '../config/config.ts';
import type { Finding, Report } from '../config/problem.ts';
import { type DnsChallengeConfig, providerFault } from '../config/dns-challenge.ts';
import { parseUrl } from '../kernel/parse-url.ts';
import { certificateOrigin } from '../tls/certificate-policy.ts';

/** Whether every HTTPS address can get the certificate that it is to have. */
export function checkCertificates({ options, sites }: Config, report: Report): void {
  let ordered = false;
  for (const { addresses, tls } of sites) {
    for (const address of addresses) {
      if (address.scheme !== 'https') continue;
      const origin = certificateOrigin(address.host, tls, options);
      if (origin.kind === 'none') report(address, origin.error);
      if (origin.kind === 'local' && origin.warning !== undefined) report(address, origin.warning);
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

function isDirectory(url: string): boolean {
  return parseUrl(url)?.protocol === 'https:';
}

function badDirectory(url: string): Finding {
  return {
    severity: 'error',
    code: 'bad-acme-directory',
    message: `${url.slice(0, 80)} is no URL of an ACME directory`,
    hint: 'a directory begins with https:// (RFC 8555 §6.1)',
  };
}

function checkProvider({ provider }: DnsChallengeConfig, report: Report): void {
  const fault = providerFault(provider);
  if (fault === null) return;
  const message = `${provider.kind} cannot write records: ${fault}`;
  report(provider, { severity: 'error', code: 'bad-dns-provider', message });
}
