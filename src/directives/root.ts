import type { HandlerData } from '../config/routes.ts';
import { object } from '../config/shape.ts';
import { count, name as nameShape } from '../config/shape-values.ts';
import { type DirectiveSyntax, matcherBeforeTarget, oneStep } from '../hubfile/scope.ts';
import { name } from '../hubfile/values.ts';
import type { Handler } from '../http/exchange.ts';
import type { HandlerContext } from '../site/handler-context.ts';
import type { HandlerDirective } from './directive.ts';

export interface RootConfig {
  readonly kind: 'root';
  readonly path: string;
  /** Of those that share one, only the first that matches runs; 0: each that matches. */
  readonly group: number;
}

const data: HandlerData<RootConfig> = {
  shape: () => object({ path: nameShape('a directory'), group: count() }, { group: 0 }),
  group: ({ group }) => (group === 0 ? null : group),
};

const syntax: DirectiveSyntax = {
  usage: 'root [<matcher>] <directory>',
  summary: "sets the directory of the site's files",
  read: oneStep(
    (cursor, scope) => ({ kind: 'root', path: name(cursor, 'a directory'), group: scope.group }),
    matcherBeforeTarget,
  ),
};

/** Sets the directory of the site's files for the handlers that serve them. */
function compile({ path }: RootConfig, { expand }: HandlerContext): Handler {
  return (exchange, next) => {
    exchange.variables.set('root', expand(path, exchange));
    return next();
  };
}

export const root: HandlerDirective<RootConfig> = { data, syntax, compile };
