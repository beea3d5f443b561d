/** 16-bit parts of an IPv6 address that identify the network of one client: a /64. */
const PARTS_OF_CLIENT = 4;

/**
 * The network that counts as one client: the IPv4 address, or the /64 of an IPv6 address, because a client
 * can use all addresses in it.
 */
export function clientNetwork(address: string): string {
  if (isIpv4(address)) return address;
  return partsOf(address).slice(0, PARTS_OF_CLIENT).join(':');
}

/**
 * The network that shares its turns among its clients: the /24 of an IPv4 address, or the /56 of an IPv6
 * address. An attacker has many addresses in few networks.
 */
export function fairShareNetwork(address: string): string {
  if (isIpv4(address))
    return address
      .replace(/^::ffff:/, '')
      .split('.')
      .slice(0, 3)
      .join('.');
  const [first = '0', second = '0', third = '0', fourth = '0'] = partsOf(address);
  const upper = Number.parseInt(fourth, 16) >> 8;
  return [first, second, third, upper.toString(16)].join(':');
}

function isIpv4(address: string): boolean {
  return !address.includes(':') || address.startsWith('::ffff:');
}

/** The eight parts of an IPv6 address, with the omitted zeros. */
function partsOf(address: string): string[] {
  const [head = '', tail] = address.split('::');
  const front = head.split(':').filter((part) => part !== '');
  const back = (tail ?? '').split(':').filter((part) => part !== '');
  const zeros = tail === undefined ? 0 : Math.max(0, 8 - front.length - back.length);
  return [...front, ...Array.from({ length: zeros }, () => '0'), ...back];
}
