import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { evaluateConditions, requestedRange } from '../../../src/http/conditions.ts';
import { HeaderList } from '../../../src/http/header-list.ts';

function request(fields: Readonly<Record<string, string>>) {
  const headers = new HeaderList();
  for (const [name, value] of Object.entries(fields)) headers.append(name, value);
  return { headers, method: 'GET' };
}

describe('conditions of a request (RFC 9110 §13.1)', () => {
  const cases = [
    ['"a"', 'If-None-Match', '"a"', 304],
    ['"a"', 'If-None-Match', 'W/"a"', 304],
    ['W/"a"', 'If-None-Match', '"a"', 304],
    ['W/"a"', 'If-None-Match', '"b", W/"a"', 304],
    ['W/"a"', 'If-None-Match', '"b"', null],
    [null, 'If-None-Match', '"a"', null],
    ['"a"', 'If-Match', '"a"', null],
    ['"a"', 'If-Match', 'W/"a"', 412],
    ['W/"a"', 'If-Match', 'W/"a"', 412],
    ['W/"a"', 'If-Match', '"a"', 412],
    ['W/"a"', 'If-Match', '*', null],
  ] as const;
  for (const [etag, field, value, status] of cases) {
    it(`${field}: ${value} for ${etag ?? 'no tag'} gives ${status ?? 'no status'}`, () => {
      const validators = { etag, modifiedMs: null };
      assert.equal(evaluateConditions(request({ [field]: value }), validators), status);
    });
  }

  it('combines no parts of a representation with a weak tag', () => {
    const range = (etag: string, condition: string): unknown =>
      requestedRange(
        request({ Range: 'bytes=0-1', 'If-Range': condition }),
        { etag, modifiedMs: null },
        9,
      );
    assert.deepEqual(range('"a"', '"a"'), { start: 0, end: 1 });
    assert.equal(range('W/"a"', 'W/"a"'), null);
    assert.equal(range('"a"', 'W/"a"'), null);
  });
});
