import { object, type Of, type Shape, withDefault } from '../config/shape.ts';
import { headerValue as headerValueShape } from '../config/shape-routes.ts';
import { orWord, statusValue as statusShape, type StatusValue } from '../config/shape-values.ts';
import type { Cursor } from '../hubfile/cursor.ts';
import { matcherBeforeTarget, oneStep } from '../hubfile/scope.ts';
import { singleLine, statusValue } from '../hubfile/values.ts';
import { answer, statusFor } from '../http/answer.ts';
import { HttpError } from '../http/errors.ts';
import { escaped, page } from '../http/page.ts';
import type { Handler } from '../http/exchange.ts';
import { fieldValue } from '../http/header-operations.ts';
import { sameSiteLocation } from '../http/same-site.ts';
import { QUERY_MARK, queryFrom } from '../site/rewritten-target.ts';
import type { HandlerContext } from '../site/handler-context.ts';
import type { HandlerDirective } from './directive.ts';

const BOUNDS = { min: 300, max: 399 };
/** Caddy also takes 401, for clients that sign in at its `Location`. */
const SIGN_IN = 401;

const members = {
  to: headerValueShape,
  /** `html`: a page that leads there. */
  status: withDefault(orWord('html', orSignIn(statusShape(BOUNDS))), 302),
};

export interface RedirConfig extends Of<typeof members> {
  readonly kind: 'redir';
}

const NAMED_STATUS: Readonly<Record<string, number>> = { permanent: 301, temporary: 302 };

export const redir: HandlerDirective<RedirConfig> = {
  data: {
    answersAll: () => true,
    shape: () => object(members),
  },
  syntax: {
    usage: 'redir [<matcher>] <to> [permanent|temporary|html|<3xx>|401]',
    summary: 'redirects',
    read: oneStep((cursor) => {
      const target = cursor.argument('a target');
      if (Object.hasOwn(NAMED_STATUS, target.text) || /^3\d\d$/.test(target.text)) {
        const hint = `the path is read as a matcher; for every request write: redir * /path ${target.text}`;
        cursor.fail(
          target.span,
          'expected-argument',
          'redir needs a target before the status',
          hint,
        );
      }
      const to = singleLine(cursor, target);
      const status = redirectStatus(cursor);
      return { kind: 'redir', to, status };
    }, matcherBeforeTarget),
  },
  compile,
};

function orSignIn(shape: Shape<StatusValue>): Shape<StatusValue> {
  return {
    ...shape,
    read: (node, reading) => (node.value === SIGN_IN ? SIGN_IN : shape.read(node, reading)),
    schema: (definitions) => ({ anyOf: [shape.schema(definitions), { const: SIGN_IN }] }),
  };
}

function redirectStatus(cursor: Cursor): RedirConfig['status'] {
  const word = cursor.optional();
  if (word === undefined) return 302;
  if (word.text === 'html') return 'html';
  if (word.text === String(SIGN_IN)) return SIGN_IN;
  return Object.hasOwn(NAMED_STATUS, word.text)
    ? (NAMED_STATUS[word.text] ?? 302)
    : statusValue(cursor, word, BOUNDS);
}

/** `redir [<matcher>] <to> [<status>|permanent|temporary]` */
function compile({ to, status }: RedirConfig, { expandOrEmpty: expand }: HandlerContext): Handler {
  const [before = '', fragment = ''] = to.split(/(#.*)/s, 2);
  const mark = before.search(QUERY_MARK);
  const path = mark === -1 ? before : before.slice(0, mark);
  const query = mark === -1 ? null : before.slice(mark + 1);
  return (exchange) => {
    const location = sameSiteLocation(to, expand(path, exchange));
    // The value of a placeholder in a query stays one value, as in `rewrite`.
    const search =
      query === null ? '' : `?${queryFrom(query, exchange, expand, { escaped: true })}`;
    const target = location + search + expand(fragment, exchange);
    if (status !== 'html') {
      const code = statusFor(status, exchange, expand);
      answer(exchange, code, { Location: fieldValue(target) });
      return;
    }
    // A link runs the script of such a URL, as Location does not.
    if (/^[^/?#]*:/.test(target) && !/^https?:/i.test(target)) {
      throw new HttpError(400, 'the target of the redirect is not one of http or https');
    }
    const type = { 'Content-Type': 'text/html; charset=utf-8' };
    answer(exchange, 200, type, redirectPage(escaped(target)));
  };
}

/** For clients that take no redirect. It has no script, which the policy of a site may forbid. */
function redirectPage(target: string): string {
  return page(
    'Redirecting…',
    `<meta http-equiv="refresh" content="0; URL='${target}'">
<p>Redirecting to <a href="${target}">${target}</a>…</p>
`,
  );
}
