import { type Directive, matcherBeforeTarget, step } from '../../hubfile/scope.ts';
import { name } from '../../hubfile/values.ts';

export const root: Directive = {
  usage: 'root [<matcher>] <directory>',
  summary: 'the directory of the files of the site',
  specificLast: 'first-written',
  read(cursor, scope) {
    const matcher = matcherBeforeTarget(cursor, scope);
    const path = name(cursor, 'a directory');
    cursor.end();
    return [step(cursor, matcher, { kind: 'root', path })];
  },
};
