import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { HubgateError } from '../../../src/kernel/error.ts';
import { LATE_FOR_MS, LoopWatch, MAX_DELAY_MS } from '../../../src/runtime/metrics.ts';
import { CHECK_TIMEOUT_MS, healthFault, type HealthState } from '../../../src/runtime/health.ts';
import type { RunningHub } from '../../../src/runtime/hub-families.ts';
import { TestClock } from '../../support/test-clock.ts';

const hub = (check: () => Promise<void>): RunningHub => ({
  name: 'default',
  profile: 'hub',
  counts: {
    connected: 0,
    subscribers: 0,
    updates: 0,
    legacyTokens: 0,
    announced: 0,
    merged: 0,
    refused: 0,
    collapsed: 0,
    withheldForVisitor: 0,
    withheldForScript: 0,
    withheldGone: 0,
  },
  check,
});

const failing = (code: string) =>
  hub(async () => {
    throw new HubgateError(code, 'the disk /var/lib/secret-place is full');
  });

const WELL: HealthState = { hubs: [], draining: false, serving: true, late: false };

describe('readiness', () => {
  it('is false during shutdown, while nothing is served, and while the event loop is late', async () => {
    assert.equal(await healthFault('ready', WELL), null);
    const faults = [
      await healthFault('ready', { ...WELL, draining: true }),
      await healthFault('ready', { ...WELL, serving: false }),
      await healthFault('ready', { ...WELL, late: true }),
      await healthFault('ready', { ...WELL, hubs: [failing('transport-failed')] }),
    ];
    assert.deepEqual(faults, [
      'the gateway is stopping',
      'no process serves',
      'the event loop is late',
      'transport health check failed',
    ]);
  });

  it('is false when a history does not respond in time', async () => {
    const clock = new TestClock();
    const silent = hub(() => new Promise(() => {}));
    const fault = healthFault('ready', { ...WELL, hubs: [silent] }, clock);
    clock.advance(CHECK_TIMEOUT_MS);
    assert.equal(await fault, 'transport health check failed');
  });
});

describe('liveness', () => {
  it('stays true through all temporary conditions', async () => {
    for (const state of [
      { ...WELL, draining: true, hubs: [failing('transport-closed')] },
      { ...WELL, serving: false },
      { ...WELL, late: true },
      { ...WELL, hubs: [failing('transport-failed')] },
    ]) {
      assert.equal(await healthFault('live', state), null);
    }
  });

  it('is false when a history has been closed and the gateway is not stopping', async () => {
    const state = { ...WELL, hubs: [failing('transport-closed')] };
    assert.equal(await healthFault('live', state), 'transport health check failed');
  });
});

describe('the event loop', () => {
  it('is late when a turn starts too late, and for a while afterwards', () => {
    const clock = new TestClock();
    const watch = new LoopWatch(clock);
    clock.advance(1000);
    assert.equal(watch.isLate, false);
    clock.stall(MAX_DELAY_MS + 200);
    assert.equal(watch.isLate, true, 'nothing has run yet');
    clock.advance(100);
    assert.equal(watch.isLate, true);
    clock.advance(LATE_FOR_MS + 200);
    assert.equal(watch.isLate, false);
    watch.close();
  });
});
