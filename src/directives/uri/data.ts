import type { HandlerData } from '../../config/routes.ts';
import { byKind, list, object } from '../../config/shape.ts';
import { count, name, text } from '../../config/shape-values.ts';

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
  /** Of the path; RE2 syntax. */
  | { readonly kind: 'path_regexp'; readonly pattern: string; readonly replacement: string }
  | { readonly kind: 'query'; readonly changes: readonly QueryChange[] };

/** A change of the parameters of one name; `*` where `replace` means those of any name. */
export type QueryChange =
  | { readonly kind: 'rename'; readonly name: string; readonly to: string }
  | { readonly kind: 'set' | 'add'; readonly name: string; readonly value: string }
  | {
      readonly kind: 'replace';
      readonly name: string;
      /** RE2 syntax. */
      readonly pattern: string;
      readonly replacement: string;
    }
  | { readonly kind: 'delete'; readonly name: string };

const parameter = name('the name of a parameter');
const pattern = text('a regular expression');
const given = object({ name: parameter, value: text('a value') });
const part = object({ text: name('a text') });

declare module '../../config/routes.ts' {
  interface HandlerKinds {
    uri: UriConfig;
  }
}

export const uri: HandlerData<UriConfig> = {
  shape: () =>
    object({
      change: byKind<UriChange>({
        strip_prefix: part,
        strip_suffix: part,
        replace: object(
          { text: name('a text'), replacement: text('a text'), limit: count() },
          { limit: 0 },
        ),
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
