import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { readdirSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { it } from 'node:test';
import { fileURLToPath } from 'node:url';
import { programPath } from '../support/program.ts';
import { temporaryDirectory } from '../support/temporary-directory.ts';

const executable = process.env['HUBGATE_EXECUTABLE'] ?? '';
if (executable === '') throw new Error('npm run test:executable runs these tests');
const here = dirname(fileURLToPath(import.meta.url));

it('the package for Debian installs, starts as its unit says, reloads, and is removed without its data', async (test) => {
  if (process.getuid?.() !== 0) return test.skip('only root can install a package');
  // Some containers allow no mounts.
  const mount =
    'mount -t tmpfs none /mnt && mkdir /mnt/u /mnt/w /mnt/r && mount -t overlay none -o lowerdir=/,upperdir=/mnt/u,workdir=/mnt/w /mnt/r';
  const tried = spawnSync('unshare', ['--mount', '--net', '--pid', '--fork', 'sh', '-c', mount]);
  if (tried.status !== 0)
    return test.skip(`no root of its own is possible here: ${String(tried.stderr)}`);
  for (const [name, from] of [
    ['unshare', 'util-linux'],
    ['ip', 'iproute2'],
    ['dpkg', 'dpkg'],
    ['curl', 'curl'],
  ]) {
    if (name === undefined || programPath(test, name, from) === null) return;
  }
  const directory = await temporaryDirectory(test);
  const packed = readdirSync(dirname(executable)).find((name) => name.endsWith('.deb')) ?? '';
  const { status, stdout, stderr } = spawnSync(
    'unshare',
    [
      ...['--mount', '--net', '--pid', '--fork', 'sh', join(here, 'own-machine.sh')],
      ...[directory, join(dirname(executable), packed), join(here, 'install-debian-package.sh')],
    ],
    { encoding: 'utf8', input: '' },
  );
  assert.equal(status, 0, stdout + stderr);
  assert.match(stdout, /hubgate is installed\./);
  assert.match(stdout, /It is edited\./);
  assert.match(stdout, /stopped with 0/);
  assert.match(stdout, /^precious$/m);
});
