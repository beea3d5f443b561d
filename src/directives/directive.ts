import type { HandlerData } from '../config/routes.ts';
import type { DirectiveSyntax } from '../hubfile/scope.ts';
import type { CompileHandler } from '../site/handler-context.ts';

/** A directive that has no handler of its own. */
export interface Directive {
  readonly syntax: DirectiveSyntax;
}

export interface HandlerDirective<Config extends { readonly kind: string }> {
  readonly syntax: DirectiveSyntax;
  readonly data: HandlerData<Config>;
  /** Its effect on requests. */
  readonly compile: CompileHandler<Config>;
}
