import assert from 'node:assert/strict';
import {
  chmodSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmdirSync,
  rmSync,
  statSync,
  symlinkSync,
} from 'node:fs';
import { fork } from 'node:child_process';
import { once } from 'node:events';
import { dirname, join } from 'node:path';
import { describe, it, type TestContext } from 'node:test';
import { fileURLToPath } from 'node:url';
import { LogFile } from '../../../src/cli/log-file.ts';
import type { RollOptions } from '../../../src/config/config.ts';
import { temporaryDirectory } from '../../support/temporary-directory.ts';
import { TestClock } from '../../support/test-clock.ts';

const ROLL: RollOptions = { size: 100, keep: 2, keepForMs: 0, intervalMs: 0 };

describe('a log file', () => {
  it('is created with the configured permissions, also when it is rotated', async (test) => {
    const { open, directory, clock } = await setUp(test);
    const file = open({ size: 10, keep: 3, keepForMs: 0, intervalMs: 0 }, '0640');
    for (let line = 0; line < 3; line += 1) {
      file.write('a line of the log\n');
      clock.advance(1_000);
    }
    const modes = readdirSync(directory).map(
      (name) => statSync(join(directory, name)).mode & 0o777,
    );
    assert.ok(modes.length > 1);
    // A umask may take something away from others, never from the owner.
    for (const mode of modes) assert.equal(mode & ~0o040, 0o600);
  });

  it('is private, and is appended to', async (test) => {
    const { path, open } = await setUp(test);
    open(null).write('one\n');
    open(null).write('two\n');
    assert.equal(readFileSync(path, 'utf8'), 'one\ntwo\n');
    assert.equal(statSync(path).mode & 0o777, 0o600);
  });

  it('is created with its directories, which only their owner can access', async (test) => {
    const directory = await temporaryDirectory(test);
    const path = join(directory, 'a', 'b', 'access.log');
    const file = new LogFile({
      ...{ path, roll: null, mode: '0640' },
      ...{ clock: new TestClock(), onTrouble: assert.fail },
    });
    test.after(() => file.close());
    for (const name of ['a', 'a/b']) {
      assert.equal(statSync(join(directory, name)).mode & 0o777, 0o700, name);
    }
  });

  it('is rotated when it is too large, and the oldest files are deleted', async (test) => {
    const { directory, path, clock, open } = await setUp(test);
    const file = open(ROLL);
    for (const letter of ['a', 'b', 'c', 'd']) {
      file.write(`${letter.repeat(120)}\n`);
      clock.advance(1);
    }
    const rolled = readdirSync(directory).filter((name) => name !== 'access.log');
    assert.deepEqual(
      rolled.sort((a, b) => (a < b ? -1 : 1)).map((name) => firstOf(join(directory, name))),
      ['b', 'c'],
    );
    assert.equal(firstOf(path), 'd');
    for (const name of rolled)
      assert.match(name, /^access-\d{4}-\d\d-\d\dT[\d-]+\.\d{3}-\d+\.log$/);
  });

  it('is rotated when it is too old, and files older than the limit are deleted', async (test) => {
    const { directory, path, clock, open } = await setUp(test, Date.now());
    const file = open({ ...ROLL, keep: 9, intervalMs: 60_000, keepForMs: 90_000 });
    file.write('first\n');
    clock.advance(59_999);
    file.write('still first\n');
    clock.advance(1);
    file.write('second\n');
    assert.equal(readFileSync(path, 'utf8'), 'second\n');
    assert.equal(readdirSync(directory).length, 2);
    clock.advance(120_000);
    file.write('third\n');
    assert.equal(readFileSync(path, 'utf8'), 'third\n');
    assert.equal(readdirSync(directory).length, 1, 'as old as the clock says');
  });

  it('that cannot be rotated grows, says so once, and is rotated when that is possible', async (test) => {
    const { directory, path, clock, open, troubles } = await setUp(test);
    const file = open(ROLL);
    file.write(`${'a'.repeat(120)}\n`);
    // As root's /var/log with a file that was created in advance for the service's user.
    chmodSync(dirname(directory), 0o755);
    chmodSync(directory, 0o555);
    asNobody(() => {
      file.write('b\n');
      clock.advance(2_000);
      file.write('c\n');
      clock.advance(60_000);
      file.write('d\n');
    });
    assert.equal(readFileSync(path, 'utf8'), `${'a'.repeat(120)}\nb\nc\nd\n`);
    assert.equal(troubles.length, 1);
    assert.match(troubles[0] ?? '', /cannot be rotated \(EACCES\); it grows until it can/);
    chmodSync(directory, 0o755);
    file.write('e\n');
    assert.equal(readdirSync(directory).length, 1, 'hubgate does not try at each line');
    clock.advance(60_000);
    file.write('f\n');
    assert.equal(readFileSync(path, 'utf8'), 'f\n');
    assert.match(troubles[1] ?? '', /can be rotated again/);
    assert.equal(troubles.length, 2);
  });

  it('loses no line if an old file cannot be removed', async (test) => {
    const { directory, path, clock, open, troubles } = await setUp(test);
    const file = open({ ...ROLL, keep: 1 });
    const old = join(directory, 'access-2020-01-01T00-00-00.000-1.log');
    mkdirSync(old);
    for (const letter of ['a', 'b', 'c']) {
      file.write(`${letter.repeat(120)}\n`);
      clock.advance(1);
      assert.equal(firstOf(path), letter);
    }
    assert.equal(troubles.length, 1);
    assert.match(troubles[0] ?? '', /old files that cannot be removed \(\w+\)/);
    rmSync(old, { recursive: true });
    file.write('d\n');
    assert.equal(readdirSync(directory).length, 2);
    assert.match(troubles[1] ?? '', /can be rotated again/);
  });

  it('of several processes is rotated once', async (test) => {
    const { directory, path, clock, open } = await setUp(test);
    const [one, other] = [open(ROLL), open(ROLL)];
    one.write(`${'a'.repeat(120)}\n`);
    one.write('b\n');
    other.write('c\n');
    clock.advance(1000);
    other.write('d\n');
    assert.equal(readFileSync(path, 'utf8'), 'b\nd\n');
    assert.equal(readdirSync(directory).length, 2);
  });

  it('of several processes is rotated when it is too large for all of them together', async (test) => {
    const { directory, path, clock, open } = await setUp(test);
    const [one, other] = [open(ROLL), open(ROLL)];
    one.write(`${'a'.repeat(60)}\n`);
    other.write(`${'b'.repeat(60)}\n`);
    clock.advance(1000);
    one.write('c\n');
    assert.equal(readFileSync(path, 'utf8'), 'c\n');
    assert.equal(readdirSync(directory).length, 2);
  });

  it('of several processes loses no line when all of them rotate it at the same time', async (test) => {
    const directory = await temporaryDirectory(test);
    const [processes, lines] = [4, 5_000];
    const writer = fileURLToPath(new URL('log-writer.ts', import.meta.url));
    const written = Array.from({ length: processes }, async (_, number) => {
      const args = [join(directory, 'access.log'), `${number}`, `${lines}`];
      const child = fork(writer, args, { stdio: ['ignore', 'inherit', 'inherit', 'ipc'] });
      test.after(() => child.kill('SIGKILL'));
      const [code] = await once(child, 'exit');
      assert.equal(code, 0);
    });
    await Promise.all(written);
    const files = readdirSync(directory);
    assert.ok(files.length > 2, 'it has been rotated');
    const found = files.flatMap((name) =>
      readFileSync(join(directory, name), 'utf8').trimEnd().split('\n'),
    );
    const expected = Array.from({ length: processes }, (_, number) =>
      Array.from({ length: lines }, (_line, line) => `${number} ${line}`),
    );
    assert.deepEqual(found.toSorted(), expected.flat().toSorted());
  });

  it('that another program has moved is created again, at once after a signal', async (test) => {
    const { path, clock, open } = await setUp(test);
    const file = open(null);
    file.write('one\n');
    renameSync(path, `${path}.1`);
    file.write('two\n');
    assert.equal(readFileSync(`${path}.1`, 'utf8'), 'one\ntwo\n');
    file.reopen();
    file.write('three\n');
    assert.equal(readFileSync(path, 'utf8'), 'three\n');
    renameSync(path, `${path}.2`);
    clock.advance(1000);
    file.write('four\n');
    assert.equal(readFileSync(path, 'utf8'), 'four\n', 'without being told, a second later');
  });

  it('on a full disk drops lines, says so once, and counts them when there is room again', async (test) => {
    const { path, clock, open, troubles } = await setUp(test);
    symlinkSync('/dev/full', path);
    const file = open(ROLL);
    for (let i = 0; i < 3; i += 1) file.write('lost\n');
    assert.equal(troubles.length, 1);
    assert.match(troubles[0] ?? '', /cannot be written \(ENOSPC\); lines are dropped/);
    rmSync(path);
    clock.advance(1000);
    file.write('kept\n');
    assert.equal(readFileSync(path, 'utf8'), 'kept\n');
    assert.match(troubles[1] ?? '', /written again; lines lost: 3/);
    assert.equal(troubles.length, 2);
  });

  it('that could not be reopened has lost only what was written meanwhile', async (test) => {
    const { path, clock, open, troubles } = await setUp(test);
    const file = open(null);
    rmSync(path);
    mkdirSync(path);
    file.reopen();
    assert.match(troubles[0] ?? '', /cannot be written \(EISDIR\)/);
    file.write('lost\n');
    rmdirSync(path);
    clock.advance(1000);
    file.write('kept\n');
    assert.match(troubles[1] ?? '', /lines lost: 1$/);
    assert.equal(troubles.length, 2);
  });

  it('also drops lines if its directory has disappeared', async (test) => {
    const { directory, path, clock, open, troubles } = await setUp(test);
    const file = open(null);
    rmSync(directory, { recursive: true });
    symlinkSync('/proc/self/status', directory);
    clock.advance(1000);
    file.write('lost\n');
    assert.equal(troubles.length, 1);
    rmSync(directory);
    clock.advance(1000);
    file.write('kept\n');
    assert.equal(readFileSync(path, 'utf8'), 'kept\n');
  });
});

async function setUp(test: TestContext, now?: number) {
  const directory = join(await temporaryDirectory(test), 'logs');
  const path = join(directory, 'access.log');
  const clock = new TestClock(now);
  const troubles: string[] = [];
  mkdirSync(directory);
  const open = (roll: RollOptions | null, mode = '0600'): LogFile => {
    const onTrouble = (text: string) => troubles.push(text);
    const file = new LogFile({ path, roll, mode, clock, onTrouble });
    test.after(() => file.close());
    return file;
  };
  return { directory, path, clock, troubles, open };
}

function firstOf(file: string): string {
  return readFileSync(file, 'utf8').slice(0, 1);
}

/** Permissions do not stop root, so a test that root runs becomes `nobody` meanwhile. */
function asNobody(action: () => void): void {
  if (process.geteuid?.() !== 0) return action();
  process.seteuid?.(65_534);
  try {
    action();
  } finally {
    process.seteuid?.(0);
  }
}
