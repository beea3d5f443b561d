import { object } from '../config/shape.ts';
import { oneStep } from '../hubfile/scope.ts';
import type { HandlerDirective } from './directive.ts';

export interface AbortConfig {
  readonly kind: 'abort';
}

export const abort: HandlerDirective<AbortConfig> = {
  data: { answersAll: () => true, shape: () => object({}) },
  syntax: {
    usage: 'abort [<matcher>]',
    summary: 'closes the connection without a response',
    read: oneStep(() => ({ kind: 'abort' })),
  },
  /** Closes the connection without a response. */
  compile() {
    return (exchange) => exchange.abort();
  },
};
