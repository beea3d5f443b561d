import type { HandlerConfig, HandlerData } from '../config/routes.ts';
import type { Handler } from '../http/exchange.ts';
import type { DirectiveSyntax } from '../hubfile/scope.ts';
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
