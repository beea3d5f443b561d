// Builds the single executable and the package for Debian, and tests both: what is special about them, and
// the end-to-end tests that use every part of the program, with the executable in the place of `node main.js`.
import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { installMissing, root, run } from './install.mjs';

const END_TO_END = [
  'acme',
  'every-part',
  'main-job',
  'reload-promises',
  'start-storage',
  'stop',
  'workers',
];

installMissing();
// Where every user may read it: the tests start it as another user too.
const directory = mkdtempSync(join(tmpdir(), 'hubgate-executable-'));
const executable = join(directory, 'hubgate');
try {
  const debian = process.platform === 'linux' ? ['--deb'] : [];
  run(process.execPath, ['scripts/build-executable.mjs', '--out', executable, ...debian]);
  const files = END_TO_END.map((name) => `test/e2e/${name}.test.ts`);
  const { status } = spawnSync(
    process.execPath,
    ['scripts/test.mjs', 'test/executable', ...files],
    { cwd: root, stdio: 'inherit', env: { ...process.env, HUBGATE_EXECUTABLE: executable } },
  );
  process.exitCode = status ?? 1;
} finally {
  rmSync(directory, { recursive: true, force: true });
}
