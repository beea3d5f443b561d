// Builds what is missing and measures it beside its peers: docs/performance.md.
import { build } from './build.mjs';
import { installMissing, run, TYPESCRIPT } from './install.mjs';

installMissing();
await build();
run(process.execPath, [
  '--conditions=hubgate-source',
  ...TYPESCRIPT,
  'bench/main.ts',
  ...process.argv.slice(2),
]);
