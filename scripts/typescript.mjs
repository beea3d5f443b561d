// Lets Node run the TypeScript of this repository: `node --import ./scripts/typescript.mjs FILE`. esbuild removes the
// types of a file once; all later processes read the result from a directory of node_modules, whose files are named
// after their content. Each of some six hundred test processes loads up to five hundred files, so this takes two
// thirds of the time that a general loader takes, which resolves and checks much more.
import { createHash, randomUUID } from 'node:crypto';
import { mkdirSync, readFileSync, renameSync, writeFileSync } from 'node:fs';
import module, { createRequire } from 'node:module';
import { fileURLToPath } from 'node:url';

const HOOKS = '?hooks';
const CACHE = new URL('../node_modules/.cache/hubgate-typescript/', import.meta.url);
const OPTIONS = {
  loader: 'ts',
  format: 'esm',
  target: 'node20.19',
  sourcemap: 'inline',
  sourcesContent: false,
  tsconfigRaw: { compilerOptions: { verbatimModuleSyntax: true } },
};

if (import.meta.url.endsWith(HOOKS)) {
  mkdirSync(CACHE, { recursive: true });
} else {
  process.setSourceMapsEnabled(true);
  if (module.registerHooks === undefined) {
    // Before Node 22.15, hooks run in a thread of their own, which loads this file by a second name.
    module.register(import.meta.url + HOOKS);
  } else {
    mkdirSync(CACHE, { recursive: true });
    module.registerHooks({ load });
  }
}

/** A hook of Node: module.registerHooks. */
export function load(url, context, nextLoad) {
  const { protocol, pathname } = new URL(url);
  if (protocol !== 'file:' || !pathname.endsWith('.ts')) return nextLoad(url, context);
  return { format: 'module', source: withoutTypes(fileURLToPath(url)), shortCircuit: true };
}

function withoutTypes(file) {
  const text = readFileSync(file, 'utf8');
  const key = [JSON.stringify(OPTIONS), file, text].join('\0');
  const cached = new URL(createHash('sha256').update(key).digest('hex'), CACHE);
  try {
    return readFileSync(cached, 'utf8');
  } catch {
    const { transformSync } = createRequire(import.meta.url)('esbuild');
    const { code } = transformSync(text, { ...OPTIONS, sourcefile: file });
    // Renamed, so that no other process reads a part of it.
    const unfinished = new URL(`${cached.href}.${randomUUID()}`);
    writeFileSync(unfinished, code);
    renameSync(unfinished, cached);
    return code;
  }
}
