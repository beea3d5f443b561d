import { type DataOf, list, object } from '../config/shape.ts';
import { text as textShape } from '../config/shape-values.ts';
import type { Cursor } from '../hubfile/cursor.ts';
import { oneStep } from '../hubfile/scope.ts';
import { badValue, text } from '../hubfile/values.ts';
import { directoryOf } from '../http/request-path.ts';
import { variableKey } from '../site/placeholders.ts';
import type { HandlerDirective } from './directive.ts';

/** A valid name for `{vars.NAME}`. */
function isVariableName(word: string): boolean {
  return /^[A-Za-z_][\w.-]*$/.test(word);
}

const variableShape = object({
  name: textShape('a name of letters, digits, _, - and .', isVariableName),
  value: textShape('a value'),
});

type Variable = DataOf<typeof variableShape>;

export interface VarsConfig {
  readonly kind: 'vars';
  /** Placeholders in the values are filled in when a request passes. */
  readonly variables: readonly Variable[];
}

const USAGE = `
vars [<matcher>] <name> <value>
vars [<matcher>] {
    <name> <value>
}
`;

export const vars: HandlerDirective<VarsConfig> = {
  data: {
    shape: () => object({ variables: list(variableShape, { min: 1 }) }),
  },
  syntax: {
    usage: USAGE,
    summary: 'sets variables, which later directives read as `{vars.NAME}`',
    specificLast: true,
    read: oneStep((cursor) => {
      const own = cursor.left > 0 || !cursor.hasBlock ? [variable(cursor)] : [];
      const others = cursor.eachLine((line) => variable(line, line.line.words[0]));
      return { kind: 'vars', variables: [...own, ...others] };
    }),
  },
  /** Sets variables of the request; those of one directive do not see each other. */
  compile({ variables }, { expand, expandOrEmpty }) {
    return (exchange, next) => {
      const values = variables.map(({ name, value }) => {
        // `root` is the directory of the site's files.
        const isRoot = name === 'root';
        const text = isRoot ? directoryOf(value, exchange, expand) : expandOrEmpty(value, exchange);
        return [variableKey(name), text] as const;
      });
      for (const [key, text] of values) exchange.variables.set(key, text);
      return next();
    };
  },
};

function variable(cursor: Cursor, name = cursor.argument('a name and a value')): Variable {
  if (!isVariableName(name.text)) badValue(cursor, name, 'a name of letters, digits, _, - and .');
  return { name: name.text, value: text(cursor, `a value for ${name.text}`) };
}
