// The tests that a Node could break, on other Nodes than this one: `npm run test:nodes -- 22 24 26`, without
// numbers on the newest. The npm package `node` brings them.
import { spawnSync } from 'node:child_process';
import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { build } from './build.mjs';
import { installMissing, root, run } from './install.mjs';

/** Why these: Node's insides, its URL parser, its HTTP, TLS and streams, its processes. */
const TESTS = [
  ...[
    'test/unit/server',
    'test/unit/hub-pattern',
    'test/unit/tls',
    'test/contract',
    'test/protocol',
  ],
  ...['test/e2e/command-line.test.ts', 'test/e2e/stop.test.ts', 'test/e2e/upgrade.test.ts'],
];
const NEWEST = '26';

installMissing();
await build();
const given = process.argv.slice(2);
for (const version of given.length > 0 ? given : [NEWEST]) test(version);

function test(version) {
  const prefix = mkdtempSync(join(tmpdir(), 'hubgate-node-'));
  try {
    const flags = ['--no-save', '--no-package-lock', '--no-audit', '--no-fund', '--loglevel=error'];
    // It is put in place by a script of its own, which newer npm runs only where it is asked to.
    run('npm', ['install', ...flags, '--prefix', prefix, `node@${version}`]);
    const node = join(prefix, 'node_modules', 'node', 'bin', 'node');
    console.error(`— Node ${spawnSync(node, ['--version'], { encoding: 'utf8' }).stdout.trim()}`);
    const how = ['--conditions=hubgate-source', '--import', 'tsx', '--test', '--test-reporter=dot'];
    const limits = ['--test-concurrency=2', '--test-timeout=300000'];
    run(node, [...how, ...limits, ...TESTS.flatMap(testFiles)]);
  } finally {
    rmSync(prefix, { recursive: true, force: true });
  }
}

function testFiles(path) {
  if (path.endsWith('.ts')) return [path];
  return readdirSync(join(root, path), { recursive: true })
    .filter((name) => name.endsWith('.test.ts'))
    .map((name) => join(path, name));
}
