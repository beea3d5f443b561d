import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { chmod, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { promisify } from 'node:util';
import { gunzipSync } from 'node:zlib';
import { freePort } from '../support/free-port.ts';
import { cli, root } from '../support/process.ts';

const REFERENCE_HISTORY = new URL('fixtures/reference-history.db.gz', import.meta.url);

describe('docs/from-mercure.md', () => {
  it('has commands that work when copied and pasted one after the other', async (test) => {
    const directory = await mkdtemp(join(tmpdir(), 'hubgate-from-mercure-'));
    const port = await freePort();
    const page = await readFile(join(root, 'docs/from-mercure.md'), 'utf8');
    // The test must not take the port that the page names; nothing else is changed.
    const blocks = (language: string): string[] =>
      [...page.matchAll(new RegExp(`^ *\`\`\`${language}\n([^]*?)^ *\`\`\`$`, 'gm'))].map(
        ([, text = '']) => text.replaceAll('localhost:3000', `localhost:${port}`),
      );
    const [hubfile = ''] = blocks('hubfile');
    const storage = `{\n\tadmin off\n\tstorage ${directory}`;
    await writeFile(join(directory, 'Hubfile'), hubfile.replace('{', storage));
    await writeFile(join(directory, 'mercure.db'), gunzipSync(await readFile(REFERENCE_HISTORY)));
    const program = join(directory, 'hubgate');
    await writeFile(program, `#!/bin/sh\nexec '${process.execPath}' '${cli}' "$@"\n`);
    await chmod(program, 0o755);
    const env = {
      ...process.env,
      PATH: `${directory}:${process.env['PATH']}`,
      MERCURE_PUBLISHER_JWT_KEY: 'a-key-of-this-test-only-0123456789abcdef',
      MERCURE_SUBSCRIBER_JWT_KEY: 'another-key-of-this-test-0123456789abcdef',
    };
    const run = (script: string) =>
      promisify(execFile)('bash', ['-ec', script], { cwd: directory, env });
    test.after(async () => {
      await run('kill $(cat hubgate.pid) && while [ -e hubgate.pid ]; do sleep 0.05; done');
      await rm(directory, { recursive: true, force: true });
    });

    const [switchOver = '', publish = '', subscribe = '', ...others] = blocks('sh');
    assert.equal(others.length, 0);
    const background = /^hubgate run .*&$/m.exec(switchOver)?.[0] ?? '';
    const before = await run(switchOver.replace(background, ''));
    assert.match(before.stderr, /^40 updates were imported$/m);
    assert.match(before.stderr, /uses transport lmdb instead of bolt/);
    assert.match(before.stdout, /^last_event_id\s+urn:n:36$/m);
    // Its output would keep the shell from ending.
    await run(`${background.replace(/&$/, '> log 2>&1 &')}
      until [ -e hubgate.pid ]; do sleep 0.05; done`);

    const published = await run(publish);
    assert.match(published.stdout, /urn:uuid:5f0a7c1e-3c0c-4a1c-9d53-3d5a6b1f7e42$/);
    const replayed = await run(subscribe);
    assert.deepEqual(
      [...replayed.stdout.matchAll(/^id: ?(.*)$/gm)].map(([, id]) => id),
      ['urn:n:36', 'urn:uuid:5f0a7c1e-3c0c-4a1c-9d53-3d5a6b1f7e42'],
    );
  });
});
