import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { nearestName } from '../../../src/config/problem.ts';

const known = ['reverse_proxy', 'respond', 'redir', 'root', 'route', 'hub', 'header'];

describe('nearestName', () => {
  const meant: readonly [string, string | undefined][] = [
    ['revese_proxy', 'reverse_proxy'],
    ['reverse-proxy', 'reverse_proxy'],
    ['Respond', 'respond'],
    ['respnod', 'respond'],
    ['redirect', 'redir'],
    ['headers', 'header'],
    ['huh', 'hub'],
    ['x', undefined],
    ['', undefined],
    ['entirely_different', undefined],
  ];
  for (const [written, name] of meant) {
    it(`suggests ${name ?? 'nothing known'} for "${written}"`, () => {
      assert.equal(nearestName(written, known), name);
    });
  }
});
