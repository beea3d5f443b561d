import { type Directive, step, takeMatcher } from '../../hubfile/scope.ts';

export const abort: Directive = {
  usage: 'abort [<matcher>]',
  summary: 'closes the connection without an answer',
  read(cursor, scope) {
    const matcher = takeMatcher(cursor, scope);
    cursor.end();
    return [step(cursor, matcher, { kind: 'abort' })];
  },
};
