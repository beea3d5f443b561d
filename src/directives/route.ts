import type { HandlerData, RouteConfig } from '../config/routes.ts';
import { object } from '../config/shape.ts';
import { type DirectiveSyntax, oneStep } from '../hubfile/scope.ts';
import type { Handler } from '../http/exchange.ts';
import type { HandlerContext } from '../site/handler-context.ts';
import type { HandlerDirective } from './directive.ts';

export interface RouteBlockConfig {
  readonly kind: 'route';
  readonly routes: readonly RouteConfig[];
}

const data: HandlerData<RouteBlockConfig> = {
  shape: (inner) => object({ routes: inner }),
  nested: ({ routes }) => routes,
};

const syntax: DirectiveSyntax = {
  usage: 'route [<matcher>] { … }',
  summary: 'a block of directives that run in their written order',
  holdsDirectives: true,
  read: oneStep((cursor, scope) => ({
    kind: 'route',
    routes: scope.routes(cursor.block(), 'written'),
  })),
};

/** Runs the routes of its block, then the following ones. */
function compile({ routes }: RouteBlockConfig, { compileRoutes }: HandlerContext): Handler {
  return compileRoutes(routes);
}

export const route: HandlerDirective<RouteBlockConfig> = { data, syntax, compile };
