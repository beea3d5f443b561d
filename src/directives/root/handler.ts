import type { Handler } from '../../http/exchange.ts';
import type { HandlerContext } from '../handler-context.ts';
import type { RootConfig } from './data.ts';

/** Says where the files of the site are, for those who serve them. */
export function root({ path }: RootConfig, { expand }: HandlerContext): Handler {
  return (exchange, next) => {
    exchange.variables.set('root', expand(path, exchange));
    return next();
  };
}
