import { type Directive, step, takeMatcher } from '../../hubfile/scope.ts';

export const logSkip: Directive = {
  usage: 'log_skip [<matcher>]',
  summary: 'leaves requests out of the access log',
  oldNames: ['skip_log'],
  read(cursor, scope) {
    const matcher = takeMatcher(cursor, scope);
    cursor.end();
    return [step(cursor, matcher, { kind: 'log_skip' })];
  },
};
