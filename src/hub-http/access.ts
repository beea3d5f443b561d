import { type AccessToken, type Diagnosis, InvalidTokenError } from '../auth/verify.ts';
import type { Exchange } from '../http/exchange.ts';
import type { LogFields } from '../kernel/log.ts';
import { type Credential, credentialOf } from './credentials.ts';
import type { HubEndpoint } from './endpoint.ts';
import type { Identity } from './identity.ts';
import { legacyCredentialOf } from './legacy-credentials.ts';
import { originList } from './origins.ts';
import { Refusal } from './refusal.ts';

/**
 * The token of a request, verified for a role; null when it carries none.
 *
 * @throws Refusal 400 for a malformed presentation, 401 for a token that is not accepted
 */
export async function authenticate(
  exchange: Exchange,
  endpoint: HubEndpoint,
  identity: Identity,
  role: 'publisher' | 'subscriber',
): Promise<AccessToken | null> {
  const credential = endpoint.verifier.acceptsLegacy
    ? legacyCredentialOf(exchange, endpoint.cookieName, endpoint.profile.legacyCookieName)
    : credentialOf(exchange, endpoint.cookieName);
  if (credential.kind === 'none') return null;
  if (credential.kind === 'malformed') {
    logRefusal(exchange, {
      check: 'presentation',
      expected: 'one "Authorization: Bearer <token>"',
      found: 'something else',
      cure: 'send one Authorization field with the scheme Bearer and a token after one space',
    });
    throw new Refusal(400, { challenge: 'invalid_request' });
  }
  if (role === 'publisher') checkPublishOrigin(exchange, endpoint, credential);
  try {
    return await endpoint.verifier.verify(credential.token, role, identity.resource);
  } catch (error) {
    if (!(error instanceof InvalidTokenError)) throw error;
    logRefusal(exchange, error.diagnosis, { via: credential.via, role });
    throw new Refusal(401, { challenge: 'invalid_token' });
  }
}

/** No token where one is needed. */
export function tokenMissing(exchange: Exchange, endpoint: HubEndpoint): Refusal {
  logRefusal(exchange, {
    check: 'presence',
    expected: `an Authorization header or the cookie ${endpoint.cookieName}`,
    found: 'no token',
    cure: 'have the app send the token header of discovery, or the client an Authorization header; a cookie reaches the hub only on its own path and domain',
  });
  return new Refusal(401, { challenge: null });
}

/** A valid token that does not allow what was asked. */
export function grantMissing(exchange: Exchange, expected: string, found: string): Refusal {
  logRefusal(exchange, {
    check: 'authorization_details',
    expected,
    found,
    cure: 'give the token an authorization detail with that action and a matcher for the topic',
  });
  return new Refusal(403, { challenge: 'insufficient_scope' });
}

/**
 * A cookie goes along with requests that other sites cause (CSRF), so a publication with a cookie
 * must come from a listed origin. A header cannot be sent by accident.
 */
function checkPublishOrigin(
  exchange: Exchange,
  endpoint: HubEndpoint,
  credential: Exclude<Credential, { kind: 'none' | 'malformed' }>,
): void {
  if (credential.via !== 'cookie') return;
  const origin = exchange.headers.get('origin') ?? refererOrigin(exchange);
  const allowed = originList(endpoint.publishOrigins);
  if (origin !== undefined && allowed.find(origin) !== undefined) return;
  logRefusal(exchange, {
    check: 'publish_origins',
    expected: 'an Origin or Referer that publish_origins lists',
    found: origin ?? 'none',
    cure: 'add the origin to publish_origins, or publish with an Authorization header',
  });
  throw new Refusal(400, { challenge: 'invalid_request' });
}

function refererOrigin(exchange: Exchange): string | undefined {
  const referer = exchange.headers.get('referer');
  if (referer === undefined) return undefined;
  try {
    return new URL(referer).origin;
  } catch {
    return undefined;
  }
}

/** For the operator alone: the client never learns why. */
function logRefusal(exchange: Exchange, diagnosis: Diagnosis, more: LogFields = {}): void {
  exchange.log.warn('The hub refused a request', {
    client: exchange.clientAddress,
    ...more,
    ...diagnosis,
  });
}
