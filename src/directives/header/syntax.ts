import type { HeaderOperation } from '../../config/config.ts';
import { Cursor } from '../../hubfile/cursor.ts';
import { headerOperation } from '../../hubfile/header-operation.ts';
import { type Directive, step, takeMatcher } from '../../hubfile/scope.ts';

const USAGE = `
header [<matcher>] [+|-|?|>]<field> [<value>|<find>] [<replace>]
header [<matcher>] {
    [+|-|?|>]<field> [<value>|<find>] [<replace>]
}
`;

/**
 * Nothing in front sets, `+` adds, `-` deletes (`*` at either end), `?` sets what is missing. `>`
 * and `defer` change nothing: response headers are always edited when the response is there.
 */
export const header: Directive = {
  usage: USAGE,
  summary: 'changes fields of the response',
  read(cursor, scope) {
    const matcher = takeMatcher(cursor, scope);
    const operations: HeaderOperation[] = [];
    if (cursor.left > 0) operations.push(headerOperation(cursor, 'response'));
    for (const line of cursor.lines()) {
      cursor.problems.attempt(() => {
        if (line.name !== 'defer') operations.push(fieldLine(line, 'response'));
        line.end();
      });
    }
    if (operations.length === 0) {
      cursor.argument('a header field');
      cursor.fail(cursor.span, 'expected-argument', 'header needs a header field');
    }
    cursor.end();
    return [step(cursor, matcher, { kind: 'header', operations })];
  },
};

/** A line of a block begins with the field itself. */
function fieldLine(line: Cursor, of: 'request' | 'response'): HeaderOperation {
  const first = line.line.words[0];
  const words =
    first === undefined ? line.line.words : [{ ...first, text: 'header' }, ...line.line.words];
  const shifted = new Cursor({ ...line.line, words }, line.problems, line.origins);
  line.rest();
  const operation = headerOperation(shifted, of);
  shifted.end();
  return operation;
}
