import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { StopSignals } from '../../../src/cli/user-signals.ts';
import { TestClock } from '../../support/test-clock.ts';

describe('signals that stop the program', () => {
  it('the first stops gracefully, the second stops at once, however soon it arrives', () => {
    const signals = new StopSignals(new TestClock());
    assert.deepEqual(
      (['SIGTERM', 'SIGTERM'] as const).map((name) => signals.meaning(name)),
      ['stop', 'force'],
    );
  });

  it('one Ctrl-C that arrives twice, from the terminal and from npx, counts once', () => {
    const clock = new TestClock();
    const signals = new StopSignals(clock);
    assert.equal(signals.meaning('SIGINT'), 'stop');
    clock.advance(299);
    assert.equal(signals.meaning('SIGINT'), 'repeated');
    clock.advance(1);
    assert.equal(signals.meaning('SIGINT'), 'force');
    assert.equal(signals.meaning('SIGINT'), 'repeated');
  });

  it('after a stop through the admin API, the first signal stops at once', () => {
    const signals = new StopSignals(new TestClock());
    signals.stopping();
    assert.equal(signals.meaning('SIGINT'), 'force');
  });

  it('Ctrl-C after SIGTERM stops at once, and so does SIGTERM after Ctrl-C', () => {
    for (const names of [
      ['SIGTERM', 'SIGINT'],
      ['SIGINT', 'SIGTERM'],
    ] as const) {
      const signals = new StopSignals(new TestClock());
      assert.deepEqual(
        names.map((name) => signals.meaning(name)),
        ['stop', 'force'],
      );
    }
  });
});
