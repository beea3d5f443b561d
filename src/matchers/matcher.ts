import type { ConditionData, MatchCondition } from '../config/routes.ts';
import { list, object, type Shape } from '../config/shape.ts';
import type { Cursor } from '../hubfile/cursor.ts';
import type { Word } from '../hubfile/parser.ts';
import type { ConditionSyntax } from '../hubfile/scope.ts';
import type { CompileCondition, Predicate } from '../site/text-pattern.ts';

/**
 * One kind of condition in matchers. Its name in a Hubfile is the `kind` of its configuration. The registry infers the
 * union of all conditions from these objects.
 */
export interface Matcher<Condition extends { readonly kind: string }> {
  /** Its configuration. */
  readonly data: ConditionData<Condition>;
  /** Its syntax in a Hubfile. */
  readonly syntax: ConditionSyntax<Condition>;
  /** Its test at run time. */
  readonly compile: CompileCondition<Condition>;
}

/** A condition that consists of one list. */
export type ListCondition<Kind extends string, Field extends string> = {
  readonly kind: Kind;
} & { readonly [Name in Field]: readonly string[] };

/** A condition that holds if any item of its list fits. Two of them hold if an item of either list fits. */
export function listOf<Kind extends string, Field extends string>(
  kind: Kind,
  field: Field,
  {
    item,
    usage,
    summary,
    read,
    compile,
  }: {
    readonly item: Shape<string>;
    readonly usage: string;
    readonly summary: string;
    readonly read: (cursor: Cursor) => readonly string[];
    readonly compile: (items: readonly string[]) => Predicate;
  },
): Matcher<ListCondition<Kind, Field>> {
  type Condition = ListCondition<Kind, Field>;
  const itemsOf = (condition: Condition): readonly string[] => condition[field];
  const withItems = (items: readonly string[]) =>
    ({ kind, [field]: items }) as Condition & MatchCondition;
  return {
    data: {
      shape: () =>
        object({ [field]: list(item, { min: 1 }) }) as unknown as Shape<Omit<Condition, 'kind'>>,
    },
    syntax: {
      usage,
      summary,
      read(cursor) {
        const items = read(cursor);
        const { input } = item;
        if (input?.kind === 'text') {
          const wrong = items.find((one) => !input.isFit(one));
          const message = `${kind} expects ${input.expected}, not ${JSON.stringify(wrong)}`;
          if (wrong !== undefined) cursor.fail(cursor.span, 'bad-value', message);
        }
        return [withItems(items)];
      },
      merge: (a, b) => withItems([...itemsOf(a), ...itemsOf(b)]),
    },
    compile: (condition) => compile(itemsOf(condition)),
  };
}

/**
 * A condition with the regular expression in `words`, which are `[<name>] <regexp>`. Notes the place of the expression.
 *
 * @param rest its other members
 */
export function withRegexp<Kind extends string, Rest extends object>(
  cursor: Cursor,
  kind: Kind,
  words: readonly Word[],
  rest: Rest,
): Rest & { readonly kind: Kind; readonly name: string | null; readonly pattern: string } {
  if (words.length > 2) {
    const message = `${cursor.name} takes a name and one regular expression`;
    cursor.fail(cursor.span, 'unexpected-argument', message);
  }
  const [pattern, name] = words.toReversed();
  // As in Caddy, an empty name is none.
  const condition = { kind, name: name?.text || null, ...rest, pattern: pattern?.text ?? '' };
  const place = pattern?.span ?? cursor.span;
  cursor.origins.mark(condition, cursor.span, new Map([['pattern', place]]));
  return condition;
}
