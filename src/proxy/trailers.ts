import type { Exchange } from '../http/exchange.ts';
import { HOP_BY_HOP, listMembers } from '../http/field-values.ts';
import type { HeaderList } from '../http/header-list.ts';

/**
 * Fields that are not allowed in trailers (RFC 9110 §6.5.1): they frame or route the message, modify the
 * request, authenticate, control the response or describe how to process the content.
 */
const FORBIDDEN = new Set([
  ...HOP_BY_HOP,
  'age',
  'authorization',
  'cache-control',
  'content-encoding',
  'content-length',
  'content-range',
  'content-type',
  'cookie',
  'date',
  'expect',
  'expires',
  'forwarded',
  'host',
  'location',
  'max-forwards',
  'pragma',
  'range',
  'retry-after',
  'set-cookie',
  'trailer',
  'vary',
  'via',
  'www-authenticate',
  'x-request-id',
]);

/** Conditions, and the information of proxies about the client. */
const FORBIDDEN_PREFIXES = ['if-', 'x-forwarded-'];

/**
 * The names of the trailer fields to announce to the upstream; empty for a request that announces none, or
 * whose framing cannot carry any (RFC 9112 §6.5, §7.1.2).
 */
export function announcedTrailers(exchange: Exchange): string[] {
  const { headers, hasBody, httpVersion, upgrade } = exchange;
  if (!hasBody || upgrade !== null) return [];
  if (httpVersion !== '2.0' && !headers.has('transfer-encoding')) return [];
  const nominated = new Set(listMembers(headers.combined('connection')).map(lowerCase));
  return listMembers(headers.combined('trailer')).filter(
    (name) => !isForbidden(lowerCase(name)) && !nominated.has(lowerCase(name)),
  );
}

/** The fields of `trailers` that `head` announces; none of them may repeat a field of the head. */
export function permittedTrailers(head: HeaderList, trailers: HeaderList): HeaderList {
  const announced = new Set(listMembers(head.combined('trailer')).map(lowerCase));
  const permitted = trailers.clone();
  permitted.deleteWhere((key) => !announced.has(key) || head.has(key));
  return permitted;
}

/** Removes fields that are not allowed in trailers. */
export function dropForbiddenTrailers(trailers: HeaderList): void {
  trailers.deleteWhere(isForbidden);
}

function isForbidden(key: string): boolean {
  return FORBIDDEN.has(key) || FORBIDDEN_PREFIXES.some((prefix) => key.startsWith(prefix));
}

function lowerCase(name: string): string {
  return name.toLowerCase();
}
