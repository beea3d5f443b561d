import { isLogName } from '../../config/well-formed.ts';
import { type Directive, step, takeMatcher } from '../../hubfile/scope.ts';
import { badValue } from '../../hubfile/values.ts';

export const logName: Directive = {
  usage: 'log_name [<matcher>] <name…>',
  summary: 'has requests logged by these logs of the site, and by no other',
  specificLast: 'last-written',
  read(cursor, scope) {
    const matcher = takeMatcher(cursor, scope);
    const names = cursor
      .several('the name of a log')
      .map((word) =>
        isLogName(word.text)
          ? word.text
          : badValue(cursor, word, 'a name of letters, digits, _ and -'),
      );
    cursor.end();
    return [step(cursor, matcher, { kind: 'log_name', names })];
  },
};
