import { isIP } from 'node:net';
import type { SiteAddress } from './config.ts';

/** An address as it could stand in a Hubfile. */
export function siteAddressText({ scheme, host, port }: SiteAddress): string {
  const name = isIP(host) === 6 ? `[${host}]` : host;
  return `${scheme}://${name}${port === null ? '' : `:${port}`}`;
}
