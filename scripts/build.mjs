// Compiles src/ to dist/ when a source is newer than the last build.
import { existsSync, readdirSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { bin, installMissing, root, run } from './install.mjs';

const stamp = join(root, 'dist', '.built');

export function build() {
  if (existsSync(stamp) && statSync(stamp).mtimeMs > newestSource()) return;
  rmSync(join(root, 'dist'), { recursive: true, force: true });
  run(bin('tsc'), ['-p', 'tsconfig.build.json']);
  writeFileSync(stamp, '');
}

function newestSource() {
  const files = readdirSync(join(root, 'src'), { recursive: true }).map((name) =>
    join(root, 'src', name),
  );
  files.push(join(root, 'package-lock.json'), join(root, 'tsconfig.build.json'));
  return Math.max(...files.map((file) => statSync(file).mtimeMs));
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? '').href) {
  installMissing();
  build();
}
