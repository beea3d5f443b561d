import type { Exchange, Handler } from '../http/exchange.ts';
import { fieldUtf8, type HeaderList } from '../http/header-list.ts';
import { CERTIFICATE, isPlaceholder, PLACEHOLDER, shortName } from './placeholder-names.ts';
import { expandPlaceholders, hostValue } from './placeholders.ts';
import { type ConfigRegistry, dataOf, everyRoute, type RouteConfig } from '../config/routes.ts';

/** Families of placeholders that say nothing of the client, or what the gateway knows of its site. */
const NEUTRAL = /^(?:host$|labels\.|time\.|system\.)/;

/** What a placeholder of a text that names a user reads. */
export type IdentitySource =
  /** A fact of the exchange: `user`, or `field` of an authorizing service. */
  | { readonly kind: 'user' }
  | { readonly kind: 'field'; readonly name: string }
  /** What the verified certificate of the client says. */
  | { readonly kind: 'certificate'; readonly name: string }
  /** A field of the app's answer. */
  | { readonly kind: 'answer'; readonly name: string }
  /** The time, this machine, the host of the site. */
  | { readonly kind: 'neutral'; readonly name: string }
  /** Whatever else a request has: the client chooses it. */
  | { readonly kind: 'client'; readonly name: string };

const HEADER = 'header.';
const ANSWER = 'http.response.header.';

/** What the placeholders of a text read; what is not a placeholder is left out. */
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
 * Fills a text that names a user from the identity of the exchange and from the app's answer, and
 * from nothing else. null where the text reads a fact that no handler has established for this
 * request, or something that the client chooses.
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
      // One without such a name proves nothing about it.
      const value = identity.certificate?.value(source.name) ?? '';
      return value === '' ? null : value;
    }
    case 'field': {
      const values = identity.field(source.name);
      return values === undefined ? null : text(values.join(', '));
    }
    case 'answer':
      return text(response.combined(source.name) ?? '');
    case 'neutral':
      return (
        hostValue(source.name, exchange.originalHost) ??
        expandPlaceholders(`{${source.name}}`, exchange)
      );
    case 'client':
      return null;
  }
}

/** The text of a field value, which holds bytes. */
function text(value: string): string {
  return fieldUtf8(value) ?? value;
}

/**
 * Fields that stay even where a route of the site replaces them: those by which a client proves its
 * identity itself, which an authorizing service and the hub need, and those that route and frame the
 * message. They are not a fact of the exchange until the route has replaced them.
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
