import type { HandlerData, RouteConfig } from '../config/routes.ts';
import { object } from '../config/shape.ts';
import { count } from '../config/shape-values.ts';
import { type DirectiveSyntax, oneStep } from '../hubfile/scope.ts';
import type { Handler } from '../http/exchange.ts';
import type { HandlerContext } from '../site/handler-context.ts';
import type { HandlerDirective } from './directive.ts';

/** Of the `handle` routes that share a `group`, only the first that matches runs. */
export interface HandleConfig {
  readonly kind: 'handle';
  readonly group: number;
  readonly routes: readonly RouteConfig[];
}

const data: HandlerData<HandleConfig> = {
  shape: (inner) => object({ group: count(), routes: inner }, { group: 0 }),
  nested: ({ routes }) => routes,
  group: ({ group }) => group,
};

const USAGE = `
handle [<matcher>] {
    <directives…>
}
`;

/** Of adjacent `handle` and `handle_path` blocks, only the first that matches runs. */
const syntax: DirectiveSyntax = {
  usage: USAGE,
  summary: 'a block of directives; among its neighbours only the first that matches runs',
  holdsDirectives: true,
  read: oneStep((cursor, scope) => ({
    kind: 'handle',
    group: scope.group,
    routes: scope.routes(cursor.block(), 'documented'),
  })),
};

/** Runs the routes of its block, then the following ones. */
function compile({ routes }: HandleConfig, { compileRoutes }: HandlerContext): Handler {
  return compileRoutes(routes);
}

export const handle: HandlerDirective<HandleConfig> = { data, syntax, compile };
