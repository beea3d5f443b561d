import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { unreadable } from '../../../src/site/site-files.ts';

describe('a file that cannot be opened', () => {
  for (const [code, status] of [
    ['ENOENT', 404],
    ['ENOTDIR', 404],
    ['EACCES', 403],
    ['EMFILE', 503],
    ['EIO', 503],
  ] as const) {
    it(`is a ${status} after ${code}, so that a cache stores only what is true of the file`, () => {
      assert.equal(unreadable(Object.assign(new Error(code), { code })).status, status);
    });
  }
});
