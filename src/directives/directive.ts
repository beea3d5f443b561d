import type { HandlerConfig, HandlerData } from '../config/routes.ts';
import type { Handler } from '../http/exchange.ts';
import { type DirectiveSyntax, step, takeMatcher } from '../hubfile/scope.ts';
import type { CompileHandler, HandlerContext } from '../site/handler-context.ts';

/** A directive: its syntax and, if it has a handler of its own, the configuration and the handler. */
export interface Directive {
  readonly syntax: DirectiveSyntax;
  readonly data?: HandlerData<HandlerConfig>;
  compile?(config: HandlerConfig, context: HandlerContext): Handler;
}

/** A directive with a handler. */
export interface HandlerDirective<Config extends { readonly kind: string }> {
  readonly syntax: DirectiveSyntax;
  /** Its configuration. */
  readonly data: HandlerData<Config>;
  /** Its effect on requests. */
  readonly compile: CompileHandler<Config>;
}

/** It has no handler: it becomes a `route` with the steps of the named one. */
const syntax: DirectiveSyntax = {
  usage: 'invoke [<matcher>] <route>',
  summary: 'runs a named route `&(name) { … }`',
  read(cursor, scope) {
    const matcher = takeMatcher(cursor, scope);
    const name = cursor.argument('the name of a route');
    cursor.end();
    return [step(cursor, matcher, { kind: 'route', routes: scope.named(cursor, name) })];
  },
};

export const invoke: Directive = { syntax };
