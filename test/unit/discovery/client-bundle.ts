import { join } from 'node:path';
import { build } from 'esbuild';
import { root } from '../../support/process.ts';

/** `hubgate/client` as a site would ship it: one minified module. */
export async function clientBundle(): Promise<string> {
  const { outputFiles } = await build({
    entryPoints: [join(root, 'src/client/subscribe.ts')],
    bundle: true,
    minify: true,
    format: 'esm',
    target: 'es2022',
    write: false,
  });
  const [file] = outputFiles;
  if (file === undefined) throw new Error('nothing was built');
  return file.text;
}
