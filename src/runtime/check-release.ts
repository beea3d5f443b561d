import { isIP } from 'node:net';
import type { Config, SiteConfig } from '../config/config.ts';
import type { Report } from '../config/problem.ts';

/** Names that no public authority certifies. */
const LOCAL_NAME = /(?:^|\.)(?:localhost|local|internal|home\.arpa)$/;

/**
 * What the language knows and this release cannot do: refused where serving would break a promise,
 * told where something else serves in its place.
 */
export function checkRelease({ options, sites }: Config, report: Report): void {
  if (options.servers.proxyProtocol.length > 0) {
    report(options.servers, unsupported('the PROXY protocol', 'leave proxy_protocol out'));
  }
  for (const site of sites) checkTls(site, options.localCerts, report);
}

function checkTls({ tls, addresses }: SiteConfig, localCerts: boolean, report: Report): void {
  if (tls.clientAuth !== null) {
    // Serving without it would let everybody in.
    report(tls, unsupported('client certificates', 'leave client_auth out'));
  }
  if (tls.source.kind === 'acme') {
    report(tls, unsupported('ACME', 'name a certificate: tls <cert> <key>, or use tls internal'));
  }
  if (tls.source.kind !== 'auto' || localCerts) return;
  for (const address of addresses) {
    const { scheme, host } = address;
    if (scheme !== 'https' || host === '' || isIP(host) !== 0 || LOCAL_NAME.test(host)) continue;
    report(address, {
      severity: 'warning',
      code: 'local-certificate',
      message: `${host} gets a certificate of the gateway's own authority, which browsers do not know: this release does not speak ACME`,
      hint: 'name a certificate: tls <cert> <key>',
    });
  }
}

function unsupported(what: string, hint: string) {
  return {
    severity: 'error',
    code: 'not-supported',
    message: `${what} is not supported in this release`,
    hint,
  } as const;
}
