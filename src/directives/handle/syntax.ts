import { type Directive, step, takeMatcher } from '../../hubfile/scope.ts';

const USAGE = `
handle [<matcher>] {
    <directives…>
}
`;

/** Of the `handle` and `handle_path` blocks side by side, only the first that matches runs. */
export const handle: Directive = {
  usage: USAGE,
  summary: 'a block of directives; of those side by side, only the first that matches runs',
  holdsDirectives: true,
  read(cursor, scope) {
    const matcher = takeMatcher(cursor, scope);
    const routes = scope.routes(cursor.block(), 'documented');
    cursor.end();
    return [step(cursor, matcher, { kind: 'handle', group: scope.group, routes })];
  },
};
