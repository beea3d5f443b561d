import type { Exchange, Handler } from '../http/exchange.ts';
import { answer, answerError } from '../http/answer.ts';
import { isAt, isWithin, pathOf } from '../http/request-path.ts';
import { createAccess } from './access.ts';
import { createIdentity, type Identity, metadataPath } from './identity.ts';
import { createCors, createForeignPageCheck } from './cors.ts';
import { createDebugger } from './debugger-page.ts';
import { absent, type HubEndpoint, createScriptAnswer } from './endpoint.ts';
import {
  answerRefusal,
  logUndiagnosed,
  methodNotAllowed,
  notFound,
  RefusalLog,
  RefusedRequest,
} from './refusal.ts';
import { createPlayground } from './playground.ts';
import { createPublish } from './publish.ts';
import { createSubscribe } from './subscribe.ts';
import { createSubscriptionApi } from './subscription-api.ts';

const SECURITY_FIELDS = [
  ['x-frame-options', 'DENY'],
  ['x-content-type-options', 'nosniff'],
  ['x-xss-protection', '1; mode=block'],
  ['content-security-policy', "default-src 'self'"],
] as const;

/** Handles a request for a path of the hub. */
type Route = (exchange: Exchange, identity: Identity, path: string) => void | Promise<void>;

/**
 * Creates the handler of the hub: it responds to requests for its own paths and passes every other request
 * on.
 */
export function createHubHandler(endpoint: HubEndpoint): Handler {
  const { path, corsOrigins, profile } = endpoint;
  const metadata = metadataPath(path);
  // No other handler may respond to a path that a matcher regards as the hub's, because a guard that excludes
  // the hub has not checked the request.
  const isHub = isWithin(path);
  const isMetadata = isAt(metadata);
  const cors = createCors(corsOrigins, profile.cursorHeader);
  const identityOf = createIdentity(path, endpoint.resourceIdentifier);
  const { publicOrigins, hub } = endpoint;
  const isForeign = createForeignPageCheck(corsOrigins, publicOrigins, new RefusalLog());
  const isContactedByName = publicName(publicOrigins);
  const answerPlayground = createPlayground(endpoint);
  const route = createRoute(endpoint);

  const serve = async (exchange: Exchange, requested: string): Promise<void> => {
    exchange.onHead(({ headers }) => {
      for (const [name, value] of SECURITY_FIELDS) headers.set(name, value);
      cors?.apply(exchange, headers);
      return undefined;
    });
    const identity = identityOf(exchange);
    if (identity === null) return answerError(exchange, 400);
    try {
      if (!isContactedByName(exchange)) throw new RefusedRequest(421);
      if (isForeign(exchange)) hub.measures.refused('cors_origins');
      if (cors?.answerPreflight(exchange) === true) return;
      await route(exchange, identity, requested);
    } catch (error) {
      if (!(error instanceof RefusedRequest)) throw error;
      hub.measures.refused(error.check);
      logUndiagnosed(exchange, error);
      answerRefusal(exchange, error, identity);
    }
  };

  return (exchange, next) => {
    const requested = pathOf(exchange);
    if (isHub(exchange) || isMetadata(exchange)) return serve(exchange, requested);
    return answerPlayground(exchange, requested) ? undefined : next();
  };
}

function createRoute(endpoint: HubEndpoint): Route {
  const { path, verifier, stream } = endpoint;
  const access = createAccess(endpoint);
  const publish = createPublish(endpoint, access);
  const subscribe = createSubscribe(endpoint, access);
  const metadata = metadataPath(path);
  const api = `${path}/subscriptions`;
  const answerSubscriptions =
    stream.announced && verifier.roles.subscriber
      ? createSubscriptionApi(endpoint, access)
      : absent;
  const answerDebugger = endpoint.debugger ? createDebugger(endpoint) : absent;
  const answerMetadata =
    verifier.roles.publisher || verifier.roles.subscriber ? createMetadata(endpoint) : absent;

  const answerLiveScript = createScriptAnswer(endpoint.liveScript);
  const answerClientScript = createScriptAnswer(endpoint.clientScript);

  return (exchange, identity, requested) => {
    if (requested === path) {
      switch (exchange.method) {
        case 'POST':
          return publish(exchange, identity);
        case 'GET':
        case 'HEAD':
        case 'QUERY':
          return subscribe(exchange, identity);
        default:
          throw methodNotAllowed('GET, HEAD, POST, QUERY');
      }
    }
    if (requested === `${path}/live.js`) return answerLiveScript(exchange);
    if (requested === `${path}/client.js`) return answerClientScript(exchange);
    if (requested === metadata) return answerMetadata(exchange, identity);
    if (requested === api || requested.startsWith(`${api}/`)) {
      return answerSubscriptions(exchange, identity, requested);
    }
    if (requested.startsWith(`${path}/debug/`)) {
      return answerDebugger(exchange, identity, requested);
    }
    throw notFound();
  };
}

/** `public_urls`: a hub that knows its names does not respond to others. */
function publicName(origins: readonly string[]): (exchange: Exchange) => boolean {
  if (origins.length === 0) return () => true;
  return ({ scheme, originalHost }) =>
    origins.includes(`${scheme}://${originalHost.toLowerCase()}`);
}

/** OAuth 2.0 protected resource metadata (RFC 9728 §2). Needs no token. */
function createMetadata(endpoint: HubEndpoint): (exchange: Exchange, identity: Identity) => void {
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
