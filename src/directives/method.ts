import { object } from '../config/shape.ts';
import { name } from '../config/shape-values.ts';
import { isHeaderName } from '../config/well-formed.ts';
import { oneStep } from '../hubfile/scope.ts';
import { name as nameArgument } from '../hubfile/values.ts';
import type { HandlerDirective } from './directive.ts';

export interface MethodConfig {
  readonly kind: 'method';
  /** With placeholders. */
  readonly method: string;
}

export const method: HandlerDirective<MethodConfig> = {
  data: { shape: () => object({ method: name('a method') }) },
  syntax: {
    usage: 'method [<matcher>] <method>',
    summary: 'changes the method of the request',
    read: oneStep((cursor) => ({
      kind: 'method',
      method: nameArgument(cursor, 'a method such as GET'),
    })),
  },
  /**
   * The request keeps the body that the client sent. The client's own method decides how the response is
   * framed: a response to HEAD has no body, whatever the new method is. A value that is not a method changes
   * nothing.
   */
  compile({ method }, { expand }) {
    return (exchange, next) => {
      const changed = expand(method, exchange).toUpperCase();
      if (isHeaderName(changed)) exchange.method = changed;
      return next();
    };
  },
};
