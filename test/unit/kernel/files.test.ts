import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, statSync, symlinkSync, truncateSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { makeDirectory, readRegularFile } from '../../../src/kernel/files.ts';
import { temporaryDirectory } from '../../support/temporary-directory.ts';

describe('reading a file that a configuration names', () => {
  it('reads files, and what is behind links', async (test) => {
    const directory = await temporaryDirectory(test);
    writeFileSync(join(directory, 'file'), 'text');
    symlinkSync('file', join(directory, 'link'));
    assert.equal(readRegularFile(join(directory, 'link')).toString(), 'text');
    assert.equal(readRegularFile('/dev/null').length, 0);
    assert.match(readRegularFile('/proc/self/status').toString(), /^Name:/);
  });

  it('does not wait for a pipe, and does not read a device', async (test) => {
    const directory = await temporaryDirectory(test);
    const pipe = join(directory, 'pipe');
    execFileSync('mkfifo', [pipe]);
    for (const path of [pipe, '/dev/zero', '/dev/tty']) {
      assert.throws(() => readRegularFile(path), /not a regular file|ENXIO/, path);
    }
    assert.throws(() => readRegularFile(directory), { code: 'EISDIR' });
    assert.throws(() => readRegularFile(join(directory, 'missing')), { code: 'ENOENT' });
  });

  it('reads at most 16 MiB', async (test) => {
    const file = join(await temporaryDirectory(test), 'file');
    writeFileSync(file, '');
    truncateSync(file, 16 * 1024 * 1024);
    assert.equal(readRegularFile(file).length, 16 * 1024 * 1024);
    truncateSync(file, 16 * 1024 * 1024 + 1);
    assert.throws(() => readRegularFile(file), /larger than 16777216 bytes/);
  });
});

describe('creating a directory', () => {
  it('creates its parents, for this user only, and accepts one that exists', async (test) => {
    const directory = await temporaryDirectory(test);
    makeDirectory(join(directory, 'a', 'b', 'c'));
    assert.equal(statSync(join(directory, 'a', 'b')).mode & 0o777, 0o700);
    makeDirectory(join(directory, 'a', 'b', 'c'));
    mkdirSync(join(directory, 'open'), { mode: 0o755 });
    symlinkSync('open', join(directory, 'link'));
    makeDirectory(join(directory, 'link', 'd'));
    assert.ok(existsSync(join(directory, 'open', 'd')));
  });

  it('fails where it cannot be created', async (test) => {
    const directory = await temporaryDirectory(test);
    writeFileSync(join(directory, 'file'), '');
    symlinkSync('nothing', join(directory, 'dangling'));
    for (const [path, code] of [
      ['file', 'EEXIST'],
      ['file/a', 'ENOTDIR'],
      ['dangling', 'EEXIST'],
      ['dangling/a', 'EEXIST'],
    ] as const) {
      assert.throws(() => makeDirectory(join(directory, path)), { code }, path);
    }
    // Node's recursive mkdir would not return.
    assert.throws(() => makeDirectory('/proc/x/y'), { code: 'ENOENT' });
  });
});
