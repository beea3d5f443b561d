import { type Directive, step, takeMatcher } from '../../hubfile/scope.ts';
import { badValue, text } from '../../hubfile/values.ts';
import { isFieldName } from './data.ts';

export const logAppend: Directive = {
  usage: 'log_append [<matcher>] [<]<field> <value>',
  summary: 'adds a field to the lines of the access logs',
  read(cursor, scope) {
    const matcher = takeMatcher(cursor, scope);
    const word = cursor.argument('the name of a field and a value');
    const early = word.text.startsWith('<');
    const field = early ? word.text.slice(1) : word.text;
    if (!isFieldName(field)) badValue(cursor, word, 'a name of letters, digits, _, - and .');
    const value = text(cursor, `a value for ${field}`);
    cursor.end();
    return [step(cursor, matcher, { kind: 'log_append', field, value, early })];
  },
};
