import { type AccessToken, type Diagnosis, InvalidTokenError, KEYS_CHECK } from '../auth/verify.ts';
import type { Exchange } from '../http/exchange.ts';
import { originList } from './cors.ts';
import type { HubEndpoint } from './endpoint.ts';
import type { Identity } from './identity.ts';
import { RefusalLog, RefusedRequest, unavailable } from './refusal.ts';
import { codeOf, HubgateError } from '../kernel/error.ts';
import { FailureLog } from '../kernel/log.ts';
import { parseUrl } from '../kernel/parse.ts';
import { cookieValue } from '../http/field-values.ts';
import { sessionMark } from '../http/session-mark.ts';
import { parseQuery, valuesOf } from './form.ts';

/** Authenticates requests, and creates the errors for refused ones. */
export interface Access {
  /**
   * The verified token of a request for a role; null if it has none. For a token that was seen before, it
   * returns the result without a promise.
   *
   * @throws RefusedRequest (or rejects with it) 400 for a malformed presentation, 401 for a token that is not
   * accepted, 503 while its issuer's keys cannot be fetched
   */
  authenticate(
    exchange: Exchange,
    identity: Identity,
    role: 'publisher' | 'subscriber',
  ): AccessToken | null | Promise<AccessToken>;
  tokenMissing(exchange: Exchange): RefusedRequest;
  /** The error for a valid token that does not allow the request. */
  grantMissing(exchange: Exchange, expected: string, found: string): RefusedRequest;
  /**
   * Call it when the whole request has arrived: the client decides how long that takes.
   *
   * @param revocationEpoch {@link Admission.revocationEpoch} before the token was authenticated
   * @throws RefusedRequest 401 if the token has expired or was revoked since, or its issuer or key was removed
   */
  requireStillValid(exchange: Exchange, token: AccessToken, revocationEpoch: number): void;
  /**
   * Waits for an answer of the hub's store.
   *
   * @throws RefusedRequest 401 if the permission of the client has ended in the meantime; 503 if the store fails
   */
  unlessFailing<T>(exchange: Exchange, result: Promise<T>): Promise<T>;
}

export function createAccess(endpoint: HubEndpoint): Access {
  const { hub, verifier, profile, cookieName, clock } = endpoint;
  const refusals = new RefusalLog();
  const failures = new FailureLog('The store of the hub did not answer a request', 'error', clock);
  const publishOrigins = originList(endpoint.publishOrigins);
  const credential = verifier.acceptsLegacy
    ? (exchange: Exchange) => legacyCredentialOf(exchange, cookieName, profile.legacyCookieName)
    : (exchange: Exchange) => credentialOf(exchange, cookieName);

  /**
   * Browsers attach a cookie to requests that other sites cause (CSRF), so a publication with a cookie must
   * come from a listed origin. A header cannot be sent unintentionally, unless the gateway has written it.
   */
  const checkPublishOrigin = (exchange: Exchange): void => {
    const origin = requestOrigin(exchange);
    if (origin !== undefined && publishOrigins.find(origin) !== undefined) return;
    refusals.write(exchange, {
      check: 'publish_origins',
      expected: 'an Origin or Referer in publish_origins',
      found: origin ?? 'none',
      fix: 'add the origin to publish_origins, or publish with an Authorization header',
    });
    throw new RefusedRequest(400, { challenge: 'invalid_request', check: 'publish_origins' });
  };

  const malformedPresentation = (exchange: Exchange): RefusedRequest => {
    const check = 'presentation';
    refusals.write(exchange, {
      check,
      expected: 'one "Authorization: Bearer <token>"',
      found: 'another scheme, several fields, or an empty token',
      fix: 'send one Authorization field with the scheme Bearer and a token after one space',
    });
    return new RefusedRequest(400, { challenge: 'invalid_request', check });
  };

  /** The error for a token that was valid until a moment ago. */
  const noLongerValid = (
    exchange: Exchange,
    check: 'exp' | 'revocation',
    found: string,
  ): RefusedRequest => {
    refusals.write(exchange, {
      check,
      expected:
        'a token that is still valid when the stream opens, or when the whole request has arrived',
      found,
      fix: check === 'exp' ? 'get a new token in time, or send the body sooner' : 'connect again',
    });
    return new RefusedRequest(401, { challenge: 'invalid_token', check });
  };
  const accessRevoked = (exchange: Exchange): RefusedRequest => {
    const found =
      'its issuer or key was removed, the token was revoked, or the user logged out in the meantime';
    return noLongerValid(exchange, 'revocation', found);
  };

  return {
    authenticate(exchange, identity, role) {
      const presented = credential(exchange);
      if (presented.kind === 'none') return null;
      if (presented.kind === 'malformed') throw malformedPresentation(exchange);
      const { token, via } = presented;
      const isUnasked = via === 'cookie' || (via === 'header' && isForeignWrite(exchange));
      if (role === 'publisher' && isUnasked) checkPublishOrigin(exchange);
      const refuse = (error: unknown): never => {
        throw refused(error, (diagnosis) => refusals.write(exchange, diagnosis, { via, role }));
      };
      try {
        const access = verifier.verify(token, role, identity.resource);
        return access instanceof Promise ? access.catch(refuse) : access;
      } catch (error) {
        return refuse(error);
      }
    },
    tokenMissing(exchange) {
      refusals.write(exchange, {
        check: 'presence',
        expected: `an Authorization header or the cookie ${cookieName}`,
        found: 'no token',
        fix: 'have the app send the token header of discovery, or the client an Authorization header; the browser sends the cookie only to the path and domain of the hub',
      });
      return new RefusedRequest(401, { challenge: null, check: 'presence' });
    },
    grantMissing(exchange, expected, found) {
      const check = 'authorization_details';
      refusals.write(exchange, {
        check,
        expected,
        found,
        fix: 'give the token an authorization detail with that action and a matcher for the topic',
      });
      return new RefusedRequest(403, { challenge: 'insufficient_scope', check });
    },
    requireStillValid(exchange, { issuerKey, tokenId, expiresAtMs }, revocationEpoch) {
      if (expiresAtMs !== null && clock.now() >= expiresAtMs) {
        throw noLongerValid(exchange, 'exp', 'it has expired in the meantime');
      }
      const session = sessionMark(exchange, cookieName);
      if (!hub.admission.admits({ issuerKey, tokenId, session }, revocationEpoch)) {
        throw accessRevoked(exchange);
      }
    },
    unlessFailing(exchange, result) {
      return result.catch((error: unknown) => {
        if (codeOf(error) === 'not-admitted') throw accessRevoked(exchange);
        if (!(error instanceof HubgateError)) throw error;
        failures.write(exchange.log, { error: error.message });
        throw unavailable();
      });
    },
  };
}

/** The refusal for a token that is not accepted; any other error is returned unchanged. */
function refused(error: unknown, diagnose: (diagnosis: Diagnosis) => void): unknown {
  if (!(error instanceof InvalidTokenError)) return error;
  diagnose(error.diagnosis);
  if (error.diagnosis.check === KEYS_CHECK) return unavailable(KEYS_CHECK);
  return new RefusedRequest(401, { challenge: 'invalid_token', check: error.diagnosis.check });
}

/** A publication that a page may have sent, as it has arrived. */
interface PageRequest {
  readonly origin: string;
  readonly authorization: string | undefined;
}

/** By the variables of an exchange, which all views of it share. */
const pageRequests = new WeakMap<Exchange['variables'], PageRequest>();

/**
 * Notes the `Authorization` with which a page's publication has come, before any handler writes one. Programs send neither
 * `Origin` nor `Referer`.
 */
export function noteCredentials(exchange: Exchange): void {
  const { method, headers } = exchange;
  if (method !== 'POST' || headers.get('sec-fetch-site') === 'same-origin') return;
  const origin = requestOrigin(exchange);
  if (origin === undefined) return;
  pageRequests.set(exchange.variables, { origin, authorization: headers.get('authorization') });
}

/**
 * Whether a page of another origin has caused a request in which the gateway has written the `Authorization`, for
 * example with `forward_auth` because of a cookie. What the page itself has put there is no proof.
 */
function isForeignWrite(exchange: Exchange): boolean {
  const { headers, originalHost, variables } = exchange;
  const sent = pageRequests.get(variables);
  if (sent === undefined || headers.get('authorization') === sent.authorization) return false;
  // With any scheme, because TLS may end before the gateway.
  return parseUrl(sent.origin)?.host !== originalHost.toLowerCase();
}

function requestOrigin({ headers }: Exchange): string | undefined {
  const origin = headers.get('origin');
  if (origin !== undefined) return origin;
  const referer = headers.get('referer');
  return referer === undefined ? undefined : parseUrl(referer)?.origin;
}

/** How a request presents its token. */
type Credential =
  | { readonly kind: 'none' }
  /** A malformed `Authorization` (RFC 6750 §3.1 `invalid_request`). */
  | { readonly kind: 'malformed' }
  | { readonly kind: 'token'; readonly token: string; readonly via: 'header' | 'cookie' | 'query' };

const NO_CREDENTIAL: Credential = { kind: 'none' };

/** If there is a header, it decides, even if it is invalid; otherwise the cookie. */
function credentialOf(exchange: Exchange, cookieName: string): Credential {
  return headerCredential(exchange) ?? cookieCredential(exchange, cookieName) ?? NO_CREDENTIAL;
}

function headerCredential(exchange: Exchange): Credential | null {
  const [field, ...others] = exchange.headers.getAll('authorization');
  if (field === undefined) return null;
  if (others.length > 0) return { kind: 'malformed' };
  return isCheckedPassword(field, exchange) ? null : bearer(field);
}

/**
 * Whether `Authorization` is for the `basic_auth` in front of the hub, which has accepted it. Browsers add such a
 * password to each request to the site, also to those of an `EventSource`.
 */
function isCheckedPassword(field: string, { identity }: Exchange): boolean {
  return identity.user !== null && /^basic /i.test(field);
}

function bearer(field: string): Credential {
  const scheme = field.slice(0, 7).toLowerCase();
  if (scheme !== 'bearer ' || field.length === 7) return { kind: 'malformed' };
  return { kind: 'token', token: field.slice(7), via: 'header' };
}

/**
 * The first cookie with that name whose value has no control character, quote, backslash or byte beyond ASCII. RFC 6265
 * §4.1.1 also forbids spaces and commas, which are accepted here.
 */
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
function legacyCredentialOf(
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
