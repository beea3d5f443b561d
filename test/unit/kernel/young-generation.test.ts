import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { describe, it } from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { MAX_SEMI_SPACE_BYTES } from '../../../src/kernel/v8-memory.ts';

const MAX_BYTES = 2 * MAX_SEMI_SPACE_BYTES;
const MODULE = fileURLToPath(new URL('../../../src/kernel/v8-memory.ts', import.meta.url));
/**
 * Turns that end before V8 has had time to grow twice, so many that V8 would use all it may. Prints the size of the
 * young generation in bytes and the options that were given to V8 meanwhile.
 */
const PROGRAM = `
const { default: v8 } = await import('node:v8');
const { syncBuiltinESMExports } = await import('node:module');
const given = [];
const { setFlagsFromString } = v8;
v8.setFlagsFromString = (option) => {
  given.push(option);
  setFlagsFromString(option);
};
syncBuiltinESMExports();
(await import(process.argv[1])).limitYoungGeneration();
const kept = [];
for (let turn = 0; turn < 3000; turn += 1) {
  for (let i = 0; i < 500; i += 1) kept[(turn * 500 + i) % 40000] = { turn, text: 'x' + i, list: [i] };
  await new Promise((resolve) => setImmediate(resolve));
}
const space = v8.getHeapSpaceStatistics().find((one) => one.space_name === 'new_space');
console.log(JSON.stringify({ bytes: space.space_size, given }));
`;

interface YoungGeneration {
  readonly bytes: number;
  readonly given: readonly string[];
}

describe('the young generation of a running gateway', () => {
  it('does not grow beyond its limit', async () => {
    const { bytes, given } = await youngGeneration();
    assert.ok(bytes <= MAX_BYTES, `${bytes} bytes`);
    // It grows as far as it may, so that collections stay rare.
    assert.ok(bytes > MAX_BYTES / 4, `${bytes} bytes`);
    assert.ok(given.includes('--semi-space-growth-factor=1'), given.join(' '));
  });

  it('is left to V8 if the options of Node say its size', async () => {
    const inArguments = await youngGeneration(['--max-semi-space-size=64']);
    assert.deepEqual(inArguments.given, []);
    const inEnvironment = await youngGeneration([], '--max-semi-space-size=64');
    assert.deepEqual(inEnvironment.given, []);
  });
});

/** The young generation of a program that has kept V8 busy. */
async function youngGeneration(
  flags: readonly string[] = [],
  nodeOptions = '',
): Promise<YoungGeneration> {
  const run = ['--import', 'tsx', '--input-type=module', '--eval', PROGRAM, MODULE];
  const env = { ...process.env, NODE_OPTIONS: nodeOptions };
  const { stdout } = await promisify(execFile)(process.execPath, [...flags, ...run], { env });
  return JSON.parse(stdout) as YoungGeneration;
}
