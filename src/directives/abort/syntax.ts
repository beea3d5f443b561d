import { type Directive, step, takeMatcher } from '../../hubfile/scope.ts';

/** `abort [<matcher>]`: closes the connection without an answer. */
export const abort: Directive = {
  read(cursor, scope) {
    const matcher = takeMatcher(cursor, scope);
    cursor.end();
    return [step(cursor, matcher, { kind: 'abort' })];
  },
};
