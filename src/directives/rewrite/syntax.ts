import { type Directive, matcherBeforeTarget, step } from '../../hubfile/scope.ts';
import { badValue } from '../../hubfile/values.ts';

export const rewrite: Directive = {
  usage: 'rewrite [<matcher>] <to>',
  summary: 'changes path and query',
  read(cursor, scope) {
    const matcher = matcherBeforeTarget(cursor, scope);
    const target = cursor.argument('a path or a query');
    if (!/^[/?{]/.test(target.text)) badValue(cursor, target, 'a path or a query');
    cursor.end();
    return [step(cursor, matcher, { kind: 'rewrite', to: target.text })];
  },
};
