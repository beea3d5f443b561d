import type { BindAddress, Config, GlobalOptions, ListenAddress, SiteAddress } from './config.ts';
import { defaultOptions } from './defaults.ts';
import type { Finding, Report } from './problem.ts';

const ANY = new Set(['', '0.0.0.0', '::']);
const LOOPBACK = new Set(['localhost', '127.0.0.1', '::1']);

/** The ports of HTTP, of HTTPS and of the admin API differ, and no site has the admin API's. */
export function checkPorts({ options, sites }: Config, report: Report): void {
  const { admin, httpPort, httpsPort } = options;
  if (httpPort === httpsPort) {
    // The one that is written, if only one is.
    const field = httpsPort === defaultOptions.httpsPort ? 'httpPort' : 'httpsPort';
    report(options, clash(`http_port and https_port are both ${httpPort}`), { field });
  }
  // Port 0 is any that is free.
  if (admin === 'off' || admin.port === 0) return;
  if (admin.port === httpPort || admin.port === httpsPort) {
    const name = admin.port === httpPort ? 'http_port' : 'https_port';
    report(admin, clash(`the admin API has the port of ${name}, ${admin.port}`));
    return;
  }
  for (const { addresses, bind } of sites) {
    const other = addresses.find((address) => portOf(address, options) === admin.port);
    if (other === undefined || !overlaps(admin, bind)) continue;
    report(admin, clash(`the admin API and a site both have the port ${admin.port}`), { other });
    return;
  }
}

function portOf({ scheme, port }: SiteAddress, { httpPort, httpsPort }: GlobalOptions): number {
  return port ?? (scheme === 'http' ? httpPort : httpsPort);
}

function overlaps({ host }: ListenAddress, bind: readonly BindAddress[]): boolean {
  if (bind.length === 0) return true;
  return bind.some((one) => one.kind === 'host' && share(one.host, host));
}

function share(a: string, b: string): boolean {
  if (a === b || ANY.has(a) || ANY.has(b)) return true;
  // `localhost` may be either of the others.
  return LOOPBACK.has(a) && LOOPBACK.has(b) && (a === 'localhost' || b === 'localhost');
}

function clash(message: string): Finding {
  const hint = 'give each a port of its own';
  return { severity: 'error', code: 'port-clash', message, hint };
}
