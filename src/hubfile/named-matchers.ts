import { placeText } from '../config/problem.ts';
import type { MatchCondition, RequestMatcher } from '../config/config.ts';
import { nearestName } from '../config/nearest.ts';
import { unsupportedConditions } from '../matchers/unsupported.ts';
import { Cursor } from './cursor.ts';
import { conditionOf, mergeConditions } from './matchers.ts';
import type { Line, Word } from './parser.ts';
import { placeOf } from './place.ts';

/** The `@name` matchers of a block, and of the blocks around it. */
export class NamedMatchers {
  readonly outer: NamedMatchers | null;
  readonly mayLack: boolean;
  readonly #own = new Map<string, { matcher: RequestMatcher | null; line: Line }>();

  /** @param mayLack the block could not be read wholly: an unknown matcher may be defined there */
  constructor(outer: NamedMatchers | null, mayLack = outer?.mayLack ?? false) {
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
    // A faulty definition counts as one, so that its uses are not reported as well.
    this.#own.set(cursor.name, { matcher: null, line: cursor.line });
    const matcher = matcherOf(cursor);
    this.#own.set(cursor.name, { matcher, line: cursor.line });
  }

  /** The matcher that a word such as `@api` names. */
  find(cursor: Cursor, word: Word): RequestMatcher | null {
    const found = this.#get(word.text);
    if (found !== undefined) return found.matcher;
    if (this.mayLack) return null;
    const near = nearestName(word.text, this.#names());
    const hint =
      near === undefined ? `define it: ${word.text} path /example/*` : `did you mean \`${near}\`?`;
    // The rest of the directive is still looked at.
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

/** What follows `@name` or `not`: one condition on the line, or a block of them. */
export function matcherOf(cursor: Cursor): RequestMatcher {
  if (cursor.left === 0) {
    if (!cursor.hasBlock || cursor.line.block?.length === 0) {
      const hint = `for example ${cursor.name} path /example/*`;
      cursor.fail(cursor.span, 'expected-argument', `${cursor.name} needs a condition`, hint);
    }
    const conditions: MatchCondition[] = [];
    for (const line of cursor.lines()) {
      cursor.problems.attempt(() => {
        conditions.push(...conditionOf(line, matcherOf));
        line.end();
      });
    }
    return cursor.origins.of(cursor.span, mergeConditions(conditions));
  }
  if (cursor.peek()?.plain === false) return refuseExpression(cursor);
  const inner = new Cursor(
    { ...cursor.line, words: cursor.rest(), block: cursor.hasBlock ? cursor.block() : null },
    cursor.problems,
    cursor.origins,
  );
  const conditions = conditionOf(inner, matcherOf);
  inner.end();
  return cursor.origins.of(cursor.span, mergeConditions(conditions));
}

function refuseExpression(cursor: Cursor): never {
  const word = cursor.argument('a condition');
  const hint = unsupportedConditions['expression'];
  return cursor.fail(
    word.span,
    'unsupported-matcher',
    'expressions are not supported by hubgate',
    hint,
  );
}
