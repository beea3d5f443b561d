import { isIP } from 'node:net';
import { firstOf } from '../kernel/collections.ts';
import { bindAddressText, parseUnixAddress } from './bind-address.ts';
import type {
  BindAddress,
  Config,
  GlobalOptions,
  ListenAddress,
  SiteAddress,
  SiteConfig,
  UnixAddress,
} from './config.ts';
import { type UnplacedProblem, type Report, error } from './problem.ts';
import { siteAddressText } from './sites.ts';
import { defaultOptions } from './shape-options.ts';

const HOST = /^(?:\*\.)?[a-z0-9_-]+(?:\.[a-z0-9_-]+)*$/;
const MAX_HOST = 253;

/**
 * Checks that every address belongs to one site, every port speaks either HTTP or HTTPS, and every socket has
 * one mode.
 */
export function checkAddresses({ options, sites }: Config, report: Report): void {
  const owners = new Map<string, SiteAddress>();
  const speakers = new Map<string, SiteAddress>();
  const sockets: Parameters<typeof checkModes>[0] = new Map();
  for (const site of sites) {
    checkModes(sockets, site, report);
    if (site.addresses.length === 0) {
      const message = 'a site needs an address';
      report(site, error('bad-address', message));
    }
    for (const address of site.addresses) {
      checkHost(address, report);
      for (const listener of listenersOf(site, portOf(address, options))) {
        checkOwner(owners, `${listener} ${address.scheme} ${address.host}`, address, report);
        checkScheme(speakers, listener, address, report);
      }
    }
  }
}

/** The listeners of an address, by names that identify them. */
function listenersOf({ bind }: SiteConfig, port: number): ReadonlySet<string> {
  if (bind.length === 0) return new Set([`port ${port}`]);
  return new Set(bind.map((one) => listenerName(one, port)));
}

function listenerName(bind: BindAddress, port: number): string {
  switch (bind.kind) {
    case 'host':
      return `port ${port} of ${bind.host}`;
    case 'unix':
      return `unix/${bind.path}`;
    case 'fd':
      return `fd/${bind.fd}`;
  }
}

function checkModes(
  sockets: Map<string, { readonly mode: number; readonly bind: SiteConfig['bind'] }>,
  { bind }: SiteConfig,
  report: Report,
): void {
  for (const one of bind) {
    if (one.kind !== 'unix') continue;
    checkSocket(one, bind, report);
    const { path, mode } = one;
    const first = firstOf(sockets, path, { mode, bind });
    if (first.mode === mode) continue;
    const message = `the socket ${path} cannot have two modes`;
    report(bind, error('two-modes', message), first.bind === bind ? {} : { other: first.bind });
  }
}

/** A placeholder may have made the path too long. */
function checkSocket(socket: UnixAddress, about: object, report: Report): void {
  if (parseUnixAddress(bindAddressText(socket)) !== null) return;
  const message = `"${socket.path}" is too long for the path of a socket, or it is not the path of a file`;
  report(about, error('bad-address', message));
}

function checkHost(address: SiteAddress, report: Report): void {
  const { host } = address;
  if (host === '' || isIP(host) !== 0 || (host.length <= MAX_HOST && HOST.test(host))) return;
  const message = `"${host.slice(0, 80)}" is not a host name`;
  report(address, error('bad-address', message));
}

function checkOwner(
  owners: Map<string, SiteAddress>,
  key: string,
  address: SiteAddress,
  report: Report,
): void {
  const other = firstOf(owners, key, address);
  if (other === address) return;
  const message = `two sites have the same address ${siteAddressText(address)}`;
  report(address, error('duplicate-address', message), { other });
}

function checkScheme(
  speakers: Map<string, SiteAddress>,
  listener: string,
  address: SiteAddress,
  report: Report,
): void {
  const other = firstOf(speakers, listener, address);
  if (other.scheme === address.scheme) return;
  const message = `${listener} cannot speak both HTTP (${siteAddressText(address.scheme === 'http' ? address : other)}) and HTTPS (${siteAddressText(address.scheme === 'http' ? other : address)})`;
  report(address, error('mixed-schemes', message), { other });
}

/** The hosts that mean all interfaces. */
export const ANY = new Set(['', '0.0.0.0', '::']);
export const LOOPBACK = new Set(['localhost', '127.0.0.1', '::1']);

/**
 * Checks that the ports of HTTP, HTTPS, the admin API and metrics differ, and that no site has one of the
 * latter two, or the socket of the admin API.
 */
export function checkPorts({ options, sites }: Config, report: Report): void {
  const { admin, metrics, httpPort, httpsPort } = options;
  if (httpPort === httpsPort) {
    // The option that is set, if only one is.
    const field = httpsPort === defaultOptions.httpsPort ? 'httpPort' : 'httpsPort';
    report(options, clash(`http_port and https_port are both ${httpPort}`), { field });
  }
  if (admin !== 'off' && 'socket' in admin) checkAdminSocket(admin, sites, report);
  else {
    if (admin !== 'off' && metrics !== 'off' && admin.port === metrics.port && admin.port !== 0) {
      const message = `the admin API and the listener for metrics both have the port ${admin.port}`;
      report(metrics, clash(message), { other: admin });
    }
    checkOwn(admin, 'the admin API', { options, sites }, report);
  }
  checkOwn(metrics, 'the listener for metrics', { options, sites }, report);
}

function checkAdminSocket(
  admin: { readonly socket: UnixAddress },
  sites: Config['sites'],
  report: Report,
): void {
  const { path } = admin.socket;
  checkSocket(admin.socket, admin, report);
  const site = sites.find(({ bind }) =>
    bind.some((one) => one.kind === 'unix' && one.path === path),
  );
  if (site === undefined) return;
  const message = `the admin API and a site both have the socket ${path}`;
  const hint = 'give each a socket of its own';
  report(admin, error('port-clash', message, hint), { other: site.bind });
}

function checkOwn(
  own: ListenAddress | 'off',
  what: string,
  { options, sites }: Config,
  report: Report,
): void {
  const { httpPort, httpsPort } = options;
  // Port 0 means any free port.
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

/** The port of a site's address, explicit or by default. */
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
  // `localhost` may mean either of the others.
  return LOOPBACK.has(a) && LOOPBACK.has(b) && (a === 'localhost' || b === 'localhost');
}

function clash(message: string): UnplacedProblem {
  const hint = 'give each a port of its own';
  return error('port-clash', message, hint);
}
