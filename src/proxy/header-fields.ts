import { isIP } from 'node:net';
import { dropNominated, expectsContinue, HOP_BY_HOP } from '../http/field-values.ts';
import type { Exchange } from '../http/exchange.ts';
import type { AddressSet } from '../http/forwarded.ts';
import type { HeaderList } from '../http/header-list.ts';
import type { UpstreamAddress } from './address.ts';
import type { ReceivedProtocol } from './forwarding.ts';
import { announcedTrailers } from './trailers.ts';

/** Who may send forwarded fields, and which fields these are. */
export interface ForwardedFields {
  /** Peers whose forwarded fields are trusted. */
  readonly trusted: AddressSet;
  /** Whether a field, by its lower-case name, is one of them. */
  readonly isForwarded: (key: string) => boolean;
}

/** The values of `Via` (RFC 9110 §7.6.3) by the version of the protocol that was received. */
const VIA = { '1.0': '1.0 hubgate', '1.1': '1.1 hubgate', '2.0': '2.0 hubgate' } as const;

/** Fields of a request that the gateway writes itself: it frames the message, and knows only one expectation. */
const WRITTEN_HERE = new Set(['content-length', 'expect', 'trailer']);

/**
 * The fields of the request for the upstream, before `header_up` and without framing, except for a `Trailer`
 * if trailer fields follow the body. An existing `Expect` is kept.
 */
export function upstreamRequestFields(
  exchange: Exchange,
  address: UpstreamAddress,
  { trusted, isForwarded }: ForwardedFields,
): HeaderList {
  const headers = exchange.headers.clone();
  const wantsTrailers = headers.combined('te')?.toLowerCase().includes('trailers') ?? false;
  // The fields that `Connection` nominates were removed when the exchange began.
  headers.deleteWhere(isWrittenHere);
  const trailers = announcedTrailers(exchange);
  if (trailers.length > 0) headers.append('Trailer', trailers.join(', '));
  if (mayExpect(exchange)) headers.append('Expect', '100-continue');
  if (wantsTrailers) headers.append('TE', 'trailers');
  if (!trusted(exchange.remoteAddress)) headers.deleteWhere(isForwarded);
  appendForwarded(headers, exchange);
  headers.append('Via', VIA[exchange.httpVersion]);
  // A server behind TLS selects its certificate and site by name, so it gets its own name, as in Caddy.
  const keepsHost = address.protocol === 'http:' && exchange.host !== '';
  headers.set('Host', keepsHost ? exchange.host : address.authority);
  return headers;
}

/** The fields of a response for the client, before `header_down`. */
export function clientResponseFields(headers: HeaderList, received: ReceivedProtocol): HeaderList {
  // RFC 9112 §6.3: with a transfer coding, the length is not that of the body.
  if (headers.has('transfer-encoding')) headers.delete('content-length');
  dropNominated(headers);
  headers.deleteWhere(isHopByHop);
  // RFC 7838 §3: it names other places of the app's own origin, and clients know only the gateway. Caddy removes it, too.
  headers.delete('alt-svc');
  headers.append('Via', VIA[received]);
  return headers;
}

function isHopByHop(key: string): boolean {
  return HOP_BY_HOP.has(key);
}

function isWrittenHere(key: string): boolean {
  return HOP_BY_HOP.has(key) || WRITTEN_HERE.has(key);
}

/** RFC 9110 §10.1.1: an HTTP/1.0 client cannot receive a 100, whatever it expects. */
function mayExpect(exchange: Exchange): boolean {
  const { hasBody, httpVersion, upgrade } = exchange;
  return hasBody && httpVersion !== '1.0' && upgrade === null && expectsContinue(exchange);
}

function appendForwarded(headers: HeaderList, exchange: Exchange): void {
  const { remoteAddress } = exchange;
  const chain = headers.combined('x-forwarded-for');
  if (remoteAddress !== '') {
    const forwardedFor = chain ? `${chain}, ${remoteAddress}` : remoteAddress;
    headers.set('X-Forwarded-For', forwardedFor);
  }
  // A remaining field comes from a trusted proxy, whose information is better.
  if (!headers.has('x-forwarded-proto')) headers.append('X-Forwarded-Proto', exchange.scheme);
  if (!headers.has('x-forwarded-host')) headers.append('X-Forwarded-Host', exchange.host);
  const forwarded = headers.combined('forwarded');
  if (forwarded !== undefined && isIP(remoteAddress) !== 0) {
    const node = isIP(remoteAddress) === 6 ? `"[${remoteAddress}]"` : remoteAddress;
    headers.set('Forwarded', `${forwarded}, for=${node}`);
  }
}
