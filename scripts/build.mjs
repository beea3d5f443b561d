// Makes dist/ of src/ when a source is newer than the last build: types by the compiler, programs by
// the bundler, libraries included. A start that looked for some 500 files took twice as long. What
// only some commands need is in chunks of its own; what is native stays outside.
import { existsSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { bin, installMissing, root, run } from './install.mjs';
import { LIBRARIES, libraryFile, loadedWhenUsed, requiredHttp } from './loaded-when-used.mjs';

const stamp = join(root, 'dist', '.built');

/** Doors of the package, and files that Node picks by a condition or runs as a process. */
const ENTRIES = [
  'index',
  'hub',
  'cli/main',
  'cli/workers/worker-main',
  'directives/basic-auth/password-thread',
  'auth/legacy-claim',
  'auth/no-legacy-claim',
];
/** Native libraries, and what Node picks by a condition when it runs. */
const EXTERNAL = ['lmdb', 'pg-native'];
/**
 * The package's own imports that stay imports. They have another name in the bundle, since the condition
 * `hubgate-source`, under which the tests run, would lead the name in the source to files that are not packed.
 */
const BUILT_IMPORTS = {
  name: 'built-imports',
  setup: ({ onResolve }) =>
    onResolve({ filter: /^#legacy-claim$/ }, () => ({
      path: '#built/legacy-claim',
      external: true,
    })),
};
/** CommonJS libraries ask for Node's own modules by it. */
const REQUIRE =
  "import { createRequire as __createRequire } from 'node:module'; const require = __createRequire(import.meta.url);";
/** For browsers: each one file that imports nothing. */
const BROWSER_ENTRY = 'client/subscribe';
/** What the hub serves itself: as small as it can be. */
const LIVE_ENTRY = 'client/live/live';
/** The page at HUB/debug/, with what it shares with the hub; that has no `Buffer` in a browser. */
const DEBUGGER_ENTRY = 'debugger/debugger';
/** Members that no browser knows: they need no name. */
const INTERNAL_NAMES =
  /^(?:outdated|renew|retry|update|address|topics|cursor|unlessAborted|framework|followed|likeness|literals|parameters|named|names|marks?|one|two|member|moved|differ|sameIn|follow|closeSoon|hasWithheld|isAtPath|showResponse|reportWithheld|applyPending|turnTo)$/;

export async function build() {
  if (existsSync(stamp) && statSync(stamp).mtimeMs > newestSource()) return;
  rmSync(join(root, 'dist'), { recursive: true, force: true });
  run(bin('tsc'), ['-p', 'tsconfig.build.json']);
  await bundle();
  writeFileSync(stamp, '');
}

async function bundle() {
  const esbuild = await import('esbuild');
  const shared = {
    absWorkingDir: root,
    outbase: 'src',
    outdir: 'dist',
    bundle: true,
    format: 'esm',
    sourcemap: 'linked',
    logLevel: 'warning',
  };
  const program = {
    platform: 'node',
    target: 'node20.19',
    // The text of a program stays in memory; names stay for who reads a stack.
    minifyWhitespace: true,
    minifySyntax: true,
    // Node prints the whole line of an error that nothing catches.
    lineLimit: 160,
    legalComments: 'none',
    metafile: true,
  };
  const { metafile } = await esbuild.build({
    ...shared,
    ...program,
    entryPoints: ENTRIES.map((name) => `src/${name}.ts`),
    external: EXTERNAL,
    plugins: [BUILT_IMPORTS, loadedWhenUsed, requiredHttp],
    alias: {
      assert: './scripts/plain-assert.cjs',
      'node:assert': './scripts/plain-assert.cjs',
    },
    splitting: true,
    chunkNames: 'chunks/[name]-[hash]',
    banner: { js: REQUIRE },
  });
  const libraries = await esbuild.build({
    ...shared,
    ...program,
    entryPoints: LIBRARIES.map((name) => ({ in: name, out: libraryFile(name) })),
    outdir: 'dist/libraries',
    outExtension: { '.js': '.cjs' },
    // Only `require` can load a file in the middle of a function.
    format: 'cjs',
  });
  const browser = { ...shared, platform: 'browser', target: 'es2022' };
  await esbuild.build({ ...browser, entryPoints: [`src/${BROWSER_ENTRY}.ts`] });
  // The same in one small file, for sites without a bundler.
  await esbuild.build({
    ...browser,
    entryPoints: [{ in: `src/${BROWSER_ENTRY}.ts`, out: 'client.min' }],
    minify: true,
    sourcemap: false,
  });
  const live = await esbuild.build({
    ...browser,
    entryPoints: [`src/${LIVE_ENTRY}.ts`],
    // It runs where it stands, before the body is there: a module would wait for its end.
    format: 'iife',
    minify: true,
    sourcemap: false,
    legalComments: 'none',
    mangleProps: INTERNAL_NAMES,
    // Texts that are joined with "+" compress better, and nothing in it needs strict mode.
    supported: { 'template-literal': false },
    tsconfigRaw: '{}',
    metafile: true,
  });
  const debug = await esbuild.build({
    ...browser,
    entryPoints: [`src/${DEBUGGER_ENTRY}.ts`],
    inject: ['scripts/browser-buffer.mjs'],
    minify: true,
    sourcemap: false,
    legalComments: 'none',
    metafile: true,
  });
  await esbuild.build(editorBundle('editors/vscode/dist/extension.js'));
  const inputs = [metafile, libraries.metafile, live.metafile, debug.metafile].flatMap(
    ({ inputs }) => Object.keys(inputs),
  );
  writeFileSync(join(root, 'dist', 'LICENSES.txt'), licencesOf(inputs));
}

/** The extension for VS Code, which loads CommonJS; it has no library in it. */
export function editorBundle(outfile) {
  return {
    absWorkingDir: root,
    entryPoints: ['editors/vscode/src/extension.ts'],
    outfile,
    bundle: true,
    platform: 'node',
    format: 'cjs',
    // That of the oldest editor it is for.
    target: 'node16',
    external: ['vscode'],
    logLevel: 'warning',
  };
}

/** The licences of the libraries whose files went into the bundle: they ask for it. */
function licencesOf(inputs) {
  const directories = new Set(
    inputs.flatMap((file) => /^(.*node_modules\/(?:@[^/]+\/)?[^/]+)\//.exec(file)?.[1] ?? []),
  );
  const texts = [...directories]
    .sort((a, b) => (a < b ? -1 : 1))
    .map((directory) => {
      const about = JSON.parse(readFileSync(join(root, directory, 'package.json'), 'utf8'));
      const file = readdirSync(join(root, directory)).find((one) => /^licen[cs]e/i.test(one));
      const text =
        file === undefined ? '' : readFileSync(join(root, directory, file), 'utf8').trim();
      return `${about.name} ${about.version} (${about.license})\n\n${text}\n`;
    });
  return texts.join(`\n${'-'.repeat(80)}\n\n`);
}

function newestSource() {
  const files = ['src', 'editors/vscode/src'].flatMap((folder) =>
    readdirSync(join(root, folder), { recursive: true }).map((name) => join(root, folder, name)),
  );
  files.push(
    ...[
      'package-lock.json',
      'tsconfig.build.json',
      'scripts/build.mjs',
      'scripts/browser-buffer.mjs',
      'scripts/plain-assert.cjs',
      'scripts/loaded-when-used.mjs',
      'scripts/when-used.mjs',
      'editors/vscode/tables.json',
    ].map((name) => join(root, name)),
  );
  return Math.max(...files.map((file) => statSync(file).mtimeMs));
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? '').href) {
  installMissing();
  await build();
}
