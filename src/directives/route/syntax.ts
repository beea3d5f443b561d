import { type Directive, step, takeMatcher } from '../../hubfile/scope.ts';

export const route: Directive = {
  usage: 'route [<matcher>] { … }',
  summary: 'a block of directives that run as they are written',
  holdsDirectives: true,
  read(cursor, scope) {
    const matcher = takeMatcher(cursor, scope);
    const routes = scope.routes(cursor.block(), 'written');
    cursor.end();
    return [step(cursor, matcher, { kind: 'route', routes })];
  },
};
