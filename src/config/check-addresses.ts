import { isIP } from 'node:net';
import type { Config, SiteAddress, SiteConfig } from './config.ts';
import type { Report } from './problem.ts';

const HOST = /^(?:\*\.)?[a-z0-9_-]+(?:\.[a-z0-9_-]+)*$/;
const MAX_HOST = 253;

/** Every address belongs to one site, and every port speaks either HTTP or HTTPS. */
export function checkAddresses({ options, sites }: Config, report: Report): void {
  const owners = new Map<string, SiteAddress>();
  const speakers = new Map<string, SiteAddress>();
  for (const site of sites) {
    if (site.addresses.length === 0) {
      const message = 'a site needs an address';
      report(site, { severity: 'error', code: 'bad-address', message });
    }
    for (const address of site.addresses) {
      checkHost(address, report);
      const port =
        address.port ?? (address.scheme === 'http' ? options.httpPort : options.httpsPort);
      for (const binding of interfacesOf(site)) {
        const listener = `${binding} ${port}`;
        checkOwner(owners, `${listener} ${address.host}`, address, report);
        checkScheme(speakers, listener, address, port, report);
      }
    }
  }
}

function interfacesOf(site: SiteConfig): readonly string[] {
  return site.bind.length === 0 ? ['*'] : [...new Set(site.bind)];
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
  const message = `two sites have the address ${describe(address)}`;
  report(address, { severity: 'error', code: 'duplicate-address', message }, { other });
}

function checkScheme(
  speakers: Map<string, SiteAddress>,
  listener: string,
  address: SiteAddress,
  port: number,
  report: Report,
): void {
  const other = speakers.get(listener);
  if (other === undefined) {
    speakers.set(listener, address);
    return;
  }
  if (other.scheme === address.scheme) return;
  const message = `port ${port} cannot speak both HTTP (${describe(address.scheme === 'http' ? address : other)}) and HTTPS (${describe(address.scheme === 'http' ? other : address)})`;
  report(address, { severity: 'error', code: 'mixed-schemes', message }, { other });
}

function describe({ scheme, host, port }: SiteAddress): string {
  const name = isIP(host) === 6 ? `[${host}]` : host;
  return `${scheme}://${name}${port === null ? '' : `:${port}`}`;
}
