// Everything that must hold before a change lands: format, lint, types, layers, dead code, tests.
// `npm test -- test/unit/hub` runs only the tests below a path (and none of the checks),
// `npm test -- --changed` only those whose imports reach what git says has changed.
// The applications of test/apps take minutes each and have to be installed: `npm run test:apps` runs them. Those of
// test/executable need the single executable: `npm run test:executable` builds it.
import { spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, relative } from 'node:path';
import { build } from './build.mjs';
import { changedTests } from './changed-tests.mjs';
import { runChecks } from './checks.mjs';
import { installMissing, root, TYPESCRIPT } from './install.mjs';
import { installPackage } from './install-package.mjs';
import { sharingProcesses, testFiles } from './test-files.mjs';

installMissing();
const given = process.argv.slice(2);
const only = given.includes('--changed') ? changedTests().filter((file) => !isApart(file)) : given;
if (given.length > 0 && only.length === 0) {
  console.error('No test is concerned by what git says has changed.');
  process.exit(0);
}
if (only.length === 0) runChecks();
await build();

// `HUBGATE_PACKAGE=source npm test -- …` tests the source instead, which saves the packing while you work.
const isSource = process.env.HUBGATE_PACKAGE === 'source' && process.env.CI !== 'true';
const installed = isSource ? null : installPackage();
const dataHome = mkdtempSync(join(tmpdir(), 'hubgate-tests-'));
/** What `test/support/reaper.mjs` says about files that took too long. */
const overdue = join(dataHome, 'overdue-tests');
// Node 20 takes no globs, so the files are listed here.
const files = (only.length > 0 ? only : ['test']).flatMap((path) => {
  const isAsked = isApart(join(path, '.'));
  return testFiles(relative(root, join(root, path))).filter((file) => isAsked || !isApart(file));
});
const { status } = spawnSync(
  process.execPath,
  [
    '--conditions=hubgate-source',
    ...TYPESCRIPT,
    '--import',
    new URL('../test/support/reaper.mjs', import.meta.url).href,
    '--test',
    // Names every failure once more at the end, where a log that was cut still shows it.
    '--test-reporter=spec',
    // More than there are processors on a small machine: half of the time, a test waits.
    '--test-concurrency=3',
    '--test-timeout=1800000',
    ...sharingProcesses(files, join(dataHome, 'files')),
  ],
  // A gateway of this machine may have left histories where the default storage is.
  {
    cwd: root,
    stdio: 'inherit',
    env: {
      ...process.env,
      XDG_DATA_HOME: dataHome,
      HUBGATE_OVERDUE_TESTS: overdue,
      HUBGATE_PACKAGE: installed?.packageDirectory ?? 'source',
    },
  },
);
if (existsSync(overdue)) console.error(readFileSync(overdue, 'utf8'));
rmSync(dataHome, { recursive: true, force: true });
installed?.remove();
process.exit(status ?? 1);

/** Tests that run only where they are asked for. */
function isApart(path) {
  return ['test/apps', 'test/executable'].some(
    (folder) => relative(join(root, folder), join(root, path)).split('/')[0] !== '..',
  );
}
