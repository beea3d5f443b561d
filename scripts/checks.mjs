// What must hold before a change lands, besides the tests: format, lint, types, layers, dead code, generated pages.
// `npm run check` runs it alone, in half a minute; `npm test` begins with it.
import { fileURLToPath } from 'node:url';
import { bin, installMissing, run, TYPESCRIPT } from './install.mjs';

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  installMissing();
  runChecks();
}

/** Ends the process at the first check that fails. */
export function runChecks() {
  step('format', bin('biome'), ['format', '.']);
  step('lint', bin('oxlint'), [
    '--type-aware',
    '--deny-warnings',
    'src',
    'test',
    'scripts',
    'examples',
    'bench',
  ]);
  step('types', bin('tsc'), ['-p', 'tsconfig.json']);
  step('types of browsers', bin('tsc'), ['-p', 'src/client/live/tsconfig.json']);
  step('types of the debugger', bin('tsc'), ['-p', 'src/debugger/tsconfig.json']);
  step('layers', process.execPath, ['scripts/check-layers.mjs']);
  step('dead code', bin('knip'), ['--no-progress']);
  step('error codes', process.execPath, ['scripts/error-codes.mjs', '--check']);
  step('lock file', process.execPath, ['scripts/complete-lock.mjs', '--check']);
  step('protocol map', process.execPath, ['scripts/protocol-map.mjs', '--check']);
  step('directive tables', process.execPath, [
    '--conditions=hubgate-source',
    ...TYPESCRIPT,
    'scripts/directive-tables.mjs',
    '--check',
  ]);
}

function step(name, program, args) {
  console.error(`— ${name}`);
  run(program, args);
}
