import type { ConditionSyntax } from '../../hubfile/condition-syntax.ts';
import type { VarsRegexpCondition } from './data.ts';

export const varsRegexp: ConditionSyntax<VarsRegexpCondition> = {
  usage: 'vars_regexp [<name>] <name>|<placeholder> <regexp>',
  summary: 'a variable, or any placeholder, that matches (RE2 syntax)',
  read(cursor) {
    const words = cursor.several('a variable or a placeholder, and a regular expression');
    const [variable, pattern] = words.slice(-2);
    if (words.length < 2 || words.length > 3 || variable === undefined || pattern === undefined) {
      const message =
        'vars_regexp takes a variable and a regular expression, maybe a name before them';
      return cursor.fail(cursor.span, 'expected-argument', message);
    }
    const condition: VarsRegexpCondition = {
      kind: 'vars_regexp',
      name: words.length === 3 ? (words[0]?.text ?? null) : null,
      variable: variable.text,
      pattern: pattern.text,
    };
    cursor.origins.mark(condition, cursor.span, new Map([['pattern', pattern.span]]));
    return [condition];
  },
};
