import type { HandlerData } from '../config/routes.ts';
import { object } from '../config/shape.ts';
import { headerValue as headerValueShape } from '../config/shape-routes.ts';
import { count } from '../config/shape-values.ts';
import type { Cursor } from '../hubfile/cursor.ts';
import { type DirectiveSyntax, matcherBeforeTarget, step } from '../hubfile/scope.ts';
import { badValue, headerValue, statusCode } from '../hubfile/values.ts';
import { answer } from '../http/answer.ts';
import type { Handler } from '../http/exchange.ts';
import { fieldValue } from '../http/header-operations.ts';
import { sameSiteLocation } from '../http/same-site.ts';
import { QUERY_MARK, queryFrom } from '../site/rewritten-target.ts';
import type { HandlerContext } from '../site/handler-context.ts';
import type { HandlerDirective } from './directive.ts';

export interface RedirConfig {
  readonly kind: 'redir';
  readonly to: string;
  readonly status: number;
}

const data: HandlerData<RedirConfig> = {
  shape: () =>
    object({ to: headerValueShape, status: count({ min: 300, max: 399 }) }, { status: 302 }),
};

declare module '../config/routes.ts' {
  interface HandlerKinds {
    redir: RedirConfig;
  }
}

const NAMED_STATUS: Readonly<Record<string, number>> = { permanent: 301, temporary: 302 };

const syntax: DirectiveSyntax = {
  usage: 'redir [<matcher>] <to> [permanent|temporary|<3xx>]',
  summary: 'redirects',
  read(cursor, scope) {
    const matcher = matcherBeforeTarget(cursor, scope);
    const target = cursor.argument('a target');
    if (Object.hasOwn(NAMED_STATUS, target.text) || /^3\d\d$/.test(target.text)) {
      const hint = `the path is read as a matcher; for every request write: redir * /path ${target.text}`;
      cursor.fail(target.span, 'expected-argument', 'redir needs a target before the status', hint);
    }
    const to = headerValue(cursor, target);
    const status = redirectStatus(cursor);
    cursor.end();
    return [step(cursor, matcher, { kind: 'redir', to, status })];
  },
};

function redirectStatus(cursor: Cursor): number {
  const word = cursor.optional();
  if (word === undefined) return 302;
  if (word.text === 'html') {
    badValue(
      cursor,
      word,
      'permanent, temporary or a status (redirects by HTML are not supported)',
    );
  }
  return Object.hasOwn(NAMED_STATUS, word.text)
    ? (NAMED_STATUS[word.text] ?? 302)
    : statusCode(cursor, word, { min: 300, max: 399 });
}

/** `redir [<matcher>] <to> [<status>|permanent|temporary]` */
function compile({ to, status }: RedirConfig, { expand }: HandlerContext): Handler {
  const [before = '', fragment = ''] = to.split(/(#.*)/s, 2);
  const mark = before.search(QUERY_MARK);
  const path = mark === -1 ? before : before.slice(0, mark);
  const query = mark === -1 ? null : before.slice(mark + 1);
  return (exchange) => {
    const location = sameSiteLocation(to, expand(path, exchange));
    // The value of a placeholder in a query stays one value, as in `rewrite`.
    const search = query === null ? '' : `?${queryFrom(query, exchange, expand)}`;
    const target = location + search + expand(fragment, exchange);
    answer(exchange, status, { Location: fieldValue(target) });
  };
}

export const redir: HandlerDirective<RedirConfig> = { data, syntax, compile };
