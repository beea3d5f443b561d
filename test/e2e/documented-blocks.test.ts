import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { readdirSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { describe, it, type TestContext } from 'node:test';
import { promisify } from 'node:util';
import { type DocumentedBlock, documentedBlocks, PAGES } from '../support/documented-blocks.ts';
import { freePort } from '../support/free-port.ts';
import { startPostgres } from '../support/postgres-server.ts';
import { cli, root, startProcess } from '../support/process.ts';
import { temporaryDirectory } from '../support/temporary-directory.ts';

const KEY = 'a-publisher-key-of-the-test-0123456789abcdef';
const SHELLS = ['sh', 'bash', 'console', 'shell', 'powershell'];

type Carried =
  /** Carried out by another test, which reads the page. */
  | { readonly by: string }
  /** Only parsed by `bash -n`, and why. */
  | { readonly parsed: string }
  | { readonly run: (test: TestContext, block: DocumentedBlock) => Promise<void> };

/** Every block of commands of the documents, by its page and the beginning of its first line. */
const BLOCKS: Readonly<Record<string, Readonly<Record<string, Carried>>>> = {
  'README.md': {
    'npm start': { by: 'test/e2e/first-hour.test.ts' },
    'curl --cacert': { by: 'test/e2e/first-hour.test.ts' },
    'curl -N': { by: 'test/e2e/first-hour.test.ts' },
    'curl -sI': { by: 'test/e2e/first-hour.test.ts' },
    'npm test': { parsed: 'is what runs this' },
  },
  'docs/cache.md': {
    'hubgate cache purge': { parsed: 'cache-operate.test.ts runs them at a gateway of its own' },
  },
  'docs/contributing.md': { 'npm test': { parsed: 'is what runs this' } },
  'docs/database.md': {
    'hubgate history init': { run: setUpDatabase },
    'hubgate outbox sql | psql': { by: 'test/apps/django-postgres.test.ts' },
    'hubgate run': { by: 'test/apps/django-postgres.test.ts' },
    'psql "$DATABASE_URL"': { by: 'test/apps/django-postgres.test.ts' },
    'hubgate outbox sql --writer': { parsed: 'test/unit/outbox carries out what it prints' },
  },
  'docs/development.md': { NODE_EXTRA_CA_CERTS: { run: publishFromAnApp } },
  'docs/discovery.md': {
    'npm install': { parsed: 'needs a registry; discovery-stories.test.ts runs the examples' },
  },
  'docs/from-mercure.md': {
    'hubgate validate': { by: 'test/e2e/from-mercure.test.ts' },
    'TOKEN=$(printf': { by: 'test/e2e/from-mercure.test.ts' },
    'curl -sSN': { by: 'test/e2e/from-mercure.test.ts' },
  },
  'docs/hubfile.md': {
    '#!/bin/sh\n# /usr/local/bin/hubgate-acme-sh': { parsed: 'no registry has acme.sh' },
  },
  'docs/install.md': {
    'npm run build:executable\n': { parsed: 'test/executable runs what the command makes' },
    'npm run build:executable -- --deb': { parsed: 'test/executable installs the package' },
    'hubgate reload --dry-run': {
      parsed: 'reload-dry-run.test.ts runs it at a gateway of its own',
    },
    'sudo hubgate validate': { parsed: 'restarts a service of the machine' },
    'npm install --global': { run: installTarball },
    'npm start': { parsed: 'stands in the README too, where first-hour.test.ts starts it' },
    'npm pack': { parsed: 'Docker fetches the image of Node' },
    'mkdir -p ~': { run: installCompletion },
  },
  'docs/operations.md': {
    'hubgate top': { run: lookAtTop },
    'systemctl start': { parsed: 'needs a systemd that serves' },
    'cd /var/lib/hubgate/history': { run: replaceDamaged },
  },
  'docs/production.md': {
    'useradd --system': { parsed: 'changes users and services of the machine' },
    'runuser -u hubgate -- hubgate history export': { run: backUp },
    'chown -R hubgate:': { run: restore },
  },
  'docs/tutorial.md': {
    'node app.mjs': { by: 'test/e2e/first-hour.test.ts' },
    'umask 077': { by: 'test/e2e/first-hour.test.ts' },
    'hubgate subscribe': { by: 'test/e2e/first-hour.test.ts' },
    'TOKEN=$(hubgate': { by: 'test/e2e/first-hour.test.ts' },
  },
};

describe('commands in the documentation', () => {
  for (const page of PAGES) {
    const blocks = documentedBlocks(page);
    it(`${page}: each block names its language`, () => {
      for (const { language, place } of blocks) assert.notEqual(language, '', place);
    });

    const rows = Object.entries(BLOCKS[page] ?? {});
    const found = new Set<string>();
    for (const block of blocks.filter(({ language }) => SHELLS.includes(language))) {
      const [start, carried] = rows.find(([first]) => block.text.startsWith(first)) ?? [];
      if (start !== undefined) found.add(start);
      it(`${block.place}: ${block.text.split('\n', 1)[0]}`, async (test) => {
        assert.ok(carried !== undefined, 'a block that no test carries out: add it to the table');
        await promisify(execFile)('bash', ['-n', '-c', block.text]);
        if ('by' in carried) {
          const named = readFileSync(join(root, carried.by), 'utf8');
          assert.ok(named.includes(page), `${carried.by} does not read ${page}`);
        } else if ('run' in carried) await carried.run(test, block);
        else test.diagnostic(`only parsed: ${carried.parsed}`);
      });
    }
    it(`${page}: every file that it names exists`, () => {
      assert.deepEqual(
        rows.map(([first]) => first).filter((first) => !found.has(first)),
        [],
      );
    });
  }
});

describe('examples', () => {
  const pages = PAGES.map((page) => readFileSync(join(root, page), 'utf8')).join('\n');
  const tests = readdirSync(join(root, 'test'), { recursive: true, encoding: 'utf8' })
    .filter((name) => name.endsWith('.test.ts'))
    .map((name) => readFileSync(join(root, 'test', name), 'utf8'))
    .join('\n');
  for (const name of readdirSync(join(root, 'examples'))) {
    it(`examples/${name} appears in a document, and a test runs it`, () => {
      const named = new RegExp(`examples/${name}\\b(?!-)`);
      assert.match(pages, named);
      assert.match(tests, named);
    });
  }
});

/** A directory with a program `hubgate`, and a shell in it. */
async function sandbox(test: TestContext, env: NodeJS.ProcessEnv = {}) {
  const directory = await temporaryDirectory(test);
  const bin = join(directory, 'bin');
  await mkdir(bin);
  const programs = {
    hubgate: `exec '${process.execPath}' '${cli}' "$@"`,
    // The machine of a test has no user `hubgate`.
    runuser: 'shift 3; exec "$@"',
    chown: '',
  };
  for (const [name, text] of Object.entries(programs)) {
    await writeFile(join(bin, name), `#!/bin/sh\n${text}\n`, { mode: 0o755 });
  }
  const around = {
    ...process.env,
    PATH: `${bin}:${process.env['PATH']}`,
    HOME: directory,
    HUB_PUBLISHER_JWT_KEY: KEY,
    HUB_SUBSCRIBER_JWT_KEY: KEY,
    ...env,
  };
  const run = async (script: string) =>
    promisify(execFile)('bash', ['-ec', script], { cwd: directory, env: around });
  return { directory, run };
}

async function publishFromAnApp(test: TestContext, { page, text }: DocumentedBlock): Promise<void> {
  const port = await freePort();
  const site = `https://localhost:${port}`;
  const { directory, run } = await sandbox(test);
  await writeFile(
    join(directory, 'Hubfile'),
    `{
	admin off
	storage ${directory}/.hubgate
	auto_https disable_redirects
}
${site} {
	hub {
		issuer ${site} {
			publisher {
				jwt {env.HUB_PUBLISHER_JWT_KEY}
			}
		}
		anonymous
	}
}
`,
  );
  const config = join(directory, 'Hubfile');
  const gateway = startProcess(test, [cli, 'run', '--config', config], {
    HUB_PUBLISHER_JWT_KEY: KEY,
  });
  await gateway.says('Listening on');
  const hub = `${site}/.well-known/hub`;
  const { stdout: token } = await run(
    `hubgate token --iss ${site} --aud ${hub} --key ${KEY} --publish '*'`,
  );
  const [app] = documentedBlocks(page).filter(({ language }) => language === 'js');
  const program = (app?.text ?? '').replaceAll('localhost:8443', `localhost:${port}`);
  const lines = [`const token = '${token.trim()}';`, `const { status } = ${program}`];
  await writeFile(join(directory, 'app.mjs'), [...lines, 'console.log(status);'].join('\n'));
  assert.equal((await run(text)).stdout, '200\n');
}

async function installTarball(test: TestContext, { text }: DocumentedBlock): Promise<void> {
  const { directory, run } = await sandbox(test, {
    HOME: process.env['HOME'],
    npm_config_prefix: join(await temporaryDirectory(test), 'global'),
    npm_config_prefer_offline: 'true',
    npm_config_loglevel: 'error',
  });
  // As the page says, in a checkout.
  await promisify(execFile)('npm', ['pack', '--pack-destination', directory], { cwd: root });
  // Not the program of the sandbox, but the one that is installed.
  const script = text.replace('hubgate version', '"$npm_config_prefix/bin/hubgate" version');
  const { version } = JSON.parse(await readFile(join(root, 'package.json'), 'utf8'));
  assert.match((await run(script)).stdout, new RegExp(`^${version}$`, 'm'));
}

async function installCompletion(test: TestContext, { text }: DocumentedBlock): Promise<void> {
  const { directory, run } = await sandbox(test);
  await run(text);
  const file = join(directory, '.local/share/bash-completion/completions/hubgate');
  assert.match(await readFile(file, 'utf8'), /complete .*hubgate/);
}

async function lookAtTop(test: TestContext, { text }: DocumentedBlock): Promise<void> {
  const [port, admin] = [await freePort(), await freePort()];
  const { directory, run } = await sandbox(test);
  const config = join(directory, 'Hubfile');
  await writeFile(
    config,
    `{\n\tadmin localhost:${admin}\n\tstorage ${directory}\n}\nhttp://localhost:${port} {\n}\n`,
  );
  const gateway = startProcess(test, [cli, 'run', '--config', config]);
  await gateway.says('Listening on');
  const { stdout } = await run(text.replace('top', `top --address localhost:${admin}`));
  assert.equal(typeof JSON.parse(stdout), 'object');
}

async function setUpDatabase(test: TestContext, { text }: DocumentedBlock): Promise<void> {
  const postgres = await startPostgres(test, test);
  if (postgres === null) return;
  await postgres.query('CREATE DATABASE app');
  await postgres.query('CREATE ROLE gateway LOGIN');
  const server = { PGHOST: '127.0.0.1', PGPORT: String(postgres.port), PGUSER: 'postgres' };
  const { directory, run } = await sandbox(test, server);
  await run(text);
  const url = `postgres://gateway@127.0.0.1:${postgres.port}/app`;
  const hub = `anonymous\n\t\ttransport postgres {\n\t\t\turl ${url}\n\t\t}`;
  await writeFile(join(directory, 'Hubfile'), `http://localhost {\n\thub {\n\t\t${hub}\n\t}\n}\n`);
  await run(`echo '${UPDATE}' | hubgate history import`);
  assert.match((await run('hubgate history stats')).stdout, /^updates +1$/m);
}

async function backUp(test: TestContext, block: DocumentedBlock): Promise<void> {
  const { run, etc } = await production(test, block);
  await run(`echo '${UPDATE}' | hubgate history import --config ${etc}/Hubfile`);
  await run(moved(block.text, etc));
  assert.match((await run('cat backup.ndjson')).stdout, /"id":"urn:one"/);
}

async function restore(test: TestContext, block: DocumentedBlock): Promise<void> {
  const { directory, run, etc } = await production(test, block);
  await writeFile(join(directory, 'backup.ndjson'), `${UPDATE}\n`);
  await run(moved(block.text, etc));
  const { stdout } = await run(`hubgate history stats --json --config ${etc}/Hubfile`);
  assert.deepEqual(JSON.parse(stdout).last_event_id, 'urn:one');
}

async function replaceDamaged(test: TestContext, { text }: DocumentedBlock): Promise<void> {
  const { directory, run, etc } = await production(test, { page: 'docs/production.md' });
  await run(
    `echo '${UPDATE}' | tee backup.ndjson | hubgate history import --config ${etc}/Hubfile`,
  );
  const { stdout } = await run('dirname "$(find . -name history.mdb)"');
  const history = join(directory, stdout.trim());
  // Both pages that say where the rest is.
  await run(`dd if=/dev/urandom of=${history}/history.mdb bs=8192 count=1 conv=notrunc`);
  const stats = `hubgate history stats --json --config ${etc}/Hubfile`;
  await assert.rejects(run(stats), /history\.mdb is not a history, or its page 0 is damaged/);
  await run(moved(text.replaceAll('/var/lib/hubgate/history/…', `'${history}'`), etc));
  assert.equal(JSON.parse((await run(stats)).stdout).last_event_id, 'urn:one');
}

const UPDATE = '{"id":"urn:one","topics":["a"],"data":"x","at":1700000000000}';

/** The Hubfile of the page, with its directories in the sandbox. */
async function production(test: TestContext, { page }: Pick<DocumentedBlock, 'page'>) {
  const { directory, run } = await sandbox(test);
  const etc = join(directory, 'etc');
  await mkdir(etc);
  const [hubfile] = documentedBlocks(page).filter(({ language }) => language === 'hubfile');
  await writeFile(join(etc, 'Hubfile'), moved(hubfile?.text ?? '', etc));
  return { directory, run, etc };
}

/** A text with the directories of the sandbox. */
function moved(text: string, etc: string): string {
  return text
    .replaceAll('/etc/hubgate', etc)
    .replaceAll(/\/var\/(?:lib|log)\/hubgate/g, dirname(etc));
}
