import type { RouteConfig } from '../config/routes.ts';
import { object, withDefault } from '../config/shape.ts';
import { count } from '../config/shape-values.ts';
import { oneStep } from '../hubfile/scope.ts';
import type { HandlerDirective } from './directive.ts';

/** Of the `handle` routes that share a `group`, only the first that matches runs. */
export interface HandleConfig {
  readonly kind: 'handle';
  readonly group: number;
  readonly routes: readonly RouteConfig[];
}

const USAGE = `
handle [<matcher>] {
    <directives…>
}
`;

export const handle: HandlerDirective<HandleConfig> = {
  data: {
    shape: (inner) => object({ group: withDefault(count(), 0), routes: inner }),
    nested: ({ routes }) => routes,
    group: ({ group }) => group,
  },
  /** Of adjacent `handle` and `handle_path` blocks, only the first that matches runs. */
  syntax: {
    usage: USAGE,
    summary: 'a block of directives; among its neighbours only the first that matches runs',
    holdsDirectives: true,
    read: oneStep((cursor, scope) => ({
      kind: 'handle',
      group: scope.group,
      routes: scope.routes(cursor.block(), 'documented'),
    })),
  },
  /** Runs the routes of its block, then the following ones. */
  compile({ routes }, { compileRoutes }) {
    return compileRoutes(routes);
  },
};
