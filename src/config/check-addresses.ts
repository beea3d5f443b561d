import { isIP } from 'node:net';
import { bindAddressText } from './bind-address.ts';
import type { BindAddress, Config, SiteAddress, SiteConfig } from './config.ts';
import type { Report } from './problem.ts';
import { siteAddressText } from './site-address.ts';

const HOST = /^(?:\*\.)?[a-z0-9_-]+(?:\.[a-z0-9_-]+)*$/;
const MAX_HOST = 253;

/** Every address belongs to one site, every port speaks either HTTP or HTTPS, every socket has one mode. */
export function checkAddresses({ options, sites }: Config, report: Report): void {
  const owners = new Map<string, SiteAddress>();
  const speakers = new Map<string, SiteAddress>();
  const sockets = new Map<string, SiteConfig['bind']>();
  for (const site of sites) {
    checkModes(sockets, site, report);
    if (site.addresses.length === 0) {
      const message = 'a site needs an address';
      report(site, { severity: 'error', code: 'bad-address', message });
    }
    for (const address of site.addresses) {
      checkHost(address, report);
      const port =
        address.port ?? (address.scheme === 'http' ? options.httpPort : options.httpsPort);
      for (const listener of listenersOf(site, port)) {
        checkOwner(owners, `${listener} ${address.host}`, address, report);
        checkScheme(speakers, listener, address, report);
      }
    }
  }
}

/** Where an address is served, by names that tell listeners apart. */
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
  sockets: Map<string, SiteConfig['bind']>,
  { bind }: SiteConfig,
  report: Report,
): void {
  for (const one of bind) {
    if (one.kind !== 'unix') continue;
    const other = sockets.get(one.path);
    if (other === undefined) {
      sockets.set(one.path, bind);
      continue;
    }
    const same = other.some((its) => bindAddressText(its) === bindAddressText(one));
    if (same) continue;
    const message = `the socket ${one.path} cannot have two modes`;
    report(bind, { severity: 'error', code: 'two-modes', message }, { other });
  }
}

function checkHost(address: SiteAddress, report: Report): void {
  const { host } = address;
  if (host === '' || isIP(host) !== 0 || (host.length <= MAX_HOST && HOST.test(host))) return;
  const message = `"${host.slice(0, 80)}" is no host name`;
  report(address, { severity: 'error', code: 'bad-address', message });
}

function checkOwner(
  owners: Map<string, SiteAddress>,
  key: string,
  address: SiteAddress,
  report: Report,
): void {
  const other = owners.get(key);
  if (other === undefined || other === address) {
    owners.set(key, address);
    return;
  }
  const message = `two sites have the address ${siteAddressText(address)}`;
  report(address, { severity: 'error', code: 'duplicate-address', message }, { other });
}

function checkScheme(
  speakers: Map<string, SiteAddress>,
  listener: string,
  address: SiteAddress,
  report: Report,
): void {
  const other = speakers.get(listener);
  if (other === undefined) {
    speakers.set(listener, address);
    return;
  }
  if (other.scheme === address.scheme) return;
  const message = `${listener} cannot speak both HTTP (${siteAddressText(address.scheme === 'http' ? address : other)}) and HTTPS (${siteAddressText(address.scheme === 'http' ? other : address)})`;
  report(address, { severity: 'error', code: 'mixed-schemes', message }, { other });
}
