import type { IncomingMessage } from 'node:http';
import { isIP } from 'node:net';
import type { AdminOptions } from '../config/config.ts';

const LOOPBACK = ['localhost', '127.0.0.1', '[::1]'];
const ANY_INTERFACE = ['0.0.0.0', '::'];

/**
 * Why a request may not come from the operator; null when it may. A page in his browser must not
 * administer the gateway: `Host` has to be a name of the listener, or one of `origins` (else a
 * foreign name that was rebound to it would do), and what a browser says of where a request comes
 * from has to be the listener as well.
 */
export function adminRefusal(
  { headers }: Pick<IncomingMessage, 'headers'>,
  admin: AdminOptions,
): string | null {
  const { host, origin } = headers;
  if (host === undefined || !isOwnHost(host.toLowerCase(), admin)) {
    return `the admin API is not called ${JSON.stringify((host ?? '').slice(0, 80))}; name it: admin … { origins <host> }`;
  }
  const site = headers['sec-fetch-site'];
  if (site !== undefined && site !== 'same-origin' && site !== 'none') return FOREIGN;
  if (origin === undefined || origin.toLowerCase() === `http://${host.toLowerCase()}`) return null;
  return FOREIGN;
}

const FOREIGN = 'pages of other origins may not use the admin API';

/** The port may be mapped, so only the name counts, but for an origin that has one. */
function isOwnHost(host: string, { host: own, origins }: AdminOptions): boolean {
  const name = host.replace(/:\d{1,5}$/, '');
  if (LOOPBACK.includes(name) || name === bracketed(own.toLowerCase())) return true;
  if (origins.includes(name) || origins.includes(host)) return true;
  // Rebinding needs a name; an address of this machine cannot be rebound.
  return ANY_INTERFACE.includes(own) && isIP(name.replace(/^\[(.*)\]$/, '$1')) !== 0;
}

function bracketed(host: string): string {
  return isIP(host) === 6 ? `[${host}]` : host;
}
