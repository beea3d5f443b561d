import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { describe, it } from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';

const MODULE = fileURLToPath(new URL('../../../src/kernel/v8-memory.ts', import.meta.url));

/** Prints which of four objects are left, at first and after each interval, and how many timers there are. */
const PROGRAM = `
const timers = new Set();
globalThis.setInterval = (run) => {
  const timer = { run, unref: () => timer };
  timers.add(timer);
  return timer;
};
globalThis.clearInterval = (timer) => timers.delete(timer);
const { RecentObjects } = await import(process.argv[1]);
const recent = new RecentObjects();
const refs = [];
const keep = () => {
  const object = {};
  refs.push(new WeakRef(object));
  recent.keep(object);
};
const print = async () => {
  // A WeakRef holds its object until the end of the turn.
  await new Promise((resolve) => setTimeout(resolve, 0));
  gc();
  console.log(refs.map((ref) => (ref.deref() === undefined ? '-' : 'x')).join(''), timers.size);
};
for (let i = 0; i < 4; i += 1) keep();
await print();
for (let i = 0; i < 2; i += 1) {
  for (const { run } of timers) run();
  await print();
}
keep();
await print();
`;

describe('recent objects', () => {
  it('are the last two of a class, and are released when there was no new one for an interval', async () => {
    const flags = ['--expose-gc', '--import', 'tsx', '--input-type=module'];
    const run = [...flags, '--eval', PROGRAM, MODULE];
    const { stdout } = await promisify(execFile)(process.execPath, run);
    assert.deepEqual(stdout.trim().split('\n'), ['--xx 1', '--xx 1', '---- 0', '----x 1']);
  });
});
