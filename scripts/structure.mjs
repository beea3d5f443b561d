// Prints what the source is like as a place to find one's way in: files, lines, imports, and what points
// the wrong way. Run it before and after a change of structure: node scripts/structure.mjs [REVISION]
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { posix } from 'node:path';
import { parseSync } from 'oxc-parser';
import { root } from './install.mjs';

const [revision] = process.argv.slice(2);
const { directory, remove } = revision === undefined ? workTree() : extracted(revision);
const files = new Map(
  readdirSync(directory, { recursive: true, encoding: 'utf8' })
    .filter((name) => name.endsWith('.ts'))
    .map((name) => name.replaceAll('\\', '/'))
    .map((name) => [name, readFileSync(join(directory, name), 'utf8')]),
);
remove();

const imports = [...files].flatMap(([from, text]) =>
  targetsOf(from, text).flatMap((to) => (files.has(to) ? [{ from, to }] : [])),
);
const lengths = [...files.values()]
  .map((text) => text.split('\n').length - 1)
  .sort((a, b) => a - b);
const fileCircles = circles([...files.keys()], imports);
const folderImports = imports
  .map(({ from, to }) => ({ from: folderOf(from), to: folderOf(to) }))
  .filter(({ from, to }) => from !== to);
const folderCircles = circles([...new Set([...files.keys()].map(folderOf))], folderImports);

console.table({
  files: files.size,
  lines: lengths.reduce((sum, each) => sum + each, 0),
  'median lines of a file': lengths[Math.floor(lengths.length / 2)],
  'longest file': lengths.at(-1),
  'files of 50 lines or fewer': lengths.filter((each) => each <= 50).length,
  'files below 15 lines': lengths.filter((each) => each < 15).length,
  imports: imports.length,
  'circles of files': fileCircles.length,
  'circles of folders': folderCircles.length,
  'files in circles': fileCircles.flat().length,
});
/** What a reader may come through who follows one of these from its entry. */
const TRIPS = {
  publish: 'hub-http/publish.ts',
  subscribe: 'hub-http/subscribe.ts',
  'a proxied request': 'proxy/reverse-proxy.ts',
  'a reload': 'runtime/gateway.ts',
};
console.table(
  Object.fromEntries(
    Object.entries(TRIPS).map(([name, entry]) => [name, { 'files it imports': reached(entry) }]),
  ),
);
for (const circle of folderCircles) console.log(`folders in a circle: ${circle.join(', ')}`);
for (const [name, text] of files) {
  if (text.split('\n').length - 1 < 15) console.log(`below 15 lines: ${name}`);
}

function workTree() {
  return { directory: join(root, 'src'), remove: () => {} };
}

/** The source of another revision, in a directory that is removed once it is read. */
function extracted(name) {
  const parent = mkdtempSync(join(tmpdir(), 'hubgate-structure-'));
  const archive = execFileSync('git', ['archive', name, 'src'], {
    cwd: root,
    maxBuffer: 256 * 1024 * 1024,
  });
  execFileSync('tar', ['-x', '-C', parent], { input: archive });
  return {
    directory: join(parent, 'src'),
    remove: () => rmSync(parent, { recursive: true, force: true }),
  };
}

function targetsOf(from, text) {
  const { module } = parseSync(from, text);
  const named = [
    ...module.staticImports.map(({ moduleRequest }) => moduleRequest.value),
    ...module.staticExports.flatMap(({ entries }) =>
      entries.flatMap(({ moduleRequest }) => (moduleRequest ? [moduleRequest.value] : [])),
    ),
    ...module.dynamicImports.map(({ moduleRequest: { start, end } }) =>
      text.slice(start + 1, end - 1),
    ),
  ];
  const relative = named.filter((to) => to.startsWith('.'));
  return [...new Set(relative.map((to) => posix.join(dirname(from), to)))];
}

/** How many files an entry imports, and these in turn. */
function reached(entry) {
  const seen = new Set([entry]);
  for (const from of seen) {
    for (const each of imports) if (each.from === from) seen.add(each.to);
  }
  return seen.size;
}

function folderOf(file) {
  return file.includes('/') ? file.slice(0, file.indexOf('/')) : 'doors';
}

/** Groups of two or more that reach each other (Tarjan's strongly connected components). */
function circles(names, edges) {
  const next = new Map(names.map((name) => [name, []]));
  for (const { from, to } of edges) next.get(from)?.push(to);
  const found = [];
  const index = new Map();
  const low = new Map();
  const stack = [];
  const visit = (name) => {
    index.set(name, index.size);
    low.set(name, index.get(name));
    stack.push(name);
    for (const to of next.get(name) ?? []) {
      if (!index.has(to)) {
        visit(to);
        low.set(name, Math.min(low.get(name), low.get(to)));
      } else if (stack.includes(to)) {
        low.set(name, Math.min(low.get(name), index.get(to)));
      }
    }
    if (low.get(name) !== index.get(name)) return;
    const group = stack.splice(stack.indexOf(name));
    if (group.length > 1) found.push(group);
  };
  for (const name of names) if (!index.has(name)) visit(name);
  return found;
}
