import { object, withDefault } from '../config/shape.ts';
import { count, name as nameShape } from '../config/shape-values.ts';
import { matcherBeforeTarget, oneStep } from '../hubfile/scope.ts';
import { name } from '../hubfile/values.ts';
import { directoryOf } from '../http/request-path.ts';
import type { HandlerDirective } from './directive.ts';

export interface RootConfig {
  readonly kind: 'root';
  readonly path: string;
  /** Of those that share one, only the first that matches runs; 0: each that matches. */
  readonly group: number;
}

export const root: HandlerDirective<RootConfig> = {
  data: {
    shape: () => object({ path: nameShape('a directory'), group: withDefault(count(), 0) }),
    group: ({ group }) => (group === 0 ? null : group),
  },
  syntax: {
    usage: 'root [<matcher>] <directory>',
    summary: "sets the directory of the site's files",
    read: oneStep(
      (cursor, scope) => ({ kind: 'root', path: name(cursor, 'a directory'), group: scope.group }),
      matcherBeforeTarget,
    ),
  },
  /** Sets the directory of the site's files for the handlers that serve them. */
  compile({ path }, { expand }) {
    return (exchange, next) => {
      exchange.variables.set('root', directoryOf(path, exchange, expand));
      return next();
    };
  },
};
