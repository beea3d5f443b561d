import { nearestName } from '../../config/nearest.ts';
import { placeText } from '../../config/problem.ts';
import { Cursor } from '../../hubfile/cursor.ts';
import type { Line } from '../../hubfile/parser.ts';
import { placeOf, type Span } from '../../hubfile/place.ts';
import type { Scope } from '../../hubfile/scope.ts';
import { count, headerName, statusClasses } from '../../hubfile/values.ts';
import type { ReverseProxyConfig } from '../../proxy/proxy-config.ts';

type Handled = ReverseProxyConfig['handleResponse'][number];
type ResponseMatcher = Pick<Handled, 'status' | 'header'>;

const ANY: ResponseMatcher = { status: [], header: null };

/** The `@name` matchers of a `reverse_proxy` block: they look at responses, not at requests. */
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
      this.#named.set(name, ANY);
      this.#named.set(name, readMatcher(cursor));
    });
  }

  find(cursor: Cursor): ResponseMatcher {
    const word = cursor.optional();
    if (word === undefined || word.text === '*') return ANY;
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

function readMatcher(cursor: Cursor): ResponseMatcher {
  const table = {
    status: (option: Cursor) => ({ status: statusClasses(option) }),
    header: (option: Cursor) => {
      const name = headerName(option, option.argument('a header field'));
      return { header: { name, value: option.optional()?.text ?? '*' } };
    },
  };
  if (cursor.left === 0) {
    cursor.block();
    return cursor.options(ANY, table);
  }
  const line = { ...cursor.line, words: cursor.rest(), block: null };
  const holder = new Cursor({ ...cursor.line, block: [line] }, cursor.problems, cursor.origins);
  cursor.end();
  return holder.options(ANY, table);
}

/** `handle_response [@name] { <directives…> }` */
export function handleResponse(cursor: Cursor, scope: Scope, responses: ResponseMatchers): Handled {
  const matcher = responses.find(cursor);
  const routes = scope.routes(cursor.block(), 'documented');
  return cursor.origins.of(cursor.span, { ...matcher, replaceStatus: null, routes });
}

/** `replace_status [@name] <status>` */
export function replaceStatus(cursor: Cursor, responses: ResponseMatchers): Handled {
  const matcher = cursor.left > 1 ? responses.find(cursor) : ANY;
  const status = count(cursor, { min: 200, max: 599 });
  return cursor.origins.of(cursor.span, { ...matcher, replaceStatus: status, routes: [] });
}
