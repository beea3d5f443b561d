import { HttpError } from '../../http/errors.ts';
import { compilePattern, matchable } from '../../http/linear-regexp.ts';
import type { Exchange, Expand } from '../../http/exchange.ts';
import type { HandlerData, HeaderOperation } from '../../config/routes.ts';
import { byKind, list, object, withDefault } from '../../config/shape.ts';
import { count, name, text } from '../../config/shape-values.ts';

type Parameter = readonly [name: string, value: string];
type Parameters = readonly Parameter[];
type Change = (parameters: Parameters, exchange: Exchange) => Parameters;

/** Most parameters of a changed query; the same as the hub's limit for the pairs of a form. */
const MAX_PARAMETERS = 1100;
/** The order in which the changes are applied, whatever the order in which they are written. */
const ORDER: readonly QueryChange['kind'][] = ['rename', 'set', 'add', 'replace', 'delete'];

/**
 * Changes the parameters of a query, which keep their order. Renamed or set parameters stay at the position
 * of the first with that name; new ones come last. A query without changes stays as it is; otherwise, all of
 * it is encoded in the way of forms.
 */
export function changeQuery(
  changes: readonly QueryChange[],
  expand: Expand,
): (query: string, exchange: Exchange) => string {
  const ordered = [...changes]
    .sort((one, other) => ORDER.indexOf(one.kind) - ORDER.indexOf(other.kind))
    .map((change) => compile(change, expand));
  return (query, exchange) => {
    const before: Parameters = parametersOf(query);
    const after = ordered.reduce((sofar, change) => change(sofar, exchange), before);
    return areEqual(after, before) ? query : queryText(after);
  };
}

function parametersOf(query: string): Parameters {
  const parameters = [...new URLSearchParams(query)];
  if (parameters.length <= MAX_PARAMETERS) return parameters;
  throw new HttpError(414, `more than ${MAX_PARAMETERS} parameters`);
}

function areEqual(some: Parameters, others: Parameters): boolean {
  if (some === others) return true;
  if (some.length !== others.length) return false;
  return some.every(([name, value], at) => {
    const other = others[at];
    return other !== undefined && name === other[0] && value === other[1];
  });
}

function queryText(parameters: Parameters): string {
  const query = new URLSearchParams();
  for (const [name, value] of parameters) query.append(name, value);
  return query.toString();
}

function compile(change: QueryChange, expand: Expand): Change {
  switch (change.kind) {
    case 'rename':
      return (parameters, exchange) => {
        const [from, to] = [expand(change.name, exchange), expand(change.to, exchange)];
        if (!parameters.some(([name]) => name === from)) return parameters;
        return parameters
          .filter(([name]) => name === from || name !== to)
          .map(([name, value]) => [name === from ? to : name, value]);
      };
    case 'set':
      return (parameters, exchange) => {
        const name = expand(change.name, exchange);
        const parameter: Parameter = [name, expand(change.value, exchange)];
        const first = parameters.findIndex(([each]) => each === name);
        if (first === -1) return [...parameters, parameter];
        return parameters.flatMap((each, index) => {
          if (index === first) return [parameter];
          return each[0] === name ? [] : [each];
        });
      };
    case 'add':
      return (parameters, exchange) => [
        ...parameters,
        [expand(change.name, exchange), expand(change.value, exchange)],
      ];
    case 'replace': {
      const replaced = compilePattern(change.pattern).replacer(change.replacement);
      return (parameters, exchange) => {
        const wanted = expand(change.name, exchange);
        return parameters.map((parameter) => {
          const [name, value] = parameter;
          if (wanted !== '*' && name !== wanted) return parameter;
          return [name, replaced(matchable(value), (text) => expand(text, exchange))];
        });
      };
    }
    case 'delete':
      return (parameters, exchange) => {
        const wanted = expand(change.name, exchange);
        return parameters.filter(([name]) => name !== wanted);
      };
  }
}

export interface UriConfig {
  readonly kind: 'uri';
  readonly change: UriChange;
}

export type UriChange =
  | { readonly kind: 'strip_prefix' | 'strip_suffix'; readonly text: string }
  | {
      readonly kind: 'replace';
      readonly text: string;
      readonly replacement: string;
      /** 0 means all. */
      readonly limit: number;
    }
  /** Applies to the path; RE2 syntax. */
  | { readonly kind: 'path_regexp'; readonly pattern: string; readonly replacement: string }
  | { readonly kind: 'query'; readonly changes: readonly QueryChange[] };

/** A change of the parameters with one name; `*` in `replace` means those with any name. */
export type QueryChange =
  | { readonly kind: 'rename'; readonly name: string; readonly to: string }
  | { readonly kind: 'set' | 'add'; readonly name: string; readonly value: string }
  | Extract<HeaderOperation, { readonly kind: 'replace' }>
  | { readonly kind: 'delete'; readonly name: string };

const parameter = name('the name of a parameter');
const pattern = text('a regular expression');
const given = object({ name: parameter, value: text('a value') });
const part = object({ text: name('a text') });

export const uri: HandlerData<UriConfig> = {
  retargets: ({ change }) => change.kind !== 'query',
  shape: () =>
    object({
      change: byKind<UriChange>({
        strip_prefix: part,
        strip_suffix: part,
        replace: object({
          text: name('a text'),
          replacement: text('a text'),
          limit: withDefault(count(), 0),
        }),
        path_regexp: object({ pattern, replacement: text('a text') }),
        query: object({
          changes: list(
            byKind<QueryChange>({
              rename: object({ name: parameter, to: parameter }),
              set: given,
              add: given,
              replace: object({ name: parameter, pattern, replacement: text('a text') }),
              delete: object({ name: parameter }),
            }),
            { min: 1 },
          ),
        }),
      }),
    }),
  patterns: ({ change }) => {
    if (change.kind === 'query') return change.changes.filter(({ kind }) => kind === 'replace');
    return change.kind === 'path_regexp' ? [change] : [];
  },
};
