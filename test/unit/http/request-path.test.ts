import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { decodePath } from '../../../src/http/request-path.ts';

describe('a path without percent-encoding', () => {
  for (const [path, expected] of [
    ['/a%20b', '/a b'],
    ['/%e2%82%ac', '/€'],
    ['/%ff%41', '/\xffA'],
    ['/%', '/%'],
    ['/%4', '/%4'],
    ['/%zz%2Fx', '/%zz/x'],
    ['/%%41', '/%A'],
    ['/%aF%Fa%', '/\xaf\xfa%'],
  ] as const) {
    it(`is ${JSON.stringify(expected)} for ${path}`, () => {
      assert.equal(decodePath(path), expected);
    });
  }
});
