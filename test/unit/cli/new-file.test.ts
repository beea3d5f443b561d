import assert from 'node:assert/strict';
import {
  chmodSync,
  chownSync,
  linkSync,
  readdirSync,
  readFileSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { replaceContent } from '../../../src/cli/new-file.ts';
import { temporaryDirectory } from '../../support/temporary-directory.ts';

/** The user `nobody` of most systems. */
const NOBODY = 65_534;

describe('the content of a file is replaced', () => {
  it('in one step if nothing else has the file', async (test) => {
    const file = join(await temporaryDirectory(test), 'Hubfile');
    writeFileSync(file, 'old');
    const { ino } = statSync(file);
    replaceContent(file, 'new');
    assert.equal(readFileSync(file, 'utf8'), 'new');
    assert.notEqual(statSync(file).ino, ino);
  });

  it('under all of its names', async (test) => {
    const file = join(await temporaryDirectory(test), 'Hubfile');
    writeFileSync(file, 'old');
    linkSync(file, `${file}.other`);
    replaceContent(file, 'new');
    assert.equal(readFileSync(`${file}.other`, 'utf8'), 'new');
    assert.equal(statSync(file).nlink, 2);
  });

  it('in place where no other file can be created', async (test) => {
    const directory = await temporaryDirectory(test);
    // The name of another file would be too long.
    const file = join(directory, 'n'.repeat(250));
    writeFileSync(file, 'old');
    replaceContent(file, 'new');
    assert.equal(readFileSync(file, 'utf8'), 'new');
    assert.equal(readdirSync(directory).length, 1);
  });

  it('not if it is protected against writing', async (test) => {
    const directory = await temporaryDirectory(test);
    const file = join(directory, 'Hubfile');
    writeFileSync(file, 'old');
    chmodSync(file, 0o444);
    // No permission binds root.
    const isRoot = process.geteuid?.() === 0;
    const { gid } = statSync(file);
    if (isRoot) for (const path of [directory, file]) chownSync(path, NOBODY, gid);
    if (isRoot) process.seteuid?.(NOBODY);
    try {
      assert.throws(() => replaceContent(file, 'new'), {
        code: 'unwritable-file',
        message: /EACCES/,
      });
    } finally {
      if (isRoot) process.seteuid?.(0);
    }
    assert.equal(readFileSync(file, 'utf8'), 'old');
    assert.equal(readdirSync(directory).length, 1);
  });
});
