import type { HandlerData } from '../config/routes.ts';
import { object } from '../config/shape.ts';
import { type DirectiveSyntax, oneStep } from '../hubfile/scope.ts';
import type { Handler } from '../http/exchange.ts';
import type { HandlerDirective } from './directive.ts';

export interface AbortConfig {
  readonly kind: 'abort';
}

const data: HandlerData<AbortConfig> = { answersAll: () => true, shape: () => object({}) };

const syntax: DirectiveSyntax = {
  usage: 'abort [<matcher>]',
  summary: 'closes the connection without a response',
  read: oneStep(() => ({ kind: 'abort' })),
};

/** Closes the connection without a response. */
function compile(): Handler {
  return (exchange) => exchange.abort();
}

export const abort: HandlerDirective<AbortConfig> = { data, syntax, compile };
