import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { describe, it } from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { MAX_SEMI_SPACE_BYTES } from '../../../src/kernel/v8-memory.ts';
import { TYPESCRIPT } from '../../support/process.ts';

const MAX_BYTES = 2 * MAX_SEMI_SPACE_BYTES;
const MODULE = fileURLToPath(new URL('../../../src/kernel/v8-memory.ts', import.meta.url));
/**
 * Turns that end before V8 has had time to grow twice, so many that V8 would use all it may, beside as many arrays of 8 KB
 * as the second argument says. Prints the size of the young generation in bytes and the options that were given to V8.
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
(await import(process.argv[1])).limitHeap();
const large = Array.from({ length: Number(process.argv[2]) }, () => new Array(1000).fill(0));
const kept = [];
for (let turn = 0; turn < 3000; turn += 1) {
  for (let i = 0; i < 500; i += 1) kept[(turn * 500 + i) % 40000] = { turn, text: 'x' + i, list: [i] };
  await new Promise((resolve) => setImmediate(resolve));
}
const space = v8.getHeapSpaceStatistics().find((one) => one.space_name === 'new_space');
console.log(JSON.stringify({ bytes: space.space_size, given, arrays: large.length }));
`;

interface Heap {
  readonly bytes: number;
  readonly given: readonly string[];
}

describe('the heap of a running gateway', () => {
  it('has a young generation that does not grow beyond its limit', async () => {
    const { bytes, given } = await busy();
    assert.ok(bytes <= MAX_BYTES, `${bytes} bytes`);
    // It grows as far as it may, so that collections stay rare.
    assert.ok(bytes > MAX_BYTES / 4, `${bytes} bytes`);
    assert.ok(given.includes('--semi-space-growth-factor=1'), given.join(' '));
  });

  it('leaves the young generation to V8 if the options of Node say its size', async () => {
    const isYoung = (option: string): boolean => option.includes('semi-space');
    const inArguments = await busy(['--max-semi-space-size=64']);
    assert.deepEqual(inArguments.given.filter(isYoung), []);
    const inEnvironment = await busy([], '--max-semi-space-size=64');
    assert.deepEqual(inEnvironment.given.filter(isYoung), []);
  });

  it('has an old generation that grows by half while it is small, unless the options of Node say otherwise', async () => {
    const growth = ({ given }: Heap) => given.filter((option) => option.includes('growing'));
    assert.deepEqual(growth(await busy()), ['--heap-growing-percent=50']);
    const large = growth(await busy([], '', 6_000));
    assert.deepEqual(large, ['--heap-growing-percent=50', '--heap-growing-percent=0']);
    assert.deepEqual(growth(await busy(['--heap-growing-percent=30'])), []);
  });

  it('releases the memory of Maglev on the main thread where Maglev is on, unless the options of Node mention it', async () => {
    const [major = 0] = process.versions.node.split('.').map(Number);
    const option = '--no-maglev-destroy-on-background';
    assert.equal((await busy()).given.includes(option), major >= 24);
    if (major >= 24) assert.equal((await busy(['--no-maglev'])).given.includes(option), false);
  });
});

/** The heap of a program that has kept V8 busy. */
async function busy(flags: readonly string[] = [], nodeOptions = '', arrays = 0): Promise<Heap> {
  const run = [...TYPESCRIPT, '--input-type=module', '--eval', PROGRAM, MODULE, `${arrays}`];
  const env = { ...process.env, NODE_OPTIONS: nodeOptions };
  const { stdout } = await promisify(execFile)(process.execPath, [...flags, ...run], { env });
  return JSON.parse(stdout) as Heap;
}
