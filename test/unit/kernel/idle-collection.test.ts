import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { describe, it } from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { IdlePolicy } from '../../../src/kernel/v8-memory.ts';
import { TYPESCRIPT } from '../../support/process.ts';

const MB = 1024 * 1024;
const MODULE = fileURLToPath(new URL('../../../src/kernel/v8-memory.ts', import.meta.url));
const QUIET = { utilization: 0.001, now: 0, totalBytes: 30 * MB, usedBytes: 20 * MB };

describe('the collection of garbage after load', () => {
  it('happens once the process is quiet', () => {
    const policy = new IdlePolicy();
    assert.equal(policy.next({ ...QUIET, utilization: 0.5 }), 'wait');
    assert.equal(policy.next(QUIET), 'collect');
  });

  it('happens although the timers of a gateway without load need time on a slow machine', () => {
    assert.equal(new IdlePolicy().next({ ...QUIET, utilization: 0.02 }), 'collect');
  });

  it('happens again only after the heap has grown, and a minute later', () => {
    const policy = new IdlePolicy();
    policy.collected({ now: 0, totalBytes: 20 * MB });
    assert.equal(policy.next({ ...QUIET, now: 120_000, totalBytes: 27 * MB }), 'rest');
    assert.equal(policy.next({ ...QUIET, now: 59_000 }), 'wait');
    assert.equal(policy.next({ ...QUIET, now: 60_000 }), 'collect');
  });

  it('leaves a large heap to V8, which collects it in pieces', () => {
    assert.equal(new IdlePolicy().next({ ...QUIET, usedBytes: 65 * MB }), 'rest');
  });

  it('gives back the young generation, and leaves no timer that keeps the process alive', async () => {
    const program = `
      const { getHeapSpaceStatistics } = await import('node:v8');
      const { constants, PerformanceObserver } = await import('node:perf_hooks');
      (await import(process.argv[1])).collectWhenIdle();
      const young = () =>
        getHeapSpaceStatistics().find((one) => one.space_name === 'new_space').space_size;
      const kept = [];
      for (let i = 0; i < 2e6; i += 1) kept[i % 40000] = { i, text: 'x' + i };
      const [before, begin] = [young(), performance.now()];
      const alive = setInterval(() => {}, 1000);
      new PerformanceObserver((list) => {
        // V8 itself collects everything at once only while the loop above runs.
        const late = list.getEntries().filter(({ startTime }) => startTime > begin + 4000);
        if (!late.some(({ detail }) => detail.kind === constants.NODE_PERFORMANCE_GC_MAJOR)) return;
        clearInterval(alive);
        console.log(JSON.stringify([before, young()]));
      }).observe({ entryTypes: ['gc'] });
    `;
    const run = [...TYPESCRIPT, '--input-type=module', '--eval', program, MODULE];
    const { stdout } = await promisify(execFile)(process.execPath, run, { timeout: 120_000 });
    const [before, after]: [number, number] = JSON.parse(stdout.split('\n')[0] ?? '');
    assert.ok(after < before, `${after} of ${before} bytes`);
  });
});
