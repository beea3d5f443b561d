import { type ConfigRegistry, dataOf, everyRoute, type RouteConfig } from '../config/routes.ts';
import type { Handler } from '../http/exchange.ts';

/**
 * Fields that stay even where a route of the site replaces them: those by which a client proves its
 * identity itself, which an authorizing service and the hub need, and those that route and frame the
 * message. They are not a fact of the exchange until the route has replaced them.
 */
const KEPT: ReadonlySet<string> = new Set([
  'authorization',
  'cookie',
  'proxy-authorization',
  ...['connection', 'content-length', 'expect', 'host', 'te', 'transfer-encoding', 'upgrade'],
]);

/** The request fields, in lower case, by which some route of a site tells the app the user. */
export function identityFields(
  routes: readonly RouteConfig[],
  registry: ConfigRegistry,
): Set<string> {
  const fields = everyRoute(routes, registry).flatMap(({ handler }) => [
    ...(dataOf(handler, registry).establishes?.(handler).fields ?? []),
    ...(dataOf(handler, registry).writesIdentity?.(handler) ?? []),
  ]);
  return new Set(fields.map((name) => name.toLowerCase()));
}

/**
 * Removes what a client sends in the fields by which the gateway tells the app the user, before
 * anything else looks at the request: on requests that no such route concerns, and where an error
 * comes before it, the app must not take the client's word for the gateway's. Trailer fields are
 * held to the same.
 */
export function removeClaimedIdentity(fields: ReadonlySet<string>): Handler | null {
  const removed = new Set([...fields].filter((name) => !KEPT.has(name)).map(dashed));
  if (removed.size === 0) return null;
  return (exchange, next) => {
    const { headers } = exchange;
    headers.deleteWhere((key) => removed.has(dashed(key)));
    headers.mapValues((key, value) => (key === 'trailer' ? without(value, removed) : value));
    headers.deleteWhere((key, value) => key === 'trailer' && value === '');
    return next();
  };
}

function without(list: string, removed: ReadonlySet<string>): string {
  return list
    .split(',')
    .filter((name) => !removed.has(dashed(name.trim().toLowerCase())))
    .join(',')
    .trim();
}

/** Apps that make variables of fields (RFC 3875 §4.1.18) read `X_User` as `X-User`. */
export function dashed(key: string): string {
  return key.replaceAll('_', '-');
}
