import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { decodePath, isAt, isWithin, splitAfter } from '../../../src/http/request-path.ts';

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

describe('a request for a path', () => {
  const [isHub, isBelow] = [isAt('/hub'), isWithin('/hub')];
  for (const [target, at, within] of [
    ['/hub', true, true],
    ['/HUB?x', true, true],
    ['//%68ub', true, true],
    ['/hub/x', false, true],
    ['/hubs', false, false],
    ['/Other', false, false],
    ['/', false, false],
    ['*', false, false],
    ['/%e2%84%aa', false, false],
  ] as const) {
    it(`${at ? 'is' : 'is not'} ${target}, ${within ? 'also' : 'nor'} below it`, () => {
      assert.equal(isHub({ target }), at);
      assert.equal(isBelow({ target }), within);
    });
  }

  it('is recognised by a letter beyond ASCII whose lower case is in ASCII', () => {
    // U+212A, the Kelvin sign.
    assert.equal(isAt('/k')({ target: '/%e2%84%aa' }), true);
    assert.equal(isWithin('/k')({ target: '/%e2%84%aa/x' }), true);
  });

  it('is recognised where the path is only a slash', () => {
    assert.equal(isAt('/')({ target: '/' }), true);
    assert.equal(isAt('/')({ target: '/x' }), false);
  });
});

describe('a path that is split after a script', () => {
  it('is split in any case of ASCII letters, and at the same place after letters of other alphabets', () => {
    for (const [path, head, rest] of [
      ['/a.PHP/b', '/a.PHP', '/b'],
      ['/up/İİİİshell.php.txt/x.php', '/up/İİİİshell.php.txt/x.php', ''],
      ['/İ.php/x', '/İ.php', '/x'],
      ['/a.p\u212ap/x', '/a.p\u212ap/x', ''],
    ] as const) {
      assert.deepEqual(splitAfter(path, ['.php', '.pKp']), [head, rest], path);
    }
  });
});
