import assert from 'node:assert/strict';
import { describe, it } from 'node:test';

interface ChangedTests {
  testsConcernedBy(files: readonly string[]): readonly string[];
}
// No path that the compiler would follow: scripts have no types.
const script = new URL('../../../scripts/changed-tests.mjs', import.meta.url).href;
const { testsConcernedBy } = (await import(script)) as ChangedTests;

describe('npm test -- --changed', () => {
  it('runs the tests whose imports reach the change, through any number of files', () => {
    const signing = testsConcernedBy(['src/auth/mint.ts']);
    assert.ok(signing.includes('test/unit/auth/sign-token.test.ts'));
    assert.ok(!signing.includes('test/unit/hub-pattern/syntax.test.ts'));
    const wheel = testsConcernedBy(['src/kernel/timer-wheel.ts']);
    // It starts the built program, in which the wheel turns.
    assert.ok(wheel.includes('test/e2e/stop.test.ts'));
    assert.ok(wheel.includes('test/protocol/subscribe.test.ts'));
    assert.ok(wheel.length > signing.length);
  });

  it('runs the browser tests for files that are bundled into a script', () => {
    for (const file of ['src/debugger/traffic.ts', 'scripts/browser-buffer.mjs']) {
      assert.ok(testsConcernedBy([file]).includes('test/protocol/debugger.test.ts'), file);
    }
    for (const file of ['src/client/live/three-way-patch.ts', 'src/client/subscribe.ts']) {
      assert.ok(testsConcernedBy([file]).includes('test/e2e/live-page.test.ts'), file);
    }
    const hashing = 'src/directives/basic-auth/password-thread.ts';
    assert.ok(testsConcernedBy([hashing]).includes('test/e2e/basic-auth.test.ts'));
  });

  it('runs a test that has changed itself or is next to a changed fixture, and no tests without a change', () => {
    assert.deepEqual(testsConcernedBy(['test/e2e/upgrade.test.ts']), ['test/e2e/upgrade.test.ts']);
    const golden = testsConcernedBy(['test/hubfile/addresses/ports.hubfile']);
    assert.ok(golden.includes('test/hubfile/golden.test.ts'));
    assert.deepEqual(testsConcernedBy([]), []);
  });
});
