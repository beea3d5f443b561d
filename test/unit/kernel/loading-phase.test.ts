import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { describe, it } from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { TYPESCRIPT } from '../../support/process.ts';

const MODULE = fileURLToPath(new URL('../../../src/kernel/v8-memory.ts', import.meta.url));
/** V8 prints each function that it optimises. `hot` runs during the phase and after it. */
const PROGRAM = `
const { loadingBegins, loadingEnds } = await import(process.argv[1]);
const { setTimeout: after } = await import('node:timers/promises');
const { getHeapSpaceStatistics } = await import('node:v8');
const run = async (hot) => {
  const kept = [];
  for (let turn = 0; turn < 300; turn += 1) {
    for (let i = 0; i < 2000; i += 1) kept[i] = hot(i);
    await after(0);
  }
};
loadingBegins();
await run(function whileLoading(i) { return { text: 'x' + i, list: [i, i] }; });
console.log('young', getHeapSpaceStatistics().find((one) => one.space_name === 'new_space').space_size);
loadingEnds();
await after(1100);
await run(function afterwards(i) { return { text: 'x' + i, list: [i, i] }; });
`;

describe('V8 while a gateway is loaded', () => {
  it('optimises nothing, and keeps the young generation small', async () => {
    const { optimised, young } = await optimisedFunctions();
    assert.ok(!optimised.includes('whileLoading'), optimised);
    assert.ok(optimised.includes('afterwards'), optimised);
    assert.ok(young <= 4 * 1024 * 1024, `${young} bytes`);
  });

  it('stays without compilers if the options of Node say so', async () => {
    const { optimised } = await optimisedFunctions(['--no-opt', '--no-maglev']);
    assert.equal(optimised, '');
  });
});

/** The lines about the functions of the program that V8 has optimised, and the size of the young generation in bytes. */
async function optimisedFunctions(
  flags: readonly string[] = [],
): Promise<{ optimised: string; young: number }> {
  const run = [...TYPESCRIPT, '--input-type=module', '--eval', PROGRAM, MODULE];
  const { stdout } = await promisify(execFile)(process.execPath, ['--trace-opt', ...flags, ...run]);
  const optimised = stdout.split('\n').filter((line) => {
    return line.includes('[completed optimizing') && /whileLoading|afterwards/.test(line);
  });
  return {
    optimised: optimised.join('\n'),
    young: Number(/^young (\d+)$/m.exec(stdout)?.[1]),
  };
}
