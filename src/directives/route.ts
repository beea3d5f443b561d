import type { RouteConfig } from '../config/routes.ts';
import { object } from '../config/shape.ts';
import { oneStep } from '../hubfile/scope.ts';
import type { HandlerDirective } from './directive.ts';

export interface RouteBlockConfig {
  readonly kind: 'route';
  readonly routes: readonly RouteConfig[];
}

export const route: HandlerDirective<RouteBlockConfig> = {
  data: {
    shape: (inner) => object({ routes: inner }),
    nested: ({ routes }) => routes,
  },
  syntax: {
    usage: 'route [<matcher>] { … }',
    summary: 'a block of directives that run in their written order',
    holdsDirectives: true,
    read: oneStep((cursor, scope) => ({
      kind: 'route',
      routes: scope.routes(cursor.block(), 'written'),
    })),
  },
  /** Runs the routes of its block, then the following ones. */
  compile({ routes }, { compileRoutes }) {
    return compileRoutes(routes);
  },
};
