import type { Cursor } from '../../hubfile/cursor.ts';
import { type Directive, step, takeMatcher } from '../../hubfile/scope.ts';
import { count, name, oneOf, text } from '../../hubfile/values.ts';

const USAGE = `
uri [<matcher>] strip_prefix <prefix>
uri [<matcher>] strip_suffix <suffix>
uri [<matcher>] replace <find> <replacement> [<limit>]
`;

export const uri: Directive = {
  usage: USAGE,
  summary: 'takes something off the path, or replaces something in it',
  read(cursor, scope) {
    const matcher = takeMatcher(cursor, scope);
    if (cursor.peek()?.text === 'path_regexp') refuseRegexp(cursor);
    const operation = oneOf(cursor, ['strip_prefix', 'strip_suffix', 'replace']);
    const target = name(cursor, 'a text');
    const isReplace = operation === 'replace';
    const replacement = isReplace ? text(cursor, 'a replacement') : '';
    const limit = isReplace && cursor.left > 0 ? count(cursor) : 0;
    cursor.end();
    const slash = operation === 'strip_prefix' && !/^[/{]/.test(target) ? '/' : '';
    return [
      step(cursor, matcher, { kind: 'uri', operation, text: slash + target, replacement, limit }),
    ];
  },
};

function refuseRegexp(cursor: Cursor): never {
  const message = 'uri path_regexp is not supported by hubgate';
  const hint =
    'match and rewrite instead: @v path_regexp v ^/old/(.*)$, and rewrite @v /new/{re.v.1}';
  return cursor.fail(cursor.peek()?.span ?? cursor.span, 'unsupported-option', message, hint);
}
