import { answer } from '../http/answer.ts';
import type { Exchange } from '../http/exchange.ts';
import type { HubEndpoint } from './endpoint.ts';
import type { Identity } from './identity.ts';
import { methodNotAllowed, notFound } from './refusal.ts';

/** OAuth 2.0 protected resource metadata (RFC 9728 §2). Needs no token. */
export function answerMetadata(
  exchange: Exchange,
  endpoint: HubEndpoint,
  identity: Identity,
): void {
  if (exchange.method !== 'GET' && exchange.method !== 'HEAD') throw methodNotAllowed('GET, HEAD');
  const { roles } = endpoint.verifier;
  if (!roles.publisher && !roles.subscriber) throw notFound();
  const prefix = endpoint.profile.metadataPrefix;
  const metadata = {
    resource: identity.resource,
    ...(endpoint.authorizationServers.length > 0
      ? { authorization_servers: endpoint.authorizationServers }
      : {}),
    bearer_methods_supported: ['header'],
    authorization_details_types_supported: [endpoint.detailType],
    [`${prefix}_cookie`]: endpoint.cookieName,
    ...(endpoint.subscriptions ? { [`${prefix}_subscriptions`]: true } : {}),
  };
  answer(exchange, 200, { 'content-type': 'application/json' }, JSON.stringify(metadata));
}
