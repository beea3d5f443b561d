import { answer } from '../http/answer.ts';
import type { Exchange } from '../http/exchange.ts';
import type { HubEndpoint } from './endpoint.ts';
import type { Identity } from './identity.ts';
import { methodNotAllowed } from './refusal.ts';

/** OAuth 2.0 protected resource metadata (RFC 9728 §2). Needs no token. */
export function createMetadata(
  endpoint: HubEndpoint,
): (exchange: Exchange, identity: Identity) => void {
  const prefix = endpoint.profile.metadataPrefix;
  const members = {
    ...(endpoint.authorizationServers.length > 0
      ? { authorization_servers: endpoint.authorizationServers }
      : {}),
    bearer_methods_supported: ['header'],
    authorization_details_types_supported: [endpoint.detailType],
    [`${prefix}_cookie`]: endpoint.cookieName,
    ...(endpoint.stream.announced ? { [`${prefix}_subscriptions`]: true } : {}),
  };
  return (exchange, { resource }) => {
    const { method } = exchange;
    if (method !== 'GET' && method !== 'HEAD') throw methodNotAllowed('GET, HEAD');
    const metadata = JSON.stringify({ resource, ...members });
    answer(exchange, 200, { 'content-type': 'application/json' }, metadata);
  };
}
