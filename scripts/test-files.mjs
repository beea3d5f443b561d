// Finds the files of tests below a path, and decides which of them share a process.
import { mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { root } from './install.mjs';

/** Files in one process, by their folder. More would save little, and a process that waits leaves a processor idle. */
const FILES_PER_PROCESS = [
  [join('test', 'unit'), 8],
  [join('test', 'e2e'), 4],
];
/**
 * What a test uses that measures its whole process, or changes it, or runs before the first file. Such a file has a
 * process of its own.
 */
const OF_PROCESS =
  /setFlagsFromString|expose-gc|heapUsed|memoryUsage|\/proc\/self|cpuMs|cpuUsage|mock\.|process\.(on|once|env)\b|^before\(/m;

/** The paths, from the root of the repository, of the files of tests below a path, or of the file that it names. */
export function testFiles(path) {
  if (!statSync(join(root, path)).isDirectory()) return [path];
  return readdirSync(join(root, path), { recursive: true })
    .filter((name) => name.endsWith('.test.ts'))
    .map((name) => join(path, name));
}

/**
 * Replaces files of tests by files that import several of them. To start a process and load the modules takes about a
 * second of a processor, longer than most unit tests.
 *
 * @param directory where to write these files
 */
export function sharingProcesses(files, directory) {
  const groups = new Map();
  const alone = [];
  for (const file of files) {
    const folder = dirname(file);
    if (limitOf(folder) === 1 || OF_PROCESS.test(text(file))) alone.push(file);
    else groups.set(folder, [...(groups.get(folder) ?? []), file]);
  }
  mkdirSync(directory, { recursive: true });
  const shared = [...groups].flatMap(([folder, members]) => {
    const count = Math.ceil(members.length / limitOf(folder));
    return Array.from({ length: count }, (_, index) => {
      const imports = members
        .filter((_member, place) => place % count === index)
        .map((member) => `import '${pathToFileURL(join(root, member)).href}';\n`);
      const name = `${folder.replaceAll(/[\\/]/g, '-')}-${index + 1}.test.ts`;
      writeFileSync(join(directory, name), imports.join(''));
      return join(directory, name);
    });
  });
  return [...alone, ...shared];
}

function limitOf(folder) {
  return FILES_PER_PROCESS.find(([above]) => folder.startsWith(above))?.[1] ?? 1;
}

function text(file) {
  return readFileSync(join(root, file), 'utf8');
}
