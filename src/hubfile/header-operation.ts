import type { HeaderOperation } from '../config/routes.ts';
import type { Cursor } from './cursor.ts';
import type { Word } from './parser.ts';
import { badValue, headerName, headerValue } from './values.ts';

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
