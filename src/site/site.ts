import type { RouteConfig } from '../config/routes.ts';
import type { SiteContext } from './handler-context.ts';
import { about, type Exchange, type Handler, type Next } from '../http/exchange.ts';
import { answerError } from '../http/answer.ts';
import { HttpError, reasonPhrase } from '../http/errors.ts';
import type { Clock } from '../kernel/clock.ts';
import { messageOf } from '../kernel/error.ts';
import { describeError, setErrorStatus } from './error-status.ts';
import { compileRoutes } from './route.ts';
import { SubExchange } from './sub-exchange.ts';

/** nginx's status for a client that has left; it appears only in logs. */
const CLIENT_LEFT = 499;

/** Responds to every request of a site, whatever happens. Never rejects. */
export type SiteHandler = (exchange: Exchange) => Promise<void>;

/**
 * Compiles a site. The response to an error of its routes comes from its error routes; without any, it
 * contains the phrase of the status and the request's id. If no route responds, the status is 404.
 *
 * @throws HubgateError the errors of {@link compileRoutes}
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
      await answerFailure(exchange, error, { clock: context.clock, errorRoutes });
    }
  };
}

/** Wraps the handlers of a site, so that errors outside its routes get a response too. Never rejects. */
export function answerErrors(
  handler: (exchange: Exchange) => void | Promise<void>,
  clock: Clock,
): SiteHandler {
  return async (exchange) => {
    try {
      await handler(exchange);
    } catch (error) {
      await answerFailure(exchange, error, { clock, errorRoutes: null });
    }
  };
}

async function answerFailure(
  exchange: Exchange,
  error: unknown,
  { clock, errorRoutes }: { readonly clock: Clock; readonly errorRoutes: Handler | null },
): Promise<void> {
  const status = error instanceof HttpError ? error.status : 500;
  const shown = error instanceof HttpError ? error.shown : null;
  note(exchange, status, error);
  if (exchange.begun || status === CLIENT_LEFT) {
    exchange.abort();
    return;
  }
  try {
    setErrorStatus(exchange, status);
    const asked =
      errorRoutes === null
        ? exchange
        : await runErrorRoutes(exchange, { status, shown }, errorRoutes);
    // With the fields of the error routes, also where none of them answers.
    if (!exchange.begun) answerError(asked, status, { shown, atMs: clock.now() });
  } catch (second) {
    note(exchange, status, second);
    if (exchange.begun) exchange.abort();
    else answerError(exchange, status, { shown, atMs: clock.now() });
  }
  // What an upstream left whole, and no page wanted, must not hold up the connection.
  if (exchange.isBodyWhole) exchange.body.resume();
}

/**
 * The routes see the original request, whatever was rewritten. They see a body only if nothing has read any of it, because half a
 * body is worse than none.
 */
async function runErrorRoutes(
  exchange: Exchange,
  { status, shown }: { readonly status: number; readonly shown: string | null },
  routes: Handler,
): Promise<Exchange> {
  const { originalMethod: method, originalTarget: target, variables } = exchange;
  // A body that is too large for the site is too large for its error pages.
  const hasBody = status !== 413 && exchange.isBodyWhole;
  const request = { method, target, variables, source: null, intercept: null, hasBody };
  const sub = new SubExchange(exchange, request);
  describeError(sub, reasonPhrase(status), shown ?? '');
  await routes(sub, () => Promise.resolve());
  return sub;
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
