import type { LookupFunction } from 'node:net';

/**
 * How a connection finds the address of a host: names below `localhost` are this machine, whatever
 * the system's resolver makes of them; of others the system knows.
 *
 * @see RFC 6761 §6.3
 */
export function resolvingOf(host: string): { readonly lookup?: LookupFunction } {
  return /(?:^|\.)localhost\.?$/i.test(host) ? { lookup: lookUpLoopback } : {};
}

const lookUpLoopback: LookupFunction = (_host, { all }, callback) => {
  if (all !== true) return callback(null, '127.0.0.1', 4);
  return callback(null, [
    { address: '127.0.0.1', family: 4 },
    { address: '::1', family: 6 },
  ]);
};
