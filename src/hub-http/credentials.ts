import type { Exchange } from '../http/exchange.ts';
import { cookieValue } from '../http/field-values.ts';
import { parseQuery, valuesOf } from './form.ts';

/** How a request presents its token. */
export type Credential =
  | { readonly kind: 'none' }
  /** A malformed `Authorization` (RFC 6750 §3.1 `invalid_request`). */
  | { readonly kind: 'malformed' }
  | { readonly kind: 'token'; readonly token: string; readonly via: 'header' | 'cookie' | 'query' };

const NO_CREDENTIAL: Credential = { kind: 'none' };

/** The header decides when there is one, even a bad one; then the cookie. */
export function credentialOf(exchange: Exchange, cookieName: string): Credential {
  return headerCredential(exchange) ?? cookieCredential(exchange, cookieName) ?? NO_CREDENTIAL;
}

function headerCredential(exchange: Exchange): Credential | null {
  const [field, ...others] = exchange.headers.getAll('authorization');
  if (field === undefined) return null;
  return others.length > 0 ? { kind: 'malformed' } : bearer(field);
}

function bearer(field: string): Credential {
  const scheme = field.slice(0, 7).toLowerCase();
  if (scheme !== 'bearer ' || field.length === 7) return { kind: 'malformed' };
  return { kind: 'token', token: field.slice(7), via: 'header' };
}

/** The first cookie of that name whose value has no byte that RFC 6265 §4.1.1 forbids. */
function cookieCredential(exchange: Exchange, name: string): Credential | null {
  const token = cookieValue(exchange.headers, name, (value) => !FORBIDDEN.test(value));
  return token === undefined ? null : { kind: 'token', token, via: 'cookie' };
}

// oxlint-disable-next-line no-control-regex -- control characters are what is looked for
const FORBIDDEN = /[\x00-\x1f\x7f-\xff"\\]/;

/** Shorter than any signed token: what 0.x clients send there when they have none. */
const MIN_QUERY_TOKEN = 41;

/**
 * How 0.x clients present a token, for a hub that accepts theirs: the header, the query parameter
 * `authorization`, the cookie (by its configured name, then by its old one).
 */
export function legacyCredentialOf(
  exchange: Exchange,
  cookieName: string,
  legacyCookieName: string,
): Credential {
  return (
    headerCredential(exchange) ??
    queryCredential(exchange) ??
    cookieCredential(exchange, cookieName) ??
    cookieCredential(exchange, legacyCookieName) ??
    NO_CREDENTIAL
  );
}

function queryCredential(exchange: Exchange): Credential | null {
  const [token, ...others] = valuesOf(parseQuery(exchange.target) ?? [], 'authorization');
  if (typeof token !== 'string' || others.length > 0) return null;
  return token.length < MIN_QUERY_TOKEN ? null : { kind: 'token', token, via: 'query' };
}
