// Installs the packages of package-lock.json when they are missing or have changed, and only then:
// the second start is quick and needs no network.
import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

export const root = dirname(dirname(fileURLToPath(import.meta.url)));
/** Flags with which Node runs TypeScript. */
export const TYPESCRIPT = ['--import', new URL('typescript.mjs', import.meta.url).href];
const stamp = join(root, 'node_modules', '.hubgate-installed');

export function installMissing() {
  requireNode(20, 19);
  const wanted = createHash('sha256')
    .update(readFileSync(join(root, 'package-lock.json')))
    .update(process.versions.modules)
    .digest('hex');
  if (existsSync(stamp) && readFileSync(stamp, 'utf8') === wanted) return;
  console.error('hubgate: installing packages (once)…');
  // Exactly what the lock file says, on every platform: scripts/complete-lock.mjs.
  run('npm', ['ci', '--no-audit', '--no-fund', '--loglevel=error']);
  writeFileSync(stamp, wanted);
}

/** Runs a program of this package in the foreground; ends this process with its status when it fails. */
export function run(program, args, options = {}) {
  const { status, error } = spawnSync(program, args, {
    cwd: root,
    stdio: 'inherit',
    shell: process.platform === 'win32',
    ...options,
  });
  if (error) throw error;
  if (status !== 0) process.exit(status ?? 1);
}

/** Path of the program that a package installed. */
export function bin(name) {
  return join(root, 'node_modules', '.bin', name);
}

function requireNode(major, minor) {
  const [haveMajor, haveMinor] = process.versions.node.split('.').map(Number);
  if (haveMajor > major || (haveMajor === major && haveMinor >= minor)) return;
  console.error(`hubgate needs Node ${major}.${minor} or later; this is ${process.versions.node}.`);
  process.exit(1);
}
