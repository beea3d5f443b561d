import { type Directive, step } from '../../hubfile/scope.ts';
import { badValue } from '../../hubfile/values.ts';
import { matcherBeforeTarget } from '../redir/syntax.ts';

/** `rewrite [<matcher>] <to>`: the path, the query (`?a=b`), or both. */
export const rewrite: Directive = {
  read(cursor, scope) {
    const matcher = matcherBeforeTarget(cursor, scope);
    const target = cursor.argument('a path or a query');
    if (!/^[/?{]/.test(target.text)) badValue(cursor, target, 'a path or a query');
    cursor.end();
    return [step(cursor, matcher, { kind: 'rewrite', to: target.text })];
  },
};
