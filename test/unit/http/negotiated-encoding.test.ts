import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { negotiatedEncoding } from '../../../src/http/representation.ts';
import { piecesOf } from '../../support/counted-pieces.ts';

describe('the encoding of a response (RFC 9110 §12.5.3)', () => {
  for (const [accepted, expected] of [
    ['gzip, br', 'br'],
    ['gzip;q=1, br;q=0', 'gzip'],
    ['*', 'br'],
    ['*;q=0, GZIP ; q=0.1', 'gzip'],
    ['', null],
  ] as const) {
    it(`is ${expected ?? 'none'} for "${accepted}"`, () => {
      assert.equal(negotiatedEncoding(accepted, ['br', 'gzip']), expected);
    });
  }

  it('is chosen from the first 64 codings, however many there are', () => {
    const many = (item: string): string => `${item},`.repeat(80_000 / (item.length + 1));
    for (const list of [many(''), many('gzip;q=0.1'), `gzip${';a=b'.repeat(20_000)}`]) {
      const pieces = piecesOf(() => negotiatedEncoding(list, ['br', 'gzip']));
      assert.ok(pieces <= 64 + 64 * 8, `${pieces} pieces`);
    }
    assert.equal(negotiatedEncoding(`${'x,'.repeat(63)}br`, ['br']), 'br');
    assert.equal(negotiatedEncoding(`${'x,'.repeat(64)}br`, ['br']), null);
  });
});
