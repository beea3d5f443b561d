import type { Exchange, RequestHook } from '../http/exchange.ts';
import { fieldText, type HeaderList } from '../http/header-list.ts';
import { CERTIFICATE, isPlaceholder, PLACEHOLDER, shortName } from './placeholder-names.ts';
import { expandPlaceholders, hostValue } from './placeholders.ts';
import { type ConfigRegistry, dataOf, everyRoute, type RouteConfig } from '../config/routes.ts';

/**
 * Families of placeholders that say nothing about the client, or only what the gateway knows about its site.
 */
const NEUTRAL = /^(?:host$|labels\.|time\.|system\.)/;

/** The source of a placeholder in a text that identifies a user. */
export type IdentitySource =
  /** A fact of the exchange: `user`, or `field` of an authorizing service. */
  | { readonly kind: 'user' }
  | { readonly kind: 'field'; readonly name: string }
  /** A value of the client's verified certificate. */
  | { readonly kind: 'certificate'; readonly name: string }
  /** A field of the app's response. */
  | { readonly kind: 'answer'; readonly name: string }
  /** The time, this machine, or the host of the site. */
  | { readonly kind: 'neutral'; readonly name: string }
  /** Anything else in a request: the client chooses it. */
  | { readonly kind: 'client'; readonly name: string };

const HEADER = 'header.';
const ANSWER = 'http.response.header.';

/** The sources of the placeholders in a text. Other text is ignored. */
export function identitySources(template: string): IdentitySource[] {
  return [...template.matchAll(PLACEHOLDER)].flatMap(([, name]) =>
    name === undefined ? [] : (sourceOf(name) ?? []),
  );
}

function sourceOf(long: string): IdentitySource | null {
  const name = shortName(long);
  if (name === 'auth.user.id') return { kind: 'user' };
  if (name.startsWith(CERTIFICATE) && isPlaceholder(name)) {
    return { kind: 'certificate', name: name.slice(CERTIFICATE.length) };
  }
  if (name.startsWith(HEADER)) return { kind: 'field', name: name.slice(HEADER.length) };
  if (name.startsWith(ANSWER)) return { kind: 'answer', name: name.slice(ANSWER.length) };
  if (NEUTRAL.test(name)) return { kind: 'neutral', name };
  return isPlaceholder(name) ? { kind: 'client', name } : null;
}

/**
 * Fills in a text that identifies a user, only from the identity of the exchange and from the app's response.
 * Returns null if the text uses a fact that no handler has established for this request, or a value that the
 * client chooses.
 */
export function expandIdentity(
  template: string,
  exchange: Exchange,
  response: HeaderList,
  encode: (value: string) => string,
): string | null {
  let isEstablished = true;
  const filled = template.replace(PLACEHOLDER, (match: string, name: string | undefined) => {
    if (name === undefined) return '{';
    const source = sourceOf(name);
    if (source === null) return match;
    const value = valueOf(source, exchange, response);
    if (value === null) isEstablished = false;
    return encode(value ?? '');
  });
  return isEstablished ? filled : null;
}

function valueOf(source: IdentitySource, exchange: Exchange, response: HeaderList): string | null {
  const { identity } = exchange;
  switch (source.kind) {
    case 'user':
      return identity.user;
    case 'certificate': {
      // A certificate without such a name proves nothing about it.
      const value = identity.certificate?.value(source.name) ?? '';
      return value === '' ? null : value;
    }
    case 'field': {
      const values = identity.field(source.name);
      return values === undefined ? null : fieldText(values.join(', '));
    }
    case 'answer':
      return fieldText(response.combined(source.name) ?? '');
    case 'neutral':
      return (
        hostValue(source.name, exchange.originalHost) ??
        expandPlaceholders(`{${source.name}}`, exchange)
      );
    case 'client':
      return null;
  }
}

/**
 * Fields that stay even if a route of the site replaces them: those with which a client proves its identity,
 * which an authorizing service and the hub need, and those that route and frame the message. They count as a
 * fact of the exchange only after the route has replaced them.
 */
const KEPT: ReadonlySet<string> = new Set([
  'authorization',
  'cookie',
  'proxy-authorization',
  'connection',
  'content-length',
  'expect',
  'host',
  'te',
  'transfer-encoding',
  'upgrade',
]);

/** The request fields, in lower case, with which a route of a site passes the user to the app. */
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
 * Removes the fields with which the gateway passes the user to the app from the client's request, before
 * anything else reads the request. Some requests reach the app without such a route, or after an earlier
 * error. The app must not mistake the client's value for the gateway's. The same applies to trailer fields.
 */
export function removeClaimedIdentity(fields: ReadonlySet<string>): RequestHook | null {
  const removed = new Set([...fields].filter((name) => !KEPT.has(name)).map(dashed));
  if (removed.size === 0) return null;
  return ({ headers }) => {
    headers.deleteWhere((key) => removed.has(dashed(key)));
    headers.mapValues((key, value) => (key === 'trailer' ? without(value, removed) : value));
    headers.deleteWhere((key, value) => key === 'trailer' && value === '');
  };
}

function without(list: string, removed: ReadonlySet<string>): string {
  return list
    .split(',')
    .filter((name) => !removed.has(dashed(name.trim().toLowerCase())))
    .join(',')
    .trim();
}

/** Apps that turn fields into variables (RFC 3875 §4.1.18) read `X_User` as `X-User`. */
export function dashed(key: string): string {
  return key.replaceAll('_', '-');
}
