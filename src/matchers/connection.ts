import { oneOf } from '../config/shape-values.ts';
import { object } from '../config/shape.ts';
import { addressRange } from '../config/shape-options.ts';
import { addressSet } from '../http/forwarded.ts';
import type { Cursor } from '../hubfile/cursor.ts';
import { choiceOf, ranges } from '../hubfile/values.ts';
import { type ListCondition, listOf, type Matcher } from './matcher.ts';

type AddressKind = 'remote_ip' | 'client_ip';

/** A condition about one of the two addresses of an exchange. */
function addressMatcher<Kind extends AddressKind>(
  kind: Kind,
  address: 'remoteAddress' | 'clientAddress',
  summary: string,
  read: (cursor: Cursor) => readonly string[],
): Matcher<ListCondition<Kind, 'ranges'>> {
  return listOf(kind, 'ranges', {
    item: addressRange,
    usage: `${kind} <range…>`,
    summary,
    read,
    compile(items) {
      const contains = addressSet(items);
      return (exchange) => {
        exchange.dependsOn?.('client');
        return contains(exchange[address]);
      };
    },
  });
}

export const remoteIp = addressMatcher(
  'remote_ip',
  'remoteAddress',
  'the peer; `private_ranges`',
  ofPeer,
);

export const clientIp = addressMatcher(
  'client_ip',
  'clientAddress',
  'the client behind trusted proxies; `private_ranges`',
  ranges,
);

/** Caddy once trusted the client's own value for its address here. */
function ofPeer(cursor: Cursor): readonly string[] {
  const word = cursor.peek();
  if (word?.text === 'forwarded') {
    const message =
      'remote_ip is the address of the connection; hubgate does not support forwarded';
    const hint =
      'write client_ip <ranges…>, and servers { trusted_proxies … } in the global options';
    cursor.fail(word.span, 'unsupported-option', message, hint);
  }
  return ranges(cursor);
}

export const PROTOCOLS = [
  'http',
  'https',
  'grpc',
  'http/1.0',
  'http/1.0+',
  'http/1.1',
  'http/1.1+',
  'http/2',
  'http/2+',
  // No request has it, but a Caddyfile may ask.
  'http/3',
  'http/3+',
] as const;

export interface ProtocolCondition {
  readonly kind: 'protocol';
  readonly protocol: string;
}

export const protocol: Matcher<ProtocolCondition> = {
  data: { shape: () => object({ protocol: oneOf<string>(...PROTOCOLS) }) },
  syntax: {
    usage: 'protocol http|https|grpc|http/1.1|http/2',
    summary: 'the protocol',
    read: (cursor) => [
      { kind: 'protocol', protocol: choiceOf(cursor, cursor.argument('a protocol'), PROTOCOLS) },
    ],
    // As in Caddy, the later one counts.
    merge: (_, b) => b,
  },
  /** A `+` at the end includes later versions. */
  compile({ protocol }) {
    const wanted = protocol.toLowerCase();
    if (wanted === 'http' || wanted === 'https') return (exchange) => exchange.scheme === wanted;
    if (wanted === 'grpc') {
      return (exchange) => {
        exchange.dependsOn?.({ field: 'content-type' });
        return exchange.headers.get('content-type')?.startsWith('application/grpc') === true;
      };
    }
    const orLater = wanted.endsWith('+');
    const version = Number(wanted.replace(/^http\/|\+$/g, ''));
    return (exchange) => {
      exchange.dependsOn?.('client');
      const asked = Number(exchange.httpVersion);
      return orLater ? asked >= version : asked === version;
    };
  },
};
