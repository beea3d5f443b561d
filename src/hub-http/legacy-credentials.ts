import type { Exchange } from '../http/exchange.ts';
import {
  cookieCredential,
  type Credential,
  headerCredential,
  NO_CREDENTIAL,
} from './credentials.ts';
import { parseQuery, valuesOf } from './form.ts';

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
