import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { Attempts } from '../../../src/directives/basic-auth/hash-check.ts';
import { TestClock } from '../../support/test-clock.ts';

function fail(attempts: Attempts, client: string, times: number): void {
  for (let i = 0; i < times; i += 1) {
    attempts.begin(client);
    attempts.failed(client);
    attempts.end(client);
  }
}

describe('the password checks that a client may use', () => {
  it('are limited to 4 at once', () => {
    const attempts = new Attempts(new TestClock());
    for (let i = 0; i < 4; i += 1) {
      assert.equal(attempts.waitMs('10.0.0.1'), 0);
      attempts.begin('10.0.0.1');
    }
    assert.equal(attempts.waitMs('10.0.0.1'), 1_000);
    assert.equal(attempts.waitMs('10.0.0.2'), 0);
    attempts.end('10.0.0.1');
    assert.equal(attempts.waitMs('10.0.0.1'), 0);
  });

  it('are limited to 20 failures a minute, counted from the first', () => {
    const clock = new TestClock();
    const attempts = new Attempts(clock);
    fail(attempts, '10.0.0.1', 19);
    assert.equal(attempts.waitMs('10.0.0.1'), 0);
    clock.advance(20_000);
    fail(attempts, '10.0.0.1', 1);
    assert.equal(attempts.waitMs('10.0.0.1'), 40_000);
    assert.equal(attempts.waitMs('10.0.0.2'), 0);
    clock.advance(40_000);
    assert.equal(attempts.waitMs('10.0.0.1'), 0);
  });

  it('are counted for at most 10,000 clients, after which the client inactive for longest is dropped', () => {
    const attempts = new Attempts(new TestClock());
    fail(attempts, 'first', 20);
    fail(attempts, 'second', 20);
    for (let i = 0; i < 9_999; i += 1) fail(attempts, `client ${i}`, 1);
    assert.equal(attempts.waitMs('first'), 0);
    assert.ok(attempts.waitMs('second') > 0);
  });
});
