import type { ConditionSyntax } from '../../hubfile/condition-syntax.ts';
import { list, name } from '../../hubfile/values.ts';
import type { VarsCondition } from './data.ts';

export const vars: ConditionSyntax<VarsCondition> = {
  usage: 'vars <name>|<placeholder> <value…>',
  summary: 'a variable (of `vars`), or any placeholder, that has one of these values',
  read(cursor) {
    const variable = name(cursor, 'a variable or a placeholder');
    return [{ kind: 'vars', variable, values: list(cursor, 'a value') }];
  },
  merge: (a, b) =>
    a.variable === b.variable ? { ...a, values: [...a.values, ...b.values] } : null,
};
