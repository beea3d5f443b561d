import { object, withDefault } from '../config/shape.ts';
import { count, text } from '../config/shape-values.ts';
import { isRewriteTarget } from '../config/well-formed.ts';
import { matcherBeforeTarget, oneStep } from '../hubfile/scope.ts';
import { matching } from '../hubfile/values.ts';
import { rewrittenTarget } from '../site/rewritten-target.ts';
import type { HandlerDirective } from './directive.ts';

export interface RewriteConfig {
  readonly kind: 'rewrite';
  readonly to: string;
  /** Of those that share one, only the first that matches runs; 0: each that matches. */
  readonly group: number;
}

export const rewrite: HandlerDirective<RewriteConfig> = {
  data: {
    shape: () =>
      object({ to: text('a path or a query', isRewriteTarget), group: withDefault(count(), 0) }),
    group: ({ group }) => (group === 0 ? null : group),
    retargets: () => true,
  },
  syntax: {
    usage: 'rewrite [<matcher>] <to>',
    summary: 'changes the path and the query',
    read: oneStep(
      (cursor, scope) => ({
        kind: 'rewrite',
        to: matching(cursor, 'a path or a query', isRewriteTarget),
        group: scope.group,
      }),
      matcherBeforeTarget,
    ),
  },
  /** `rewrite [<matcher>] <to>`: `/path`, `?query` or both. The part that is not given stays. */
  compile({ to }, { expandOrEmpty }) {
    const rewritten = rewrittenTarget(to, expandOrEmpty);
    return (exchange, next) => {
      exchange.target = rewritten(exchange);
      return next();
    };
  },
};
