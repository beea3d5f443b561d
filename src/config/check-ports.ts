import type { BindAddress, Config, GlobalOptions, ListenAddress, SiteAddress } from './config.ts';
import { defaultOptions } from './defaults.ts';
import type { Finding, Report } from './problem.ts';

/** What stands for all interfaces. */
export const ANY = new Set(['', '0.0.0.0', '::']);
export const LOOPBACK = new Set(['localhost', '127.0.0.1', '::1']);

/** The ports of HTTP, HTTPS, the admin API and metrics differ, and no site has one of the latter. */
export function checkPorts({ options, sites }: Config, report: Report): void {
  const { admin, metrics, httpPort, httpsPort } = options;
  if (httpPort === httpsPort) {
    // The one that is written, if only one is.
    const field = httpsPort === defaultOptions.httpsPort ? 'httpPort' : 'httpsPort';
    report(options, clash(`http_port and https_port are both ${httpPort}`), { field });
  }
  if (admin !== 'off' && metrics !== 'off' && admin.port === metrics.port && admin.port !== 0) {
    const message = `the admin API and the listener for metrics both have the port ${admin.port}`;
    report(metrics, clash(message), { other: admin });
  }
  checkOwn(admin, 'the admin API', { options, sites }, report);
  checkOwn(metrics, 'the listener for metrics', { options, sites }, report);
}

function checkOwn(
  own: ListenAddress | 'off',
  what: string,
  { options, sites }: Config,
  report: Report,
): void {
  const { httpPort, httpsPort } = options;
  // Port 0 is any that is free.
  if (own === 'off' || own.port === 0) return;
  if (own.port === httpPort || own.port === httpsPort) {
    const name = own.port === httpPort ? 'http_port' : 'https_port';
    report(own, clash(`${what} has the port of ${name}, ${own.port}`));
    return;
  }
  for (const { addresses, bind } of sites) {
    const other = addresses.find((address) => portOf(address, options) === own.port);
    if (other === undefined || !overlaps(own, bind)) continue;
    report(own, clash(`${what} and a site both have the port ${own.port}`), { other });
    return;
  }
}

/** The port that a site's address has, written or not. */
export function portOf(
  { scheme, port }: SiteAddress,
  { httpPort, httpsPort }: GlobalOptions,
): number {
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
