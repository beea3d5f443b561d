import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { cp, mkdir, mkdtemp, readFile, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, posix } from 'node:path';
import { before, describe, it, after } from 'node:test';
import { promisify } from 'node:util';
import { sourcesOf } from '../support/built-sources.ts';
import { root } from '../support/process.ts';
import { removeWith } from '../support/temporary-directory.ts';

const run = promisify(execFile);
/** Licences that ask for no more than their text, which `dist/LICENSES.txt` has. */
const LICENCES = [
  'MIT',
  'ISC',
  'Apache-2.0',
  'BSD-2-Clause',
  'BSD-3-Clause',
  '0BSD',
  '(BSD-3-Clause OR GPL-2.0)',
];

describe('the package (npm pack)', () => {
  let directory = '';
  let files: readonly string[] = [];
  before(async () => {
    directory = await mkdtemp(join(tmpdir(), 'hubgate-package-'));
    const { stdout } = await run('npm', ['pack', '--json', '--pack-destination', directory], {
      cwd: root,
    });
    // npm 10 lists what it packed, npm 11 names it.
    const packed = Object.values(JSON.parse(stdout) as Record<string, PackedPackage>)[0];
    files = packed?.files.map(({ path }) => path) ?? [];
    const modules = join(directory, 'node_modules');
    await mkdir(join(modules, 'hubgate'), { recursive: true });
    const tarball = join(directory, packed?.filename ?? '');
    await run('tar', ['-xzf', tarball, '-C', join(modules, 'hubgate'), '--strip-components=1']);
    await mkdir(join(modules, '@types'));
    for (const name of ['lmdb', '@types/node', 'undici-types'])
      await symlink(join(root, 'node_modules', name), join(modules, name));
  });
  after(() => rm(directory, { recursive: true, force: true }));

  it('contains the documents and the deployment files, but no build markers or source maps', () => {
    for (const name of [
      ...['README.md', 'LICENSE', 'CHANGELOG.md', 'Hubfile.example', 'docs/hubfile.md'],
      ...[
        'deploy/docker/Dockerfile',
        'deploy/systemd/hubgate.service',
        'ops/grafana-dashboard.json',
      ],
      ...[
        'dist/LICENSES.txt',
        'dist/cli/main.js',
        'dist/index.d.ts',
        'dist/client.min.js',
        'dist/debugger/debugger.js',
        'schema/config.schema.json',
      ],
    ]) {
      assert.ok(files.includes(name), name);
    }
    const strays = files.filter((name) => /\.map$|\.built$|^(?:src|test|scripts)\//.test(name));
    assert.deepEqual(strays, []);
  });

  it('contains every file and folder that its documents link to', async () => {
    const dead: string[] = [];
    for (const page of files.filter((name) => name.endsWith('.md'))) {
      const text = (await readFile(join(root, page), 'utf8')).replaceAll(/^```.*?^```/gms, '');
      for (const [, target = ''] of text.matchAll(/\]\(([^)\s]+)\)/g)) {
        const [path = ''] = target.split('#');
        if (path === '' || /^https?:/.test(target)) continue;
        const linked = posix.join(posix.dirname(page), path);
        const isPacked = files.some((name) => name === linked || name.startsWith(`${linked}/`));
        if (!isPacked) dead.push(`${page}: ${target}`);
      }
    }
    assert.deepEqual(dead, []);
  });

  it('contains nothing of undici, which the benchmarks use beside the own HTTP client of the proxy', async () => {
    const modules: string[] = [];
    for (const name of files.filter((one) => /^dist\/.*\.js$/.test(one))) {
      for (const source of await sourcesOf(join(root, name))) {
        if (source.includes('node_modules/undici/')) modules.push(source);
      }
    }
    assert.deepEqual(modules, []);
  });

  it('has an error that nothing catches on a line that fits on a screen', async () => {
    const program = `import { createGateway, parseHubfile } from 'hubgate';
      createGateway(parseHubfile('http://localhost:1 {\\n\\tbind 192.0.2.1\\n\\trespond "hello"\\n}\\n')).start();`;
    const file = join(directory, 'uncaught.mjs');
    await writeFile(file, program);
    const failed = run(process.execPath, [file], { cwd: directory });
    await assert.rejects(failed, ({ stderr }: { readonly stderr: string }) => {
      assert.match(stderr, /Cannot listen on/);
      const longest = Math.max(...stderr.split('\n').map((line) => line.length));
      assert.ok(longest < 1000, `a line of ${longest} characters`);
      return true;
    });
  });

  it('has entry points that Node and the compiler all find, for modules and for CommonJS', async () => {
    const doors = `
      import { createGateway, parseHubfile, type RequestMatcher, type RouteConfig, signToken } from 'hubgate';
      import { createHub } from 'hubgate/hub';
      import { subscribe } from 'hubgate/client';
      export const doors: readonly unknown[] = [createGateway, parseHubfile, signToken, createHub, subscribe];
      export const kinds: readonly [RouteConfig['handler']['kind'], RequestMatcher[number]['kind']] = ['respond', 'path'];
      // @ts-expect-error There is no such handler.
      export const unknown: RouteConfig['handler']['kind'] = 'replies';
      if (doors.some((door) => typeof door !== 'function')) throw new Error('A door is shut');
    `;
    for (const name of ['doors.mts', 'doors.cts']) await writeFile(join(directory, name), doors);
    for (const [module, resolution] of [
      ['nodenext', 'nodenext'],
      ['preserve', 'bundler'],
    ] as const) {
      const flags = ['--strict', '--types', 'node', '--target', 'es2023', '--outDir', 'out'];
      const how = ['--module', module, '--moduleResolution', resolution];
      const tsc = join(root, 'node_modules/.bin/tsc');
      await run(tsc, [...flags, ...how, 'doors.mts', 'doors.cts'], { cwd: directory });
      await run(process.execPath, [join('out', 'doors.mjs')], { cwd: directory });
    }
    const minified = await import(join(directory, 'node_modules/hubgate/dist/client.min.js'));
    assert.equal(typeof (minified as { subscribe?: unknown }).subscribe, 'function');
  });

  it('contains the program although nobody built the checkout before', async (test) => {
    const checkout = await mkdtemp(join(tmpdir(), 'hubgate-checkout-'));
    removeWith(test, checkout);
    const { stdout: tracked } = await run('git', ['ls-files'], { cwd: root });
    const parts = new Set(
      tracked
        .trim()
        .split('\n')
        .map((name) => name.split('/')[0] ?? ''),
    );
    for (const part of parts) {
      if (['test', 'bench'].includes(part)) continue;
      await cp(join(root, part), join(checkout, part), { recursive: true });
    }
    await symlink(join(root, 'node_modules'), join(checkout, 'node_modules'));
    await run('npm', ['pack', '--silent'], { cwd: checkout });
    const { version } = JSON.parse(await readFile(join(root, 'package.json'), 'utf8'));
    const { stdout } = await run('tar', ['-tzf', `hubgate-${version}.tgz`], { cwd: checkout });
    assert.match(stdout, /^package\/dist\/cli\/main\.js$/m);
  });

  it('lists the licences of the code that it includes, all of which permit this', async () => {
    const text = await readFile(join(root, 'dist/LICENSES.txt'), 'utf8');
    const found = [...text.matchAll(/^(\S+ \d\S*) \((.+)\)$/gm)];
    assert.ok(found.length > 10);
    for (const [, name, licence = ''] of found) assert.ok(LICENCES.includes(licence), name);
  });

  it('lets npm generate its bill of materials, in both formats', async () => {
    for (const [format, listed] of [
      ['cyclonedx', 'components'],
      ['spdx', 'packages'],
    ] as const) {
      const flags = ['sbom', '--omit=dev', '--package-lock-only', `--sbom-format=${format}`];
      const { stdout } = await run('npm', flags, { cwd: root });
      const bill = JSON.parse(stdout) as Record<string, readonly { readonly name: string }[]>;
      assert.ok(
        bill[listed]?.some(({ name }) => name === 'lmdb'),
        format,
      );
    }
  });

  it('has a lock file that npm ci accepts on every platform', async (test) => {
    const copy = await mkdtemp(join(tmpdir(), 'hubgate-lock-'));
    removeWith(test, copy);
    for (const name of ['package.json', 'package-lock.json', '.npmrc'])
      await writeFile(join(copy, name), await readFile(join(root, name)));
    for (const [os, cpu] of [
      ['darwin', 'arm64'],
      ['win32', 'x64'],
      ['linux', 'arm64'],
    ] as const) {
      const flags = [`--os=${os}`, `--cpu=${cpu}`, '--ignore-scripts', '--dry-run', '--offline'];
      await run('npm', ['ci', ...flags], { cwd: copy });
    }
  });
});

interface PackedPackage {
  readonly filename: string;
  readonly files: readonly { readonly path: string }[];
}
