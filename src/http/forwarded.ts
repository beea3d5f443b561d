import { BlockList, isIP, SocketAddress } from 'node:net';
import { PRIVATE_RANGES } from '../config/well-formed.ts';
import { HubgateError } from '../kernel/error.ts';
import type { HeaderList } from './header-list.ts';

/** Whether an IP address belongs to a set. Returns false for anything that is not an address. */
export type AddressSet = (address: string) => boolean;

/** Converts `::ffff:192.0.2.1` to `192.0.2.1`: dual-stack sockets report IPv4 clients in the long form. */
export function plainAddress(address: string): string {
  return address.startsWith('::ffff:') && address.includes('.') ? address.slice(7) : address;
}

/** Entries of the client address fields that are examined; a client chooses their number. */
const MAX_FORWARDED_ENTRIES = 64;

/**
 * A set of CIDR ranges, single addresses and `private_ranges`.
 *
 * @throws HubgateError `invalid-address-range`
 */
export function addressSet(ranges: readonly string[]): AddressSet {
  if (ranges.length === 0) return () => false;
  const list = new BlockList();
  for (const range of ranges) {
    for (const one of range === 'private_ranges' ? PRIVATE_RANGES : [range]) addRange(list, one);
  }
  return (address) => {
    // BlockList returns false for an address that it cannot parse, but only isIP parses strictly.
    const version = isIP(address);
    return version !== 0 && list.check(address, version === 6 ? 'ipv6' : 'ipv4');
  };
}

function addRange(list: BlockList, range: string): void {
  const slash = range.indexOf('/');
  const address = slash === -1 ? range : range.slice(0, slash);
  const version = isIP(address);
  const bits = version === 6 ? 128 : 32;
  const prefix = slash === -1 ? String(bits) : range.slice(slash + 1);
  if (version === 0 || !/^\d{1,3}$/.test(prefix) || Number(prefix) > bits) {
    throw new HubgateError(
      'invalid-address-range',
      `"${range}" is not an address range: write an IP address, a CIDR range such as 10.0.0.0/8, or private_ranges`,
    );
  }
  list.addSubnet(address, Number(prefix), version === 6 ? 'ipv6' : 'ipv4');
}

/**
 * The address of the client behind trusted proxies: in the first of `fields` whose last entry is an address, the
 * first address from the right that is not itself trusted. Entries to its left cannot be trusted, and neither can
 * those to the left of one that is not an address. Returns the peer's own address if the peer is not trusted, or if
 * no field has an address.
 */
export function clientAddress(
  peer: string,
  headers: HeaderList,
  trusted: AddressSet,
  fields: readonly string[],
): string {
  if (!trusted(peer)) return peer;
  for (const field of fields) {
    let client: string | null = null;
    for (const entry of lastEntries(headers.getAll(field))) {
      const address = addressOf(entry.trim());
      if (address === null) break;
      client = address;
      if (!trusted(address)) break;
    }
    if (client !== null) return client;
  }
  return peer;
}

/** The entries of lists from the right, up to the limit. The entries to their left are not examined. */
function* lastEntries(values: readonly string[]): Generator<string, void, void> {
  let left = MAX_FORWARDED_ENTRIES;
  for (let at = values.length - 1; at >= 0; at -= 1) {
    const value = values[at] ?? '';
    for (let end = value.length; end >= 0 && left > 0; left -= 1) {
      const comma = end === 0 ? -1 : value.lastIndexOf(',', end - 1);
      yield value.slice(comma + 1, end);
      end = comma;
    }
  }
}

/** `192.0.2.1`, `192.0.2.1:4711`, `2001:db8::1`, `[2001:db8::1]` and `[2001:db8::1]:4711`. */
function addressOf(entry: string): string | null {
  if (isIP(entry) !== 0) return canonicalAddress(entry);
  const withPort = /^(?:\[([^\]]+)\]|([\d.]+))(?::\d{1,5})?$/.exec(entry);
  const address = withPort?.[1] ?? withPort?.[2] ?? '';
  return isIP(address) === 0 ? null : canonicalAddress(address);
}

/**
 * The same form as that of a socket, so that a client has only one address, however a proxy spells it:
 * `::ffff:c000:201`, `2001:DB8:0::1`.
 */
function canonicalAddress(address: string): string {
  if (isIP(address) === 4) return address;
  return plainAddress(new SocketAddress({ address, family: 'ipv6' }).address);
}

/**
 * Whether only a trusted proxy may send the field with a lower-case name: `Forwarded`, every `X-Forwarded-*`, and
 * the configured `fields` with the client's address.
 */
export function forwardedFields(fields: readonly string[]): (key: string) => boolean {
  const others = new Set(fields.filter((field) => !isForwarded(field)));
  return others.size === 0 ? isForwarded : (key) => isForwarded(key) || others.has(key);
}

function isForwarded(key: string): boolean {
  return key === 'forwarded' || key.startsWith('x-forwarded-');
}

/** The eight groups of an IPv6 address, with the omitted zeros. */
export function ipv6Groups(address: string): string[] {
  const [before = [], after] = address
    .split('::')
    .map((part) => part.split(':').filter((group) => group !== ''));
  if (after === undefined) return before;
  const zeros = Math.max(0, 8 - before.length - after.length);
  return [...before, ...Array<string>(zeros).fill('0'), ...after];
}

/** An IP address of which so many bits are kept; the others are 0. */
export function maskedAddress(address: string, bits: number): string {
  if (isIP(address) === 4) {
    const bytes = address.split('.').map((part, at) => Number(part) & maskOf(bits - 8 * at, 8));
    return bytes.join('.');
  }
  const kept = ipv6Groups(withoutIPv4(address.replace(/%.*/, ''))).map((group, at) =>
    (Number.parseInt(group, 16) & maskOf(bits - 16 * at, 16)).toString(16),
  );
  return new SocketAddress({ address: kept.join(':'), family: 'ipv6' }).address;
}

/** The ones of a part of the address, of which so many bits are kept. */
function maskOf(bits: number, width: number): number {
  const kept = Math.max(0, Math.min(width, bits));
  return (2 ** kept - 1) * 2 ** (width - kept);
}

/** `::ffff:192.0.2.1` with its last four bytes as two groups. */
function withoutIPv4(address: string): string {
  return address.replace(/(\d+)\.(\d+)\.(\d+)\.(\d+)$/, (_whole, ...bytes: readonly string[]) => {
    const [a, b, c, d] = bytes.map(Number);
    const group = (high = 0, low = 0): string => (high * 256 + low).toString(16);
    return `${group(a, b)}:${group(c, d)}`;
  });
}

/**
 * The network of an address, `192.0.2.0/24`; empty if it has no such network. Anything that is not an IP
 * address is returned as it is.
 *
 * @param lengths of the prefix, `24` or for both versions of IP `24,64`
 */
export function networkOf(address: string, lengths: string): string {
  const version = isIP(address);
  if (version === 0) return address;
  const [ipv4, ipv6 = ipv4] = lengths.split(',').map(Number);
  const bits = (version === 4 ? ipv4 : ipv6) ?? NaN;
  return bits <= (version === 4 ? 32 : 128) ? `${maskedAddress(address, bits)}/${bits}` : '';
}
