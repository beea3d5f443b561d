// Adds to package-lock.json the optional binaries of other platforms that npm leaves out where the
// registry it was made with does not have them: `npm ci` refuses a lock file without them. They have
// no checksum, so npm asks the registry for it on a machine that needs one. `--check` changes nothing
// and fails where an entry is missing, or where an address of a registry got in.
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { root } from './install.mjs';

const PLATFORM = new RegExp(
  '(android|darwin|freebsd|linux|netbsd|openbsd|openharmony|sunos|win32)-' +
    '(arm64|arm|ia32|loong64|mips64el|ppc64|riscv64|s390x|x64)(?:-(\\w+))?$',
);
const path = join(root, 'package-lock.json');
const lock = JSON.parse(readFileSync(path, 'utf8'));
const { packages } = lock;
const isCheck = process.argv.includes('--check');

const addresses = Object.keys(packages).filter((key) => packages[key].resolved !== undefined);
for (const key of addresses) delete packages[key].resolved;
const missing = Object.entries(packages).flatMap(([key, about]) =>
  Object.entries(about.optionalDependencies ?? {})
    .filter(([name]) => !isLocked(key, name))
    .map(([name, version]) => ({ key, about, name, version })),
);
for (const { key, about, name, version } of missing) {
  const [, os, cpu, abi = ''] = PLATFORM.exec(name) ?? [];
  if (os === undefined || !/^\d+\.\d+\.\d+$/.test(version)) {
    throw new Error(`${name}@${version} of ${key}: not an exact version for a known platform`);
  }
  packages[`${folderOf(key)}${name}`] = {
    version,
    cpu: [cpu],
    ...(about.dev ? { dev: true } : {}),
    ...(os === 'linux' && abi !== '' ? { libc: [abi.startsWith('musl') ? 'musl' : 'glibc'] } : {}),
    optional: true,
    os: [os],
  };
}

if (isCheck && missing.length + addresses.length > 0) {
  for (const { name } of missing) console.error(`package-lock.json: ${name} has no entry`);
  for (const key of addresses) console.error(`package-lock.json: ${key} has an address`);
  console.error('Run: node scripts/complete-lock.mjs');
  process.exit(1);
}
if (!isCheck) {
  const sorted = Object.keys(packages).sort((a, b) => a.localeCompare(b, 'en'));
  lock.packages = Object.fromEntries(sorted.map((key) => [key, packages[key]]));
  writeFileSync(path, `${JSON.stringify(lock, null, 2)}\n`);
}

/** Node looks in the folder itself and in all above it; so does npm. */
function isLocked(key, name) {
  for (let folder = `${key}/`; ; folder = folderAbove(folder)) {
    if (packages[`${folder}node_modules/${name}`] !== undefined) return true;
    if (folder === '') return false;
  }
}

function folderAbove(folder) {
  return folder.slice(0, folder.lastIndexOf('node_modules/'));
}

/** Where the package itself lies: what belongs to its version goes beside it. */
function folderOf(key) {
  return key.slice(0, key.lastIndexOf('node_modules/') + 'node_modules/'.length);
}
