// Unit, protocol and end-to-end tests on other Nodes than this one: `npm run test:nodes -- 22 24 26`, without
// numbers on the newest; with paths after them only the tests below those. The npm package `node` brings them.
import { spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { build } from './build.mjs';
import { installMissing, root, TYPESCRIPT } from './install.mjs';
import { installPackage } from './install-package.mjs';
import { sharingProcesses, testFiles } from './test-files.mjs';

/**
 * What a Node may break: its HTTP, TLS, streams, workers, processes, its URL parser, native code. `.ci/nightly` runs
 * more.
 */
const TESTS = [
  ...['http', 'kernel', 'proxy', 'server', 'tls'].map((folder) => `test/unit/${folder}`),
  'test/unit/cli/worker-pool.test.ts',
  'test/unit/hub-pattern/web-platform.test.ts',
  ...['exchange', 'response-stream'].map((name) => `test/contract/${name}.test.ts`),
  ...['publish', 'subscribe', 'subscriptions'].map((name) => `test/protocol/${name}.test.ts`),
  ...[
    ...[
      'client-certificates',
      'http2-upstream',
      'library',
      'proxy-truncated-tls',
      'reload-promises',
    ],
    ...['session-tickets', 'stop', 'upgrade', 'watch'],
  ].map((name) => `test/e2e/${name}.test.ts`),
];
const NEWEST = '26';
/** Times that the registry is asked. */
const TRIES = 3;

installMissing();
await build();
const installed = installPackage();
const given = process.argv.slice(2);
const versions = given.filter((one) => /^\d/.test(one));
const paths = given.filter((one) => !/^\d/.test(one));
for (const version of versions.length > 0 ? versions : [NEWEST]) test(version);
installed.remove();

function test(version) {
  const prefix = mkdtempSync(join(tmpdir(), 'hubgate-node-'));
  const dataHome = mkdtempSync(join(tmpdir(), 'hubgate-tests-'));
  try {
    const node = install(version, prefix);
    console.error(`— Node ${spawnSync(node, ['--version'], { encoding: 'utf8' }).stdout.trim()}`);
    const reaper = new URL('../test/support/reaper.mjs', import.meta.url).href;
    const how = ['--conditions=hubgate-source', ...TYPESCRIPT, '--import', reaper, '--test'];
    const limits = ['--test-reporter=dot', '--test-concurrency=3', '--test-timeout=1800000'];
    const files = (paths.length > 0 ? paths : TESTS).flatMap(testFiles);
    const together = sharingProcesses(files, join(dataHome, 'files'));
    const env = {
      ...process.env,
      XDG_DATA_HOME: dataHome,
      HUBGATE_PACKAGE: installed.packageDirectory,
    };
    const options = { cwd: root, stdio: 'inherit', env };
    const { status } = spawnSync(node, [...how, ...limits, ...together], options);
    if (status !== 0) process.exitCode = status ?? 1;
  } finally {
    for (const directory of [prefix, dataHome]) rmSync(directory, { recursive: true, force: true });
  }
}

/** The path of its program. */
function install(version, prefix) {
  const flags = ['--no-save', '--no-package-lock', '--no-audit', '--no-fund', '--loglevel=error'];
  const node = join(prefix, 'node_modules', 'node', 'bin', 'node');
  for (let attempt = 1; attempt <= TRIES && !existsSync(node); attempt += 1) {
    // It is put in place by a script of its own, which newer npm runs only where it is asked to.
    spawnSync('npm', ['install', ...flags, '--prefix', prefix, `node@${version}`], {
      stdio: 'inherit',
      shell: process.platform === 'win32',
    });
  }
  if (existsSync(node)) return node;
  throw new Error(`npm has not brought Node ${version} in ${TRIES} attempts`);
}
