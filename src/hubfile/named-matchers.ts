import { placeText, didYouMean } from '../config/problem.ts';
import type { MatchCondition, RequestMatcher } from '../config/routes.ts';
import { unsupportedConditions } from './unsupported.ts';
import { Cursor, type OptionTable } from './cursor.ts';
import type { DirectiveTable } from './directive-table.ts';
import type { Line, Word } from './parser.ts';
import { placeOf, type Span } from './place.ts';
import { ANY_RESPONSE, type ResponseMatcher } from '../config/shape-routes.ts';
import { headerName, statusClasses } from './values.ts';

/** The `@name` matchers of a block, and of the blocks around it. */
export class NamedMatchers {
  readonly outer: NamedMatchers | null;
  readonly mayLack: boolean;
  readonly #table: DirectiveTable;
  readonly #own = new Map<string, { matcher: RequestMatcher | null; line: Line }>();

  /** @param mayLack whether a part of the block could not be read: an unknown matcher may be defined there */
  constructor(
    table: DirectiveTable,
    outer: NamedMatchers | null,
    mayLack = outer?.mayLack ?? false,
  ) {
    this.#table = table;
    this.outer = outer;
    this.mayLack = mayLack;
  }

  /**
   * Reads one definition:
   *
   *     @name path /a /b
   *     @name {
   *         path /a/*
   *         method GET
   *     }
   */
  define(cursor: Cursor): void {
    const known = this.#get(cursor.name);
    if (known !== undefined) {
      const first = placeText(placeOf(known.line.span));
      const message = `the matcher ${cursor.name} is defined already, at ${first}`;
      cursor.fail(cursor.span, 'duplicate-matcher', message);
    }
    // An invalid definition counts as one, so that its uses are not reported as well.
    this.#own.set(cursor.name, { matcher: null, line: cursor.line });
    const matcher = namedAfter(matcherOf(cursor, this.#table), cursor);
    this.#own.set(cursor.name, { matcher, line: cursor.line });
  }

  /** The matcher for a word such as `@api`. */
  find(cursor: Cursor, word: Word): RequestMatcher | null {
    const found = this.#get(word.text);
    if (found !== undefined) return found.matcher;
    if (this.mayLack) return null;
    const hint = didYouMean(word.text, this.#names()) ?? `define it: ${word.text} path /example/*`;
    // The rest of the directive is still checked.
    const message = `unknown matcher ${cursor.quote(word)}`;
    cursor.problems.error(word.span, 'unknown-matcher', message, hint);
    return null;
  }

  #get(name: string): { matcher: RequestMatcher | null; line: Line } | undefined {
    const own = this.#own.get(name);
    if (own !== undefined || this.outer === null) return own;
    return this.outer.#get(name);
  }

  #names(): string[] {
    const outer = this.outer === null ? [] : this.outer.#names();
    return [...this.#own.keys(), ...outer];
  }
}

/** Whatever a regular expression captures without a name of its own has that of its matcher. */
function namedAfter(matcher: RequestMatcher, { name, span, origins }: Cursor): RequestMatcher {
  const conditions = matcher.map((condition): MatchCondition => {
    if (!('pattern' in condition) || condition.name !== null) return condition;
    const named = { ...condition, name: name.slice(1) };
    origins.follow(named, condition);
    return named;
  });
  return origins.of(span, conditions);
}

/** The part after `@name` or `not`: one condition on the line, or a block of them. */
export function matcherOf(cursor: Cursor, table: DirectiveTable): RequestMatcher {
  if (cursor.left === 0) {
    if (!cursor.hasBlock || cursor.line.block?.length === 0) {
      const hint = `for example ${cursor.name} path /example/*`;
      cursor.fail(cursor.span, 'expected-argument', `${cursor.name} needs a condition`, hint);
    }
    const conditions = cursor.eachLine((line) => conditionOf(line, table)).flat();
    return cursor.origins.of(cursor.span, mergeConditions(conditions, table));
  }
  // An expression may stand for itself.
  const isExpression = cursor.peek()?.plain === false;
  const words = isExpression ? [wordExpression(cursor), ...cursor.rest()] : cursor.rest();
  const inner = new Cursor(
    { ...cursor.line, words, block: cursor.hasBlock ? cursor.block() : null },
    cursor.problems,
    cursor.origins,
  );
  const conditions = conditionOf(inner, table);
  inner.end();
  return cursor.origins.of(cursor.span, mergeConditions(conditions, table));
}

function wordExpression({ span }: Cursor): Word {
  return { text: 'expression', plain: true, replaced: false, span };
}

/** One condition of a matcher. Several values in one line mean "any of". */
function conditionOf(cursor: Cursor, table: DirectiveTable): MatchCondition[] {
  const { matchers } = table.registry;
  const known = Object.hasOwn(matchers, cursor.name) ? matchers[cursor.name] : undefined;
  if (known !== undefined) return known.syntax.read(cursor, (inner) => matcherOf(inner, table));
  if (Object.hasOwn(unsupportedConditions, cursor.name)) {
    const message = `the condition ${cursor.name} is not supported by hubgate`;
    const hint = unsupportedConditions[cursor.name];
    return cursor.fail(cursor.span, 'unsupported-matcher', message, hint);
  }
  const names = Object.keys(matchers);
  const hint = didYouMean(cursor.name, names) ?? `known are ${names.join(', ')}`;
  return cursor.fail(cursor.span, 'unknown-condition', `unknown condition "${cursor.name}"`, hint);
}

/** Several conditions of the same kind (and field) are combined to one with any of their values. */
function mergeConditions(
  conditions: readonly MatchCondition[],
  table: DirectiveTable,
): MatchCondition[] {
  const merged: MatchCondition[] = [];
  for (const condition of conditions) {
    const index = merged.findIndex((known) => mergeTwo(known, condition, table) !== null);
    const known = merged[index];
    const both = known === undefined ? null : mergeTwo(known, condition, table);
    if (both === null) merged.push(condition);
    else merged[index] = both;
  }
  return merged;
}

function mergeTwo(
  a: MatchCondition,
  b: MatchCondition,
  { registry }: DirectiveTable,
): MatchCondition | null {
  return a.kind === b.kind ? (registry.matchers[a.kind]?.syntax.merge?.(a, b) ?? null) : null;
}

/** The `@name` matchers of a `reverse_proxy` or `intercept` block. They match responses, not requests. */
export class ResponseMatchers {
  readonly #named = new Map<string, { readonly matcher: ResponseMatcher; readonly span: Span }>();

  /**
   *     @name status <status…>
   *     @name header <field> [<value>]
   *     @name { status <status…>; header <field> [<value>] }
   */
  defineIfNamed(owner: Cursor, line: Line): void {
    const name = line.words[0]?.text ?? '';
    if (!name.startsWith('@')) return;
    const cursor = new Cursor(line, owner.problems, owner.origins);
    owner.problems.attempt(() => {
      const { span } = cursor;
      const first = this.#named.get(name)?.span;
      if (first !== undefined) {
        const message = `the matcher ${name} is defined already, at ${placeText(placeOf(first))}`;
        cursor.fail(span, 'duplicate-matcher', message);
      }
      // An invalid definition counts as one, so that its uses are not reported as well.
      this.#named.set(name, { matcher: ANY_RESPONSE, span });
      this.#named.set(name, { matcher: readResponseMatcher(cursor), span });
    });
  }

  find(cursor: Cursor): ResponseMatcher {
    const word = cursor.optional();
    if (word === undefined || word.text === '*') return ANY_RESPONSE;
    const found = this.#named.get(word.text);
    if (found !== undefined) return found.matcher;
    const hint =
      didYouMean(word.text, [...this.#named.keys()]) ?? 'define it in this block: @name status 404';
    const message = `unknown response matcher ${cursor.quote(word)}`;
    return cursor.fail(word.span, 'unknown-matcher', message, hint);
  }
}

/** Parses `status <status…>` or `header <field> [<value>]` after a name, or several of them in a block. */
export function readResponseMatcher(cursor: Cursor): ResponseMatcher {
  const table: OptionTable<ResponseMatcher> = {
    status: (option) => ({ status: statusClasses(option) }),
    header: (option, { headers }) => {
      const name = headerName(option, option.argument('a header field'));
      return { headers: [...headers, { name, value: option.optional()?.text ?? '*' }] };
    },
  };
  const rules = { repeatable: ['header'] };
  if (cursor.left === 0) {
    cursor.block();
    return cursor.options(ANY_RESPONSE, table, rules);
  }
  const line = { ...cursor.line, words: cursor.rest(), block: null };
  const holder = new Cursor({ ...cursor.line, block: [line] }, cursor.problems, cursor.origins);
  cursor.end();
  return holder.options(ANY_RESPONSE, table, rules);
}
