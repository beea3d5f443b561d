import type { Exchange, Handler } from '../http/exchange.ts';
import { answerError } from '../http/answer.ts';
import { createCors } from './cors.ts';
import { answerDebugger } from './debugger.ts';
import type { HubEndpoint } from './endpoint.ts';
import { type Identity, identityOf, metadataPath } from './identity.ts';
import { answerMetadata } from './metadata.ts';
import { answerPlayground } from './playground.ts';
import { publish } from './publish.ts';
import { answerRefusal, methodNotAllowed, notFound, Refusal } from './refusal.ts';
import { subscribe } from './subscribe.ts';
import { answerSubscriptions } from './subscription-api.ts';

const SECURITY_FIELDS = [
  ['x-frame-options', 'DENY'],
  ['x-content-type-options', 'nosniff'],
  ['x-xss-protection', '1; mode=block'],
  ['content-security-policy', "default-src 'self'"],
] as const;

/** The hub as a handler: it answers its own paths and passes every other request on. */
export function createHubHandler(endpoint: HubEndpoint): Handler {
  const { path } = endpoint;
  const metadata = metadataPath(path);
  const cors = createCors(endpoint.corsOrigins, endpoint.profile.cursorHeader);

  return async (exchange, next) => {
    const requested = pathOf(exchange.target);
    const own = requested === path || requested.startsWith(`${path}/`) || requested === metadata;
    if (!own) {
      const answered =
        endpoint.playground !== null && answerPlayground(exchange, endpoint, requested);
      return answered ? undefined : next();
    }
    exchange.onHead(({ headers }) => {
      for (const [name, value] of SECURITY_FIELDS) headers.set(name, value);
      cors?.apply(exchange, headers);
      return undefined;
    });
    const identity = identityOf(exchange, path, endpoint.resourceIdentifier);
    if (identity === null) {
      answerError(exchange, 400);
      return;
    }
    try {
      checkPublicOrigin(exchange, endpoint);
      if (cors?.answerPreflight(exchange) === true) return;
      await route(exchange, endpoint, identity, requested);
    } catch (error) {
      if (!(error instanceof Refusal)) throw error;
      answerRefusal(exchange, error, identity);
    }
  };
}

async function route(
  exchange: Exchange,
  endpoint: HubEndpoint,
  identity: Identity,
  path: string,
): Promise<void> {
  if (path === endpoint.path) {
    switch (exchange.method) {
      case 'POST':
        return publish(exchange, endpoint, identity);
      case 'GET':
      case 'HEAD':
      case 'QUERY':
        return subscribe(exchange, endpoint, identity);
      default:
        throw methodNotAllowed('GET, HEAD, POST, QUERY');
    }
  }
  if (path === metadataPath(endpoint.path)) {
    answerMetadata(exchange, endpoint, identity);
    return;
  }
  const api = `${endpoint.path}/subscriptions`;
  if (path === api || path.startsWith(`${api}/`)) {
    return answerSubscriptions(exchange, endpoint, identity, path);
  }
  if (path.startsWith(`${endpoint.path}/debug/`)) {
    return answerDebugger(exchange, endpoint, identity, path);
  }
  throw notFound();
}

/** `public_urls`: a hub that knows its names answers to no other. */
function checkPublicOrigin(exchange: Exchange, endpoint: HubEndpoint): void {
  if (endpoint.publicOrigins.length === 0) return;
  const contacted = `${exchange.scheme}://${exchange.host.toLowerCase()}`;
  if (!endpoint.publicOrigins.includes(contacted)) throw new Refusal(421);
}

function pathOf(target: string): string {
  const question = target.indexOf('?');
  return question === -1 ? target : target.slice(0, question);
}
