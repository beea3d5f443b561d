import type { Cursor } from '../../hubfile/cursor.ts';
import { type Directive, matcherBeforeTarget, step } from '../../hubfile/scope.ts';
import { badValue, headerValue, statusCode } from '../../hubfile/values.ts';

const NAMED_STATUS: Readonly<Record<string, number>> = { permanent: 301, temporary: 302 };

export const redir: Directive = {
  usage: 'redir [<matcher>] <to> [permanent|temporary|<3xx>]',
  summary: 'redirects',
  read(cursor, scope) {
    const matcher = matcherBeforeTarget(cursor, scope);
    const target = cursor.argument('a target');
    if (Object.hasOwn(NAMED_STATUS, target.text) || /^3\d\d$/.test(target.text)) {
      const hint = `a path in front of it is a matcher; for every request write: redir * /path ${target.text}`;
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
