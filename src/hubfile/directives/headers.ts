import type { HeaderOperation } from '../../config/config.ts';
import { Cursor } from '../cursor.ts';
import type { Word } from '../parser.ts';
import { type Directive, step, takeMatcher } from '../scope.ts';
import { badValue, headerName, headerValue } from '../values.ts';

/**
 *     header [<matcher>] [+|-|?|>]<field> [<value>|<find>] [<replace>]
 *     header [<matcher>] {
 *         [+|-|?|>]<field> [<value>|<find>] [<replace>]
 *     }
 *
 * Nothing in front sets, `+` adds, `-` deletes (`*` at either end), `?` sets what is missing. `>`
 * and `defer` change nothing: response headers are always edited when the response is there.
 */
export const header: Directive = {
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

/** `request_header [<matcher>] [+|-]<field> [<value>|<find>] [<replace>]` */
export const requestHeader: Directive = {
  read(cursor, scope) {
    const matcher = takeMatcher(cursor, scope);
    const operations = [headerOperation(cursor, 'request')];
    cursor.end();
    return [step(cursor, matcher, { kind: 'request_header', operations })];
  },
};

/** The field, value and replacement that a cursor is at. */
export function headerOperation(cursor: Cursor, of: 'request' | 'response'): HeaderOperation {
  const field = cursor.argument('a header field');
  const value = cursor.optional();
  const replacement = cursor.optional();
  const operation = operationOf(cursor, field, value, replacement);
  if (of === 'request' && operation.kind === 'default') {
    badValue(cursor, field, 'a field without ?, which is for responses');
  }
  const places = new Map(value === undefined ? [] : [['pattern', value.span] as const]);
  cursor.origins.mark(operation, cursor.span, places);
  return operation;
}

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

function operationOf(
  cursor: Cursor,
  field: Word,
  value: Word | undefined,
  replacement: Word | undefined,
): HeaderOperation {
  const sign = /^[+\-?>]/.exec(field.text)?.[0] ?? '';
  const written = field.text.slice(sign.length);
  if (sign === '-') {
    if (value !== undefined) {
      cursor.fail(value.span, 'unexpected-argument', 'a field that is deleted takes no value');
    }
    return { kind: 'delete', name: deletedName(cursor, field, written) };
  }
  const name = headerName(cursor, field, written);
  if (value === undefined) {
    const hint = `to delete it write -${name.replace(/^-+/, '')}`;
    return cursor.fail(
      field.span,
      'expected-argument',
      `the header field ${name} needs a value`,
      hint,
    );
  }
  if (replacement !== undefined) {
    if (sign === '+' || sign === '?') {
      badValue(cursor, field, 'a field without + or ? when something is replaced');
    }
    const pattern = value.text;
    return { kind: 'replace', name, pattern, replacement: headerValue(cursor, replacement) };
  }
  const kind = sign === '+' ? 'add' : sign === '?' ? 'default' : 'set';
  return { kind, name, value: headerValue(cursor, value) };
}

function deletedName(cursor: Cursor, field: Word, written: string): string {
  headerName(cursor, field, written.replace(/^\*|\*$/g, ''));
  return written.endsWith(':') ? written.slice(0, -1) : written;
}
