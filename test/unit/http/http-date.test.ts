import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { parseHttpDate } from '../../../src/http/http-date.ts';

const NOW = Date.parse('2026-01-01T00:00:00Z');
const MOMENT = Date.parse('2050-08-18T02:01:18Z');

describe('HTTP dates', () => {
  it('have three formats, in any case', () => {
    const forms = [
      'Thu, 18 Aug 2050 02:01:18 GMT',
      'THU, 18 AUG 2050 02:01:18 gmt',
      'Thursday, 18-Aug-50 02:01:18 GMT',
      'Thu Aug 18 02:01:18 2050',
    ];
    for (const form of forms) assert.equal(parseHttpDate(form, NOW), MOMENT, form);
    assert.equal(
      parseHttpDate('Sunday, 06-Nov-94 08:49:37 GMT', NOW),
      Date.parse('1994-11-06T08:49:37Z'),
    );
  });

  it('have no other format', () => {
    const others = [
      '',
      '0',
      'Thu, 18 Aug 2050 02:01:18 UTC',
      'Thu, 18 Aug 50 02:01:18 GMT',
      'Thu 18 Aug 2050 02:01:18 GMT',
      'Thu, 18  Aug  2050 02:01:18 GMT',
      'Thu, 18-Aug-2050 02:01:18 GMT',
      'Thu, 18 Aug 2050 2:01:18 GMT',
      'Thu, 18 Aug 2050 25:01:18 GMT',
      '2050-08-18T02:01:18Z',
    ];
    for (const other of others) assert.equal(parseHttpDate(other, NOW), null, other);
  });
});
