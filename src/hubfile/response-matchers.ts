import { nearestName } from '../config/nearest.ts';
import { placeText } from '../config/problem.ts';
import { ANY_RESPONSE, type ResponseMatcher } from '../config/response-matcher.ts';
import { Cursor, type OptionTable } from './cursor.ts';
import type { Line } from './parser.ts';
import { placeOf, type Span } from './place.ts';
import { headerName, statusClasses } from './values.ts';

/** The `@name` matchers of a `reverse_proxy` or `intercept` block. They match responses, not requests. */
export class ResponseMatchers {
  readonly #named = new Map<string, ResponseMatcher>();
  readonly #places = new Map<string, Span>();

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
      const first = this.#places.get(name);
      if (first !== undefined) {
        const message = `the matcher ${name} is defined already, at ${placeText(placeOf(first))}`;
        cursor.fail(cursor.span, 'duplicate-matcher', message);
      }
      this.#places.set(name, cursor.span);
      this.#named.set(name, ANY_RESPONSE);
      this.#named.set(name, readResponseMatcher(cursor));
    });
  }

  find(cursor: Cursor): ResponseMatcher {
    const word = cursor.optional();
    if (word === undefined || word.text === '*') return ANY_RESPONSE;
    const found = this.#named.get(word.text);
    if (found !== undefined) return found;
    const near = nearestName(word.text, this.#named.keys());
    const hint =
      near === undefined
        ? 'define it in this block: @name status 404'
        : `did you mean \`${near}\`?`;
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
