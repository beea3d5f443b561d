import type { Cursor } from '../../hubfile/cursor.ts';
import type { Word } from '../../hubfile/parser.ts';
import { type Directive, step, takeMatcher } from '../../hubfile/scope.ts';
import { badValue, text } from '../../hubfile/values.ts';
import { isVariableName, type VarsConfig } from './data.ts';

type Variable = VarsConfig['variables'][number];

const USAGE = `
vars [<matcher>] <name> <value>
vars [<matcher>] {
    <name> <value>
}
`;

export const vars: Directive = {
  usage: USAGE,
  summary: 'gives the request variables, which are `{vars.NAME}` from then on',
  specificLast: 'last-written',
  read(cursor, scope) {
    const matcher = takeMatcher(cursor, scope);
    const variables: Variable[] = [];
    if (cursor.left > 0 || !cursor.hasBlock) {
      variables.push(variable(cursor, cursor.argument('a name and a value')));
    }
    for (const line of cursor.lines()) {
      cursor.problems.attempt(() => {
        const [name] = line.line.words;
        if (name !== undefined) variables.push(variable(line, name));
        line.end();
      });
    }
    cursor.end();
    return [step(cursor, matcher, { kind: 'vars', variables })];
  },
};

function variable(cursor: Cursor, name: Word): Variable {
  if (!isVariableName(name.text)) badValue(cursor, name, 'a name of letters, digits, _, - and .');
  return { name: name.text, value: text(cursor, `a value for ${name.text}`) };
}
