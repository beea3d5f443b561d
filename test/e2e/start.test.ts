import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { readdir, readFile, writeFile } from 'node:fs/promises';
import { join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, it, type TestContext } from 'node:test';
import { promisify } from 'node:util';
import { sourcesOf } from '../support/built-sources.ts';
import { freePort } from '../support/free-port.ts';
import { cli, packageDirectory, root } from '../support/installed-package.ts';
import { startProcess } from '../support/process.ts';
import { temporaryDirectory } from '../support/temporary-directory.ts';

/** Libraries that only a running gateway needs. */
const OF_THE_GATEWAY = ['http-proxy-3', 'lmdb', 'acme-client', '@peculiar/x509', 'pino'];

/** A site with a history in memory. */
const hubOn = (port: number): string => `http://localhost:${port} {
	hub {
		issuer https://issuer.example {
			publisher {
				jwt a-secret-of-the-test-that-is-long-enough
			}
		}
		anonymous
		transport memory
	}
	discovery
	reverse_proxy 127.0.0.1:9
}
`;

describe('the files that a command loads', () => {
  it('contain a dozen modules to print the version', async (t) => {
    const files = await filesLoadedBy(t, ['version']);
    // How many chunks the bundler makes of the same modules varies, but not what they contain.
    const modules = (await Promise.all(files.map(sourcesOf))).flat();
    const own = modules.filter((module) => !module.includes('node_modules/'));
    assert.ok(own.length <= 12, `loads ${own.length} modules:\n${own.join('\n')}`);
    assert.deepEqual(await librariesIn(files), ['commander']);
  });

  for (const [name, args] of [
    ['validate', ['validate', '--config', 'Hubfile']],
    ['fmt', ['fmt', 'Hubfile']],
    ['adapt', ['adapt', '--config', 'Hubfile']],
    ['token', ['token', '--dev']],
  ] as const) {
    it(`include nothing of the running gateway for ${name}`, async (t) => {
      const libraries = await librariesIn(await filesLoadedBy(t, args));
      assert.ok(libraries.includes('commander'));
      const needless = libraries.filter((library) => OF_THE_GATEWAY.includes(library));
      assert.deepEqual(needless, []);
    });
  }

  it('contain only Latin-1, so that no program takes two bytes per character in memory', async () => {
    const wide: string[] = [];
    for (const name of await readdir(join(packageDirectory, 'dist'), { recursive: true })) {
      if (!/\.c?js$/.test(name)) continue;
      const text = await readFile(join(packageDirectory, 'dist', name), 'utf8');
      if (/[^\0-\u00ff]/.test(text)) wide.push(name);
    }
    assert.deepEqual(wide, []);
  });

  it('include the gateway only once there is a configuration to run', async (t) => {
    const files = await filesLoadedBy(t, ['run', '--config', 'missing']);
    assert.ok(!(await librariesIn(files)).includes('http-proxy-3'), 'loaded without one');
  });
});

describe('a gateway with a hub', () => {
  it('does not load what it does not need, which would stay in memory', async (t) => {
    const directory = await temporaryDirectory(t);
    const [coverage, loaded] = [join(directory, 'coverage'), join(directory, 'loaded')];
    const hubfile = join(directory, 'Hubfile');
    await writeFile(
      hubfile,
      `{\n\tadmin off\n\tstorage ${directory}\n}\n${hubOn(await freePort())}`,
    );
    const note = `process.on('exit', () => require('node:fs').writeFileSync(
      ${JSON.stringify(loaded)}, JSON.stringify([process.moduleLoadList])));`;
    const preloaded = join(directory, 'note.cjs');
    await writeFile(preloaded, note);
    const gateway = startProcess(
      t,
      ['--require', preloaded, cli, 'run', '--no-watch', '--config', hubfile],
      { NODE_V8_COVERAGE: coverage },
    );
    await gateway.says('Listening on');
    assert.equal(await gateway.end('SIGTERM'), 0);
    const libraries = await librariesIn(await filesIn(coverage));
    assert.ok(libraries.includes('pino'));
    const needless = ['re2js', 'tldts', 'yaml', '@marcbachmann/cel-js', 'lmdb', '@redis/client'];
    assert.deepEqual(
      libraries.filter((library) => needless.includes(library)),
      [],
    );
    const [ofNode]: [string[]] = JSON.parse(await readFile(loaded, 'utf8'));
    assert.ok(ofNode.includes('NativeModule http'));
    assert.ok(!ofNode.includes('NativeModule internal/deps/undici/undici'), 'the client of fetch');
  });
});

/** The program's own files that a run of it has compiled, as V8 counts them. */
async function filesLoadedBy(t: TestContext, args: readonly string[]): Promise<string[]> {
  const directory = await temporaryDirectory(t);
  const coverage = join(directory, 'coverage');
  await writeFile(join(directory, 'Hubfile'), ':8080 {\n\trespond "hello"\n}\n');
  const env = { ...process.env, NODE_V8_COVERAGE: coverage };
  // What it says, and whether it fails, is not the question here.
  await promisify(execFile)(process.execPath, [cli, ...args], { cwd: directory, env }).catch(
    () => {},
  );
  return filesIn(coverage);
}

/** The program's own files in the first report of coverage. */
async function filesIn(coverage: string): Promise<string[]> {
  const [report = ''] = await readdir(coverage);
  const { result }: { result: { url: string }[] } = JSON.parse(
    await readFile(join(coverage, report), 'utf8'),
  );
  return (
    result
      .map(({ url }) => url)
      .filter((url) => url.startsWith('file:'))
      .map((url) => fileURLToPath(url))
      .filter((file) => file.startsWith(packageDirectory))
      // The maps are not in the package.
      .map((file) => join(root, relative(packageDirectory, file)))
  );
}

/** The libraries whose code stands in these files, as their maps tell. */
async function librariesIn(files: readonly string[]): Promise<string[]> {
  const found = new Set<string>();
  for (const file of files) {
    for (const source of [file, ...(await sourcesOf(file))]) {
      const [, name] = /node_modules\/((?:@[^/]+\/)?[^/]+)\//.exec(source) ?? [];
      if (name !== undefined) found.add(name);
    }
  }
  return [...found].sort();
}
