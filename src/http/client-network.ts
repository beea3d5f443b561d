/** Who a client is to whoever counts: its address, of IPv6 its /64, all of whose addresses are its own. */
export function clientNetwork(address: string): string {
  if (!address.includes(':') || address.startsWith('::ffff:')) return address;
  const [head = '', tail] = address.split('::');
  const front = head.split(':').filter((part) => part !== '');
  const back = (tail ?? '').split(':').filter((part) => part !== '');
  const zeros = tail === undefined ? 0 : Math.max(0, 8 - front.length - back.length);
  return [...front, ...Array.from({ length: zeros }, () => '0'), ...back].slice(0, 4).join(':');
}
