import type { RouteConfig } from '../config/routes.ts';
import type { SiteContext } from './handler-context.ts';
import { about, type Exchange, type Handler, type Next } from '../http/exchange.ts';
import { answerError } from '../http/answer.ts';
import { HttpError, reasonPhrase } from '../http/errors.ts';
import { messageOf } from '../kernel/error.ts';
import { describeError, setErrorStatus } from './error-status.ts';
import { compileRoutes } from './route.ts';
import { SubExchange } from './sub-exchange.ts';

/** nginx's status for a client that left; it is in logs only. */
const CLIENT_LEFT = 499;

/** Answers every request of a site, whatever happens. Never rejects. */
export type SiteHandler = (exchange: Exchange) => Promise<void>;

/**
 * Compiles a site. What its routes throw is answered by its error routes, else by the phrase of the
 * status and the request's id; what nobody answers is 404.
 *
 * @throws HubgateError what {@link compileRoutes} throws
 */
export function compileSite(
  site: { readonly routes: readonly RouteConfig[]; readonly errorRoutes: readonly RouteConfig[] },
  context: SiteContext,
): SiteHandler {
  const routes = compileRoutes(site.routes, context);
  const errorRoutes =
    site.errorRoutes.length === 0 ? null : compileRoutes(site.errorRoutes, context);
  const unanswered: Next = () => Promise.resolve();
  return async (exchange) => {
    try {
      await routes(exchange, unanswered);
      if (!exchange.begun && !exchange.abandoned) throw new HttpError(404, 'no route answered');
    } catch (error) {
      await answerFailure(exchange, error, errorRoutes);
    }
  };
}

/** A handler around those of a site, where what is thrown outside its routes is answered too. Never rejects. */
export function answerErrors(handler: SiteHandler): SiteHandler {
  return async (exchange) => {
    try {
      await handler(exchange);
    } catch (error) {
      await answerFailure(exchange, error, null);
    }
  };
}

async function answerFailure(
  exchange: Exchange,
  error: unknown,
  errorRoutes: Handler | null,
): Promise<void> {
  const status = error instanceof HttpError ? error.status : 500;
  note(exchange, status, error);
  if (exchange.begun || status === CLIENT_LEFT) {
    exchange.abort();
    return;
  }
  try {
    setErrorStatus(exchange, status);
    if (errorRoutes !== null) await runErrorRoutes(exchange, status, errorRoutes);
    if (!exchange.begun) answerError(exchange, status);
  } catch (second) {
    note(exchange, status, second);
    if (exchange.begun) exchange.abort();
    else answerError(exchange, status);
  }
  // What an upstream left whole, and no page wanted, must not hold up the connection.
  if (exchange.isBodyWhole) exchange.body.resume();
}

/**
 * The routes see the request as it came, whatever was rewritten. They see a body only where nobody has read of it: half a body is worse than
 * none.
 */
async function runErrorRoutes(exchange: Exchange, status: number, routes: Handler): Promise<void> {
  const { originalMethod: method, originalTarget: target, variables } = exchange;
  // What is too large for the site is too large for its pages.
  const hasBody = status !== 413 && exchange.isBodyWhole;
  const request = { method, target, variables, source: null, intercept: null, hasBody };
  const sub = new SubExchange(exchange, request);
  describeError(sub, reasonPhrase(status));
  await routes(sub, () => Promise.resolve());
}

function note(exchange: Exchange, status: number, error: unknown): void {
  const fields = { status, error: messageOf(error) };
  if (!(error instanceof HttpError))
    exchange.log.error('a handler failed', about(exchange, { ...fields, stack: stackOf(error) }));
  else if (status >= 500) exchange.log.warn('the request failed', about(exchange, fields));
  else if (status === CLIENT_LEFT) exchange.log.info('the client did not wait', fields);
  else exchange.log.debug('the request was refused', fields);
}

function stackOf(error: unknown): string | undefined {
  return error instanceof Error ? error.stack : undefined;
}
