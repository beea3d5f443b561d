import type { HandlerData } from '../../config/handler-data.ts';
import { list, object } from '../../config/shape.ts';
import { text } from '../../config/shape-values.ts';

export interface VarsConfig {
  readonly kind: 'vars';
  /** Placeholders in the values are filled in when the request comes by. */
  readonly variables: readonly { readonly name: string; readonly value: string }[];
}

/** What `{vars.NAME}` can name. */
export function isVariableName(word: string): boolean {
  return /^[A-Za-z_][\w.-]*$/.test(word);
}

const variable = object({
  name: text('a name of letters, digits, _, - and .', isVariableName),
  value: text('a value'),
});

export const vars: HandlerData<VarsConfig> = {
  shape: () => object({ variables: list(variable, { min: 1 }) }),
};
