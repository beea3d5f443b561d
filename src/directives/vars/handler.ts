import type { Handler } from '../../http/exchange.ts';
import { variableKey } from '../../site/placeholders.ts';
import type { HandlerContext } from '../handler-context.ts';
import type { VarsConfig } from './data.ts';

/** Gives the request variables; those of one directive do not see each other. */
export function vars({ variables }: VarsConfig, { expand }: HandlerContext): Handler {
  return (exchange, next) => {
    const values = variables.map(({ name, value }) => [name, expand(value, exchange)] as const);
    for (const [name, value] of values) exchange.variables.set(variableKey(name), value);
    return next();
  };
}
