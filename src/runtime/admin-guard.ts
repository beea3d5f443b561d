import type { IncomingMessage } from 'node:http';
import { isIP } from 'node:net';
import type { ListenAddress } from '../config/config.ts';

const LOOPBACK = ['localhost', '127.0.0.1', '[::1]'];
const ANY_INTERFACE = ['0.0.0.0', '::'];

/**
 * Whether a request may come from the operator. A page in his browser must not administer the
 * gateway: `Host` has to be a name of the listener (else a foreign name that was rebound to it
 * would do), and what a browser says of where a request comes from has to be the listener as well.
 */
export function mayAdminister(
  { headers }: Pick<IncomingMessage, 'headers'>,
  address: ListenAddress,
): boolean {
  const { host, origin } = headers;
  if (host === undefined || !isOwnHost(host.toLowerCase(), address)) return false;
  const site = headers['sec-fetch-site'];
  if (site !== undefined && site !== 'same-origin' && site !== 'none') return false;
  return origin === undefined || origin.toLowerCase() === `http://${host.toLowerCase()}`;
}

/** The port may be mapped, so only the name counts. */
function isOwnHost(host: string, address: ListenAddress): boolean {
  const name = host.replace(/:\d{1,5}$/, '');
  if (LOOPBACK.includes(name) || name === bracketed(address.host.toLowerCase())) return true;
  // Rebinding needs a name; an address of this machine cannot be rebound.
  return ANY_INTERFACE.includes(address.host) && isIP(name.replace(/^\[(.*)\]$/, '$1')) !== 0;
}

function bracketed(host: string): string {
  return isIP(host) === 6 ? `[${host}]` : host;
}
