import { isIP } from 'node:net';
import { requireUrl } from '../../kernel/parse-url.ts';

/**
 * The server name with which an authority asks for the TLS-ALPN-01 answer: the name itself, and
 * for an address the name of its reverse lookup (RFC 8738 §6).
 */
export function challengeName(name: string): string {
  switch (isIP(name)) {
    case 4:
      return `${name.split('.').toReversed().join('.')}.in-addr.arpa`;
    case 6:
      return `${nibbles(name).toReversed().join('.')}.ip6.arpa`;
    default:
      return name;
  }
}

/** The 32 hexadecimal digits of an IPv6 address. */
function nibbles(address: string): string[] {
  // The URL parser writes every IPv6 address with hexadecimal groups only.
  const plain = requireUrl(`http://[${address}]`).hostname.slice(1, -1);
  const [head = '', tail] = plain.split('::');
  const before = head === '' ? [] : head.split(':');
  const after = tail === undefined || tail === '' ? [] : tail.split(':');
  const zeros = Array.from({ length: 8 - before.length - after.length }, () => '0');
  return [...before, ...zeros, ...after].flatMap((group) => group.padStart(4, '0').split(''));
}
