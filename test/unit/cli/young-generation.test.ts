import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { describe, it } from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { MAX_SEMI_SPACE_BYTES } from '../../../src/cli/young-generation.ts';

const MAX_BYTES = 2 * MAX_SEMI_SPACE_BYTES;
const MODULE = fileURLToPath(new URL('../../../src/cli/young-generation.ts', import.meta.url));
/** A turn that ends before V8 has had time to grow twice, so often that V8 would use all it may. */
const PROGRAM = `
const { getHeapSpaceStatistics } = await import('node:v8');
if (process.argv[1] !== '') (await import(process.argv[1])).limitYoungGeneration();
const kept = [];
for (let turn = 0; turn < 3000; turn += 1) {
  for (let i = 0; i < 500; i += 1) kept[(turn * 500 + i) % 40000] = { turn, text: 'x' + i, list: [i] };
  await new Promise((resolve) => setImmediate(resolve));
}
console.log(getHeapSpaceStatistics().find((one) => one.space_name === 'new_space').space_size);
`;

describe('the young generation of a running gateway', () => {
  it('does not grow beyond its limit', async () => {
    const size = await youngGeneration([MODULE]);
    assert.ok(size <= MAX_BYTES, `${size} bytes`);
    // It grows as far as it may, so that collections stay rare.
    assert.ok(size > MAX_BYTES / 4, `${size} bytes`);
  });

  it('has the size that the options of Node say', async () => {
    const small = '--max-semi-space-size=1';
    assert.ok((await youngGeneration([MODULE], [small])) <= 2 * 1024 * 1024);
    const large = await youngGeneration([MODULE], [], '--max-semi-space-size=64');
    assert.ok(large > MAX_BYTES, `${large} bytes`);
  });
});

/** Its size in bytes in a program that has kept V8 busy. */
async function youngGeneration(
  modules: readonly string[],
  flags: readonly string[] = [],
  nodeOptions = '',
): Promise<number> {
  const run = ['--import', 'tsx', '--input-type=module', '--eval', PROGRAM, ...modules];
  const env = { ...process.env, NODE_OPTIONS: nodeOptions };
  const { stdout } = await promisify(execFile)(process.execPath, [...flags, ...run], { env });
  return Number(stdout);
}
