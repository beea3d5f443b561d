import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { HeaderOperation } from '../../../src/config/routes.ts';
import { HeaderList, utf8Field } from '../../../src/http/header-list.ts';
import { compileOperations } from '../../../src/http/header-operations.ts';

const applied = (
  fields: Readonly<Record<string, string | readonly string[]>>,
  ...operations: HeaderOperation[]
): (readonly [string, string])[] => {
  const headers = HeaderList.of(fields);
  compileOperations(operations)(headers, (text) => text.replaceAll('{x}', 'X'));
  return [...headers];
};

describe('header operations (hubfile.md §3)', () => {
  it('set replaces all fields with the name', () => {
    assert.deepEqual(applied({ A: ['1', '2'] }, { kind: 'set', name: 'a', value: '{x}' }), [
      ['A', 'X'],
    ]);
  });
  it('add keeps existing fields', () => {
    assert.deepEqual(applied({ A: '1' }, { kind: 'add', name: 'A', value: '2' }), [
      ['A', '1'],
      ['A', '2'],
    ]);
  });
  it('default sets only fields that are absent, each one separately', () => {
    assert.deepEqual(
      applied(
        { A: '1' },
        { kind: 'default', name: 'A', value: '2' },
        { kind: 'default', name: 'B', value: '3' },
      ),
      [
        ['A', '1'],
        ['B', '3'],
      ],
    );
  });
  it('delete accepts * at either end', () => {
    const fields = { 'X-A-1': '', 'X-A-2': '', 'Y-A': '', Z: '' };
    const names = (name: string): string[] =>
      applied(fields, { kind: 'delete', name }).map(([one]) => one);
    assert.deepEqual(names('X-A-*'), ['Y-A', 'Z']);
    assert.deepEqual(names('*-A'), ['X-A-1', 'X-A-2', 'Z']);
    assert.deepEqual(names('*-A*'), ['Z']);
    assert.deepEqual(names('z'), ['X-A-1', 'X-A-2', 'Y-A']);
  });
  it('replace supports groups, in linear time', () => {
    const replace: HeaderOperation = {
      kind: 'replace',
      name: 'A',
      pattern: '^(a+)+(b)$',
      replacement: '$2-{x}',
    };
    assert.deepEqual(applied({ A: 'aab' }, replace), [['A', 'b-X']]);
    const long = 'a'.repeat(30_000);
    assert.deepEqual(applied({ A: long }, replace), [['A', long]]);
  });
  it('replace treats the value of a placeholder literally', () => {
    const replace = (pattern: string, replacement: string, value: string, brought: string) => {
      const headers = HeaderList.of({ A: value });
      const operation = { kind: 'replace', name: 'A', pattern, replacement } as const;
      compileOperations([operation])(headers, (text) => text.replaceAll('{x}', brought));
      return headers.get('A');
    };
    for (const brought of ['$9', '${nope}', '$', '\\', '$1$1', '{x}']) {
      assert.equal(replace('^(.*)$', '{x}', 'secret', brought), brought);
    }
    // Nor is what was matched taken for a placeholder.
    assert.equal(replace('(.*)', '<$1>', '{x}', 'brought'), '<{x}>');
    for (const [pattern, replacement, result] of [
      ['(?P<n>b)', '<$n>', '<b>=c'],
      ['(?P<n>b)', '<$nx $m>', '<$nx $m>=c'],
      ['(b)', '<$1x>', '<bx>=c'],
      ['(.*)', 'x-$1', 'x-b=c'],
      ['(?P<n>b)', '${n}${1}$$1$n', 'bb$1b=c'],
      ['b', '${x}', '$brought=c'],
      ['b', '[$7]', '[]=c'],
      ['', '-', '-b-=-c-'],
      ['x*', '-', '-b-=-c-'],
    ] as const) {
      assert.equal(replace(pattern, replacement, 'b=c', 'brought'), result, pattern);
    }
  });
  it('text beyond ASCII becomes UTF-8, and existing bytes stay unchanged', () => {
    assert.deepEqual(applied({}, { kind: 'set', name: 'A', value: 'ë' }), [['A', utf8Field('ë')]]);
    assert.deepEqual(
      applied(
        { A: utf8Field('ëx') },
        { kind: 'replace', name: 'A', pattern: 'x', replacement: 'y' },
      ),
      [['A', utf8Field('ëy')]],
    );
  });
  it('no value can inject a second field or message (RFC 9110 §5.5)', () => {
    const [field] = applied({}, { kind: 'set', name: 'A', value: 'a\r\nB: 1\0' });
    assert.deepEqual(field, ['A', 'a  B: 1']);
  });
  it('fields that frame the message are kept, even with a wildcard', () => {
    assert.deepEqual(
      applied(
        { 'Content-Length': '1' },
        { kind: 'delete', name: 'Content-*' },
        { kind: 'set', name: 'content-length', value: '9' },
      ),
      [['Content-Length', '1']],
    );
  });
  it('a pattern that is not valid RE2 is refused', () => {
    const operation = { kind: 'replace', name: 'A', pattern: '(?=a)', replacement: '' } as const;
    assert.throws(() => compileOperations([operation]), { code: 'invalid-pattern' });
  });
});
