// Installs the package as users do, from the tarball that `npm pack` makes, in a folder of its own. The
// tests start this copy: what is wrong in the bundle or missing in the tarball fails here, not at users.
import { spawnSync } from 'node:child_process';
import { mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { root } from './install.mjs';

/** Times that npm is tried: the native library comes from a registry, which may not answer once. */
const TRIES = 3;

/**
 * Packs and installs the checkout, whose dist/ is up to date. Returns the installed package's folder,
 * and a function that removes it. `more` are further options of `npm install`.
 */
export function installPackage(more = []) {
  const directory = mkdtempSync(join(tmpdir(), 'hubgate-installed-'));
  npm(['pack', '--silent', '--pack-destination', directory], root);
  const tarball = readdirSync(directory).find((name) => name.endsWith('.tgz'));
  if (tarball === undefined) throw new Error('npm pack has written no tarball');
  writeFileSync(join(directory, 'package.json'), '{ "private": true, "type": "module" }\n');
  const flags = ['--prefer-offline', '--no-audit', '--no-fund', '--loglevel=error'];
  npm(['install', ...flags, ...more, `./${tarball}`], directory);
  return {
    packageDirectory: join(directory, 'node_modules', 'hubgate'),
    remove: () => rmSync(directory, { recursive: true, force: true }),
  };
}

function npm(args, cwd) {
  for (let attempt = 1; ; attempt += 1) {
    const { status } = spawnSync('npm', args, {
      cwd,
      stdio: ['ignore', 'ignore', 'inherit'],
      shell: process.platform === 'win32',
    });
    if (status === 0) return;
    if (attempt === TRIES) throw new Error(`npm ${args[0]} has failed ${TRIES} times`);
  }
}
