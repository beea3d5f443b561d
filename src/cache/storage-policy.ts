// These decisions are our own code. http-cache-semantics 4.3 was compared: it accepts dates that are not HTTP
// dates, stores `Vary: , *`, and knows neither targeted fields, nor `must-understand`, nor `private` with
// field names.

import { CONNECTION_FIELDS, hasField } from '../http/field-values.ts';
import type { Exchange, ResponseHead } from '../http/exchange.ts';
import { fieldText, type HeaderList } from '../http/header-list.ts';
import {
  type CacheDirectives,
  parseCacheControl,
  splitList,
  TARGETED_FIELDS,
  targetedDirectives,
  type Freshness,
  type FreshnessRules,
  freshnessOf,
} from '../http/cache-control.ts';

export interface StoringRules extends FreshnessRules {
  /** Response fields, in lower case, that make a response personal, or one that must be handled once. */
  readonly personalFields: readonly string[];
}

/** Whether a response can be stored, and under which conditions; otherwise `detail` is the reason. */
export type StoringVerdict =
  | { readonly kind: 'refused'; readonly detail: string }
  | {
      readonly kind: 'stored';
      readonly freshness: Freshness;
      /** It must be revalidated before each use (RFC 9111 §5.2.2.4). */
      readonly revalidatesAlways: boolean;
      /** Whether a request with a cookie or with credentials may receive it. */
      readonly isForEveryone: boolean;
      /** Request fields, in lower case, that selected it (RFC 9111 §4.1). */
      readonly vary: readonly string[];
      /** Its fields as they are stored. */
      readonly headers: HeaderList;
      /** Its fields for the client of this request: also those of `private="…"` and `no-cache="…"`. */
      readonly ownHeaders: HeaderList;
      /** Names by which it can be purged. */
      readonly tags: readonly string[];
    };

/** Statuses whose caching requirements this cache fulfils (RFC 9111 §5.2.2.3). */
const UNDERSTOOD = new Set([
  200, 203, 204, 300, 301, 302, 303, 307, 308, 400, 401, 403, 404, 405, 410, 414, 500, 501, 502,
  503, 504,
]);
/** Types of streams: each client gets its own, from the moment at which it asks. */
const STREAM = /^(?:text\/event-stream|multipart\/x-mixed-replace)\b/i;
/** Maximum number of request fields by which a response may vary. */
const MAX_VARY = 16;
/** Tags of a response. One with more could not be purged by all of them, so it is not stored. */
const MAX_TAGS = 256;
/** Characters of a tag. */
const MAX_TAG = 1024;

/** Request fields by which an app knows a client. Proxies in front of the gateway send some of them. */
const CREDENTIALS = new Set([
  'authorization',
  'proxy-authorization',
  'x-api-key',
  'api-key',
  'apikey',
  'x-auth-token',
  'x-access-token',
  'x-session-token',
  'private-token',
  'remote-user',
  'x-remote-user',
  'x-webauth-user',
  'x-auth-request-user',
  'x-auth-request-email',
  'x-auth-request-access-token',
  'x-forwarded-user',
  'x-forwarded-email',
  'x-forwarded-preferred-username',
  'x-forwarded-access-token',
  'x-amzn-oidc-identity',
  'x-goog-iap-jwt-assertion',
  'cf-access-jwt-assertion',
  'x-ms-client-principal',
  'tailscale-user-login',
]);

/**
 * RFC 9111 §3.1: fields of one connection, fields for a proxy only, and fields that are computed for each
 * response.
 */
const NOT_KEPT = new Set([
  ...CONNECTION_FIELDS,
  'age',
  'proxy-authenticate',
  'proxy-authentication-info',
  'proxy-authorization',
  'te',
  'trailer',
]);

const SPACED_TAGS = ['surrogate-key', 'xkey'];
const LISTED_TAGS = ['cache-tags', 'cache-tag'];
/** Fields for the cache only. They never reach a client. */
export const FIELDS_FOR_CACHES: readonly string[] = [
  ...TARGETED_FIELDS,
  ...SPACED_TAGS,
  ...LISTED_TAGS,
];

/** RFC 9111 §3, for a shared cache and the response to a GET without a body. */
export function mayStore(
  request: Pick<Exchange, 'headers'>,
  { status, headers }: Pick<ResponseHead, 'status' | 'headers'>,
  rules: StoringRules,
  nowMs: number,
): StoringVerdict {
  // A 206 is never stored, and a 304 is not a response of its own.
  if (status < 200 || status === 206 || status === 304) return refused(`status-${status}`);
  if (STREAM.test(headers.get('content-type') ?? '')) return refused('stream');
  if (headers.has('set-cookie')) return refused('set-cookie');
  if (hasField(headers, rules.personalFields)) return refused('personal');
  const targeted = targetedDirectives(headers);
  const directives = targeted ?? parseCacheControl(headers.combined('cache-control'));
  const prohibition = prohibitionOf(status, directives);
  if (prohibition !== null) return refused(prohibition);

  const vary = varyOf(headers);
  if (vary === null) return refused('vary');
  const tags = tagsOf(headers);
  if (tags === null) return refused('tags');
  const isShared = directives.has('public') || directives.has('s-maxage');
  const freshness = freshnessOf(status, headers, directives, targeted !== null, rules, nowMs);
  const hasTimeForCaches = targeted !== null && freshness.isExplicit;
  const refusal = reasonForOneClient(request.headers, isShared, hasTimeForCaches);
  if (refusal !== null) return refused(refusal);

  const revalidatesAlways = directives.fields('no-cache') === 'all';
  const hasValidator = headers.has('etag') || headers.has('last-modified');
  const isMeantForCaches = freshness.isExplicit || revalidatesAlways;
  const isUsable = freshness.lifetimeMs > 0 && !revalidatesAlways;
  if (!isUsable && !(isMeantForCaches && hasValidator)) return refused('no-freshness');
  const named = [...namedFields(directives, 'no-cache'), ...namedFields(directives, 'private')];
  const ownHeaders = keptFields(headers);
  return {
    kind: 'stored',
    freshness,
    revalidatesAlways,
    isForEveryone: freshness.isExplicit || isShared,
    vary,
    headers: named.length === 0 ? ownHeaders : without(ownHeaders, named),
    ownHeaders,
    tags,
  };
}

function refused(detail: string): StoringVerdict {
  return { kind: 'refused', detail };
}

/** The directive that forbids to store a response; null if there is none. */
function prohibitionOf(status: number, directives: CacheDirectives): string | null {
  // RFC 9111 §5.2.2.3: must-understand overrides no-store if the status is understood.
  const understands = directives.has('must-understand');
  if (understands && !UNDERSTOOD.has(status)) return 'must-understand';
  if (directives.has('no-store') && !understands) return 'no-store';
  if (directives.fields('private') === 'all') return 'private';
  return null;
}

/** Whether a request has credentials other than cookies. */
function hasCredentials(request: HeaderList): boolean {
  let found = false;
  request.forEach((name) => {
    if (CREDENTIALS.has(name)) found = true;
  });
  return found;
}

/** Whether the app may recognize the client. */
export function isOfKnownClient(request: HeaderList): boolean {
  return request.has('cookie') || hasCredentials(request);
}

/**
 * RFC 9111 §3.5: a response to a request with credentials can be shared only if it says so. For cookies and
 * for credentials in other fields the RFC has no such rule, but few apps send the `Vary` that they should, so
 * the same rule applies. `must-revalidate` is not enough, although the RFC accepts it: apps send it so that
 * nobody gets an older page, and not so that others get the same page.
 *
 * @param isShared whether the response is for all clients
 * @param hasTimeForCaches whether it has a time for caches of this kind, which is enough for cookies
 */
function reasonForOneClient(
  request: HeaderList,
  isShared: boolean,
  hasTimeForCaches: boolean,
): string | null {
  if (isShared) return null;
  if (hasCredentials(request)) return 'authorization';
  return request.has('cookie') && !hasTimeForCaches ? 'cookie' : null;
}

/** RFC 9111 §4.1; null for `*`, and for more fields than the limit. */
function varyOf(headers: HeaderList): string[] | null {
  const names = splitList(headers.combined('vary') ?? '').map((name) => name.toLowerCase());
  const unique = [...new Set(names)].sort();
  return unique.includes('*') || unique.length > MAX_VARY ? null : unique;
}

/** RFC 9111 §5.2.2.4, §5.2.2.7: with `private="…"` and `no-cache="…"` only these fields are meant. */
function namedFields(directives: CacheDirectives, name: string): readonly string[] {
  const named = directives.fields(name);
  return named === null || named === 'all' ? [] : named;
}

/** The fields of a response without those that are never stored, or that are only for caches. */
function keptFields(headers: HeaderList): HeaderList {
  const kept = headers.clone();
  kept.deleteWhere((key) => NOT_KEPT.has(key) || FIELDS_FOR_CACHES.includes(key));
  return kept;
}

function without(headers: HeaderList, names: readonly string[]): HeaderList {
  const others = headers.clone();
  others.deleteWhere((key) => names.includes(key));
  return others;
}

/** The tags of all fields for tags; null if there are too many, or if one is too long. */
function tagsOf(headers: HeaderList): readonly string[] | null {
  if (!FIELDS_FOR_CACHES.some((name) => headers.has(name))) return [];
  const tags: string[] = [];
  const read = (names: readonly string[], separator: RegExp): void => {
    for (const name of names) {
      for (const field of headers.getAll(name)) {
        const parts = fieldText(field)
          .split(separator, MAX_TAGS + 1)
          .map((tag) => tag.trim());
        tags.push(...parts.filter((tag) => tag !== ''));
      }
    }
  };
  read(SPACED_TAGS, /[\s,]+/);
  read(LISTED_TAGS, /,/);
  const isTooMuch = tags.length > MAX_TAGS || tags.some((tag) => tag.length > MAX_TAG);
  return isTooMuch ? null : [...new Set(tags)];
}

/** Removes the fields for caches from a head that is passed on. */
export function dropFieldsForCaches(headers: HeaderList): void {
  for (const name of FIELDS_FOR_CACHES) headers.delete(name);
}
