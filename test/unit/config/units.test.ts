import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { parseDuration, parseSize } from '../../../src/config/units.ts';

describe('parseDuration (Hubfile §5, H-477)', () => {
  const durations: readonly [string, number][] = [
    ['0', 0],
    ['500ms', 500],
    ['10s', 10_000],
    ['1.5h', 5_400_000],
    ['1h30m', 5_400_000],
    ['7d', 604_800_000],
    ['2µs', 1],
    ['1ns', 1],
  ];
  for (const [text, ms] of durations) {
    it(`reads ${text} as ${ms} ms`, () => assert.equal(parseDuration(text), ms));
  }
  for (const text of [
    '',
    '10',
    '-1s',
    '1',
    's',
    '1s ',
    '1 s',
    '1w',
    '1e3s',
    '.5s',
    '9'.repeat(16) + 'd',
  ]) {
    it(`refuses "${text}"`, () => assert.equal(parseDuration(text), null));
  }
});

describe('parseSize (Hubfile §5, H-468)', () => {
  const sizes: readonly [string, number][] = [
    ['0', 0],
    ['4096', 4096],
    ['64KB', 64_000],
    ['64KiB', 65_536],
    ['1.5mib', 1_572_864],
    ['2GB', 2_000_000_000],
    ['10 B', 10],
    ['4k', 4000],
    ['4 Ki', 4096],
    ['1.5m', 1_500_000],
    ['1G', 1_000_000_000],
  ];
  for (const [text, bytes] of sizes) {
    it(`reads ${text} as ${bytes} bytes`, () => assert.equal(parseSize(text), bytes));
  }
  for (const text of [
    '',
    '-1',
    'KB',
    '1KBB',
    '1ib',
    '1kk',
    '1e',
    '1 parsec',
    '999999999999999TiB',
    '0x10',
  ]) {
    it(`refuses "${text}"`, () => assert.equal(parseSize(text), null));
  }
});
