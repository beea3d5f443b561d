// The main script inside the executable (`npm run build:executable`). Node cannot load ES modules, native
// libraries or worker programs from inside an executable, so the files of the installed package are unpacked
// into a directory, once for each build, and the program is started from there.
//
// A directory is used only if it belongs to this user (or root) and nobody else may write to it, because its
// content is executed. Otherwise, and without a writable home directory, each start unpacks into a new
// temporary directory, which it removes at its end.
'use strict';

const { createRequire } = require('node:module');
const fs = require('node:fs');
const { homedir, tmpdir } = require('node:os');
const { dirname, join, sep } = require('node:path');
const { getAsset } = require('node:sea');

/** Where this process, or the one that started it, has unpacked its files: `<hash of the build>:<directory>`. */
const UNPACKED = 'HUBGATE_UNPACKED';
const PROGRAM = join('node_modules', 'hubgate', 'dist', 'cli', 'main.js');

/** `{ hash, version, files: [{ path, size, executable }] }`, with paths relative to the directory. */
const manifest = JSON.parse(getAsset('manifest.json', 'utf8'));
const directory = inheritedDirectory() ?? sharedDirectory() ?? temporaryDirectory();
process.env[UNPACKED] = `${manifest.hash}:${directory}`;
// A worker is started with the path of its program as the first argument, as by `node <path>`.
const [, , first = ''] = process.argv;
const isWorker = first.startsWith(directory + sep);
if (isWorker) process.argv.splice(1, 1);
createRequire(join(directory, 'start.cjs'))('./start.cjs')(isWorker ? first : join(directory, PROGRAM));

function inheritedDirectory() {
  const [hash, ...rest] = (process.env[UNPACKED] ?? '').split(':');
  const inherited = rest.join(':');
  return hash === manifest.hash && inherited !== '' && isTrusted(inherited) ? inherited : null;
}

/**
 * The directory of this build in the cache: `$CACHE_DIRECTORY` (a service of systemd), else
 * `$XDG_CACHE_HOME/hubgate`, else `~/.cache/hubgate`. Null if it cannot be used.
 */
function sharedDirectory() {
  try {
    const [service] = (process.env.CACHE_DIRECTORY ?? '').split(':');
    const home = process.env.XDG_CACHE_HOME || join(homedir(), '.cache');
    const cache = service || join(home, 'hubgate');
    fs.mkdirSync(cache, { recursive: true, mode: 0o700 });
    if (!isTrusted(cache)) return null;
    const wanted = join(cache, `program-${manifest.version}-${manifest.hash}`);
    if (!fs.existsSync(wanted)) {
      const unfinished = fs.mkdtempSync(`${wanted}.`);
      unpack(manifest.files, unfinished);
      rename(unfinished, wanted);
    }
    if (!isTrusted(wanted)) return null;
    // Something may have removed files that were not used for long.
    unpack(manifest.files.filter((file) => !isComplete(wanted, file)), wanted);
    return wanted;
  } catch {
    return null;
  }
}

/** Another process may have been quicker; then its files stay. */
function rename(unfinished, wanted) {
  try {
    fs.renameSync(unfinished, wanted);
  } catch (error) {
    fs.rmSync(unfinished, { recursive: true, force: true });
    if (!fs.existsSync(wanted)) throw error;
  }
}

function temporaryDirectory() {
  const made = fs.mkdtempSync(join(tmpdir(), 'hubgate-'));
  unpack(manifest.files, made);
  process.once('exit', () => fs.rmSync(made, { recursive: true, force: true }));
  return made;
}

function unpack(files, into) {
  for (const { path, executable } of files) {
    const target = join(into, path);
    fs.mkdirSync(dirname(target), { recursive: true, mode: 0o700 });
    const written = `${target}.${process.pid}`;
    fs.writeFileSync(written, Buffer.from(getAsset(path)), { mode: executable ? 0o700 : 0o600 });
    fs.renameSync(written, target);
  }
}

function isComplete(at, { path, size }) {
  return fs.statSync(join(at, path), { throwIfNoEntry: false })?.size === size;
}

function isTrusted(path) {
  const { uid, mode } = fs.lstatSync(path, { throwIfNoEntry: false }) ?? {};
  if (mode === undefined || (mode & 0o170000) !== 0o040000) return false;
  // Windows has neither; the home directory is protected there.
  if (process.getuid === undefined) return true;
  return (uid === process.getuid() || uid === 0) && (mode & 0o022) === 0;
}
