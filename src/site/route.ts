import type { HandlerConfig, RouteConfig } from '../config/config.ts';
import { HttpError } from '../http/errors.ts';
import type { Exchange, Expand, Handler, Next } from '../http/exchange.ts';
import { encode } from '../directives/encode/handler.ts';
import { forwardAuth } from '../directives/forward-auth/handler.ts';
import { header, requestHeader } from '../directives/header/handler.ts';
import { redir } from '../directives/redir/handler.ts';
import { requestBody } from '../directives/request-body/handler.ts';
import { abort, respond } from '../directives/respond/handler.ts';
import { rewrite, uri } from '../directives/rewrite/handler.ts';
import { compileMatcher, type Predicate } from './matchers.ts';
import type { ReverseProxyConfig } from '../directives/reverse-proxy/data.ts';

export type FileServerConfig = Extract<HandlerConfig, { kind: 'file_server' }>;

/** What handlers need that lives outside of this folder. */
export interface RouteDeps {
  readonly expand: Expand;
  readonly makeReverseProxy: (config: ReverseProxyConfig) => Handler;
  readonly makeFileServer: (config: FileServerConfig) => Handler;
  /** The hub of the site; passes on what is not the hub's. */
  readonly hubHandler: Handler;
}

interface Step {
  readonly matches: Predicate;
  readonly handler: Handler;
  /** Of the steps with one group only the first that matches runs. */
  readonly group: number | null;
}

/**
 * Compiles routes to one handler that runs those that match, in their order, until one answers.
 * A matcher is asked when its turn comes, so it sees what earlier routes rewrote.
 *
 * @throws HubgateError `invalid-pattern`, `invalid-address-range`, and what the makers throw
 */
export function compileRoutes(routes: readonly RouteConfig[], deps: RouteDeps): Handler {
  const steps = routes.map(
    ({ matcher, handler }): Step => ({
      matches: compileMatcher(matcher),
      handler: compileHandler(handler, deps),
      group: handler.kind === 'handle' ? handler.group : null,
    }),
  );
  return (exchange, next) => runFrom(steps, 0, new Set(), exchange, next);
}

async function runFrom(
  steps: readonly Step[],
  start: number,
  takenGroups: Set<number>,
  exchange: Exchange,
  next: Next,
): Promise<void> {
  for (let i = start; i < steps.length; i += 1) {
    const step = steps[i];
    if (step === undefined) break;
    if (step.group !== null && takenGroups.has(step.group)) continue;
    if (!step.matches(exchange)) continue;
    if (step.group !== null) takenGroups.add(step.group);
    await step.handler(exchange, () => runFrom(steps, i + 1, takenGroups, exchange, next));
    return;
  }
  await next();
}

function compileHandler(config: HandlerConfig, deps: RouteDeps): Handler {
  const { expand } = deps;
  switch (config.kind) {
    case 'hub':
      return deps.hubHandler;
    case 'reverse_proxy':
      return deps.makeReverseProxy(config);
    case 'file_server':
      return deps.makeFileServer(config);
    case 'respond':
      return respond(config, expand);
    case 'redir':
      return redir(config, expand);
    case 'header':
      return header(config.operations, expand);
    case 'request_header':
      return requestHeader(config.operations, expand);
    case 'encode':
      return encode(config);
    case 'rewrite':
      return rewrite(config, expand);
    case 'uri':
      return uri(config, expand);
    case 'handle':
    case 'route':
      return compileRoutes(config.routes, deps);
    case 'root':
      return (exchange, next) => {
        exchange.variables.set('root', expand(config.path, exchange));
        return next();
      };
    case 'forward_auth':
      return forwardAuth(config, deps.makeReverseProxy);
    case 'request_body':
      return requestBody(config.maxSize);
    case 'abort':
      return abort;
    case 'error':
      return (exchange) => {
        throw new HttpError(config.status, expand(config.message, exchange));
      };
  }
}
