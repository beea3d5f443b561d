import type { HandlerConfig, HandlerData } from '../config/routes.ts';
import type { Handler } from '../http/exchange.ts';
import type { DirectiveSyntax } from '../hubfile/scope.ts';
import type { CompileHandler, HandlerContext } from '../site/handler-context.ts';

/** A directive: how it is written and, where it has a handler of its own, what that is and does. */
export interface Directive {
  readonly syntax: DirectiveSyntax;
  readonly data?: HandlerData<HandlerConfig>;
  compile?(config: HandlerConfig, context: HandlerContext): Handler;
}

/** A directive with a handler. */
export interface HandlerDirective<Config extends { readonly kind: string }> {
  readonly syntax: DirectiveSyntax;
  /** What its configuration is. */
  readonly data: HandlerData<Config>;
  /** What it does with requests. */
  readonly compile: CompileHandler<Config>;
}
