import { step, takeMatcher } from '../hubfile/scope.ts';
import type { Directive } from './directive.ts';

export const invoke: Directive = {
  /** It has no handler: it becomes a `route` with the steps of the named one. */
  syntax: {
    usage: 'invoke [<matcher>] <route>',
    summary: 'runs a named route `&(name) { … }`',
    read(cursor, scope) {
      const matcher = takeMatcher(cursor, scope);
      const name = cursor.argument('the name of a route');
      cursor.end();
      return [step(cursor, matcher, { kind: 'route', routes: scope.named(cursor, name) })];
    },
  },
};
