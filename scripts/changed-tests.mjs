// The tests that a change concerns: those whose imports, or theirs in turn, reach a file that git says
// has changed since the branch left main, or is not committed.
import { spawnSync } from 'node:child_process';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { dirname, join, relative } from 'node:path';
import { root } from './install.mjs';

const IMPORT = /(?:from\s*|import\s*\(?\s*|new URL\(\s*|import\.meta\.resolve\(\s*)'([.#][^']+)'/g;
/** What is built of more, or of another file, than its name says. */
const BUILT_OF = {
  './dist/client.min.js': ['src/client/subscribe.ts'],
  './dist/debugger/debugger.js': ['src/debugger/debugger.ts', 'scripts/browser-buffer.mjs'],
};

/** Paths from the root of the repository, of files named `*.test.ts`. */
export function changedTests() {
  return testsConcernedBy(changedFiles());
}

export function testsConcernedBy(files) {
  const changed = new Set(files);
  const reaches = new Map();
  return readdirSync(join(root, 'test'), { recursive: true })
    .filter((name) => name.endsWith('.test.ts'))
    .map((name) => join('test', name))
    .filter((test) => isConcerned(test, changed, reaches));
}

function changedFiles() {
  const base = git('merge-base', 'HEAD', 'main')[0] ?? 'HEAD';
  const untracked = git('ls-files', '--others', '--exclude-standard');
  return [...git('diff', '--name-only', base), ...untracked];
}

function git(...args) {
  const { status, stdout } = spawnSync('git', args, { cwd: root, encoding: 'utf8' });
  return status === 0 ? stdout.split('\n').filter((line) => line !== '') : [];
}

/** Whether the file, or what it imports, has changed; a test beside fixtures counts those of its folder. */
function isConcerned(test, changed, reaches) {
  const folder = `${dirname(test)}/`;
  const isFixture = (file) => file.startsWith(folder) && !file.endsWith('.ts');
  if ([...changed].some(isFixture)) return true;
  const waiting = [test];
  const seen = new Set(waiting);
  for (const file of waiting) {
    if (changed.has(file)) return true;
    for (const next of importsOf(file, reaches)) {
      if (seen.has(next)) continue;
      seen.add(next);
      waiting.push(next);
    }
  }
  return false;
}

function importsOf(file, reaches) {
  if (!reaches.has(file)) {
    const path = join(root, file);
    const text =
      /\.(?:ts|mjs|js)$/.test(file) && existsSync(path) ? readFileSync(path, 'utf8') : '';
    const found = [...text.matchAll(IMPORT)].flatMap(([, to]) =>
      to.startsWith('#') ? sourcesOf(to) : [relative(root, join(dirname(path), to))],
    );
    // Tests that start the built program depend on all that is built into it.
    if (file === 'test/support/process.ts') found.push('src/cli/main.ts', 'src/cli/commands.ts');
    reaches.set(file, found);
  }
  return reaches.get(file);
}

/** The sources of what package.json gives a name with `#`, under every condition. */
function sourcesOf(name) {
  const { imports } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'));
  return leavesOf(imports[name] ?? {}).flatMap(
    (file) =>
      BUILT_OF[file] ?? [file.replace(/^\.\/dist\/(.*)\.js$/, './src/$1.ts').replace('./', '')],
  );
}

function leavesOf(target) {
  return typeof target === 'string' ? [target] : Object.values(target).flatMap(leavesOf);
}
