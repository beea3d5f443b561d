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

/** If there is a header, it decides, even if it is invalid; otherwise the cookie. */
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

/** The first cookie with that name whose value contains no byte that RFC 6265 §4.1.1 forbids. */
function cookieCredential(exchange: Exchange, name: string): Credential | null {
  const token = cookieValue(exchange.headers, name, (value) => !FORBIDDEN.test(value));
  return token === undefined ? null : { kind: 'token', token, via: 'cookie' };
}

// oxlint-disable-next-line no-control-regex -- control characters are what is looked for
const FORBIDDEN = /[\x00-\x1f\x7f-\xff"\\]/;

/** Shorter than any signed token: the value that 0.x clients send if they have no token. */
const MIN_QUERY_TOKEN = 41;

/**
 * The credential of a 0.x client, for a hub that accepts them: the header, the query parameter
 * `authorization`, the cookie (with its configured name, then with its old one).
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
