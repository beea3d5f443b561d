import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { StopSignals } from '../../../src/cli/user-signals.ts';
import { TestClock } from '../../support/test-clock.ts';

describe('signals that stop the program', () => {
  it('the first stops in good order, the second cuts, however soon it comes', () => {
    const signals = new StopSignals(new TestClock());
    assert.deepEqual(
      (['SIGTERM', 'SIGTERM'] as const).map((name) => signals.meaning(name)),
      ['stop', 'force'],
    );
  });

  it('one Ctrl-C that comes twice, from the terminal and from npx, is one', () => {
    const clock = new TestClock();
    const signals = new StopSignals(clock);
    assert.equal(signals.meaning('SIGINT'), 'stop');
    clock.advance(299);
    assert.equal(signals.meaning('SIGINT'), 'repeated');
    clock.advance(1);
    assert.equal(signals.meaning('SIGINT'), 'force');
    assert.equal(signals.meaning('SIGINT'), 'repeated');
  });

  it('after a stop by the admin API the first signal cuts', () => {
    const signals = new StopSignals(new TestClock());
    signals.stopping();
    assert.equal(signals.meaning('SIGINT'), 'force');
  });

  it('Ctrl-C after SIGTERM cuts, and so does SIGTERM after Ctrl-C', () => {
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
