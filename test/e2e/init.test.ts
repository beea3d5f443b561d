import assert from 'node:assert/strict';
import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { after, describe, it, type TestContext } from 'node:test';
import { promisify } from 'node:util';
import { formatHubfile } from '../../src/hubfile/format.ts';
import { freePort } from '../support/free-port.ts';
import { cli, runCommand, startProcess } from '../support/process.ts';
import { programPath } from '../support/program.ts';

const directory = mkdtempSync(join(tmpdir(), 'hubgate-init-'));
after(() => rmSync(directory, { recursive: true, force: true }));
let count = 0;

/** Where nothing has been written yet. */
function fresh(): { readonly hubfile: string; readonly envFile: string } {
  const folder = mkdtempSync(join(directory, `${count++}-`));
  return { hubfile: join(folder, 'Hubfile'), envFile: join(folder, 'hubgate.env') };
}

const validate = (hubfile: string, envFile: string) =>
  runCommand(['validate', '--config', hubfile, '--envfile', envFile]);

describe('hubgate init', () => {
  for (const flags of [
    ['--yes'],
    ['--site', 'example.com', '--upstream', 'app:8080', '--keys'],
    ['--site', 'http://localhost:8080', '--upstream', 'unix//run/app.sock', '--anonymous'],
    ['--site', ':8080', '--upstream', '127.0.0.1:3000', '--keys'],
    ['--site', 'localhost:8443', '--upstream', '3000', '--anonymous'],
    ['--site', 'https://[::1]:8443', '--upstream', 'https://app.internal', '--keys'],
  ]) {
    it(`${flags.join(' ')} writes a file that validate accepts without warnings`, async () => {
      const { hubfile, envFile } = fresh();
      const { code, stdout, stderr } = await runCommand(['init', ...flags, '--output', hubfile]);
      assert.equal(code, 0, stderr);
      assert.equal(stdout, `${cli} run --config ${hubfile} --envfile ${envFile}\n`);
      const text = readFileSync(hubfile, 'utf8');
      assert.equal(formatHubfile(text), text);
      assert.equal(/^\t\tanonymous$/m.test(text), !flags.includes('--keys'));
      const valid = await validate(hubfile, envFile);
      assert.deepEqual([valid.code, valid.stderr], [0, '']);
    });
  }

  it('says npx only where npx finds the installed program, and asks no registry for another one', async () => {
    const { hubfile } = fresh();
    const folder = dirname(hubfile);
    mkdirSync(join(folder, 'node_modules/.bin'), { recursive: true });
    writeFileSync(join(folder, 'node_modules/.bin/hubgate'), '');
    mkdirSync(join(folder, 'below'));
    for (const cwd of [folder, join(folder, 'below')]) {
      const { stdout } = await runCommand(['init', '--yes'], {}, cwd);
      assert.equal(stdout, 'npx hubgate run --envfile hubgate.env\n');
    }
  });

  it('writes a configuration that works at once: its hub accepts an update that is signed with its key', async (test) => {
    const { hubfile, envFile } = fresh();
    const origin = `http://localhost:${await freePort()}`;
    await runCommand(['init', '--yes', '--site', origin, '--output', hubfile]);
    // The test must not meet another gateway of this machine.
    const own = readFileSync(hubfile, 'utf8').replace(
      '.hubgate',
      `${hubfile}.storage\n\tadmin off`,
    );
    writeFileSync(hubfile, own);
    const args = [cli, 'run', '--config', hubfile, '--envfile', envFile];
    await startProcess(test, args).says('Listening on');
    const hub = `${origin}/.well-known/hub`;
    const [, key = ''] = /^HUB_PUBLISHER_JWT_KEY=(.*)$/m.exec(readFileSync(envFile, 'utf8')) ?? [];
    const grant = ['--iss', origin, '--aud', hub, '--key', key, '--publish', '*'];
    const token = (await runCommand(['token', ...grant])).stdout.trim();
    const update = ['--hub', hub, '--token', token, '--topic', 'news', '--data', 'hello'];
    const { code, stdout } = await runCommand(['publish', ...update]);
    assert.equal(code, 0);
    assert.match(stdout, /^urn:uuid:/);
  });

  it('generates new 256-bit keys each time, in a file that only its owner can read', async () => {
    const keys: string[] = [];
    for (let run = 0; run < 2; run++) {
      const { hubfile, envFile } = fresh();
      await runCommand(['init', '--yes', '--output', hubfile]);
      assert.equal(statSync(envFile).mode & 0o777, 0o600);
      const text = readFileSync(envFile, 'utf8');
      keys.push(
        ...[...text.matchAll(/^HUB_(?:PUBLISHER|SUBSCRIBER)_JWT_KEY=([\w-]{43})$/gm)].map(
          ([, key]) => key ?? '',
        ),
      );
      assert.ok(!keys.some((key) => readFileSync(hubfile, 'utf8').includes(key)));
    }
    assert.equal(new Set(keys).size, 4);
  });

  it('overwrites neither file, and writes neither if the other exists', async () => {
    const first = fresh();
    writeFileSync(first.hubfile, 'mine');
    const refused = await runCommand(['init', '--yes', '--output', first.hubfile]);
    assert.equal(refused.code, 1);
    assert.match(refused.stderr, /Hubfile exists already/);
    assert.equal(readFileSync(first.hubfile, 'utf8'), 'mine');
    assert.ok(!existsSync(first.envFile));
    const second = fresh();
    writeFileSync(second.envFile, 'mine');
    assert.equal((await runCommand(['init', '--yes', '--output', second.hubfile])).code, 1);
    assert.equal(readFileSync(second.envFile, 'utf8'), 'mine');
    assert.ok(!existsSync(second.hubfile));
  });

  it('names the file with the keys after the Hubfile, so that a directory can have several', async () => {
    const { hubfile } = fresh();
    const folder = dirname(hubfile);
    for (const [name, keys] of [
      ['Hubfile', 'hubgate.env'],
      ['other.hubfile', 'other.env'],
      ['Hubfile.staging', 'Hubfile.staging.env'],
    ]) {
      const { code, stderr } = await runCommand(
        ['init', '--yes', '--output', `${name}`],
        {},
        folder,
      );
      assert.equal(code, 0, stderr);
      const start = `hubgate run${name === 'Hubfile' ? '' : ` --config ${name}`} --envfile ${keys}`;
      assert.ok(readFileSync(join(folder, `${name}`), 'utf8').includes(start));
      assert.ok(existsSync(join(folder, `${keys}`)), keys);
    }
  });

  it('follows the Hubfile language about ports', async () => {
    for (const [site, issuer, redirects] of [
      ['localhost', 'https://localhost', true],
      ['localhost:8443', 'https://localhost:8443', false],
      [':443', 'https://localhost', true],
      [':8080', 'http://localhost:8080', false],
    ] as const) {
      const { hubfile } = fresh();
      const { stderr } = await runCommand(['init', '--yes', '--site', site, '--output', hubfile]);
      const text = readFileSync(hubfile, 'utf8');
      assert.match(text, new RegExp(`issuer ${issuer} \\{`), stderr);
      assert.equal(!text.includes('Port 80 would need privileges'), redirects, site);
    }
  });

  it('and a command without them names the file that has them', async () => {
    const { hubfile, envFile } = fresh();
    await runCommand(['init', '--yes', '--output', hubfile]);
    const unset = { HUB_PUBLISHER_JWT_KEY: undefined, HUB_SUBSCRIBER_JWT_KEY: undefined };
    const { code, stderr } = await runCommand(['validate', '--config', hubfile], unset);
    assert.equal(code, 1);
    assert.ok(stderr.includes(`${envFile} sets it: add --envfile ${envFile}`), stderr);
    const production = join(dirname(envFile), 'environment');
    renameSync(envFile, production);
    const again = await runCommand(['validate', '--config', hubfile], unset);
    assert.ok(again.stderr.includes(`add --envfile ${production}`), again.stderr);
    writeFileSync(production, 'OTHER=1\n');
    const other = await runCommand(['validate', '--config', hubfile], unset);
    assert.match(other.stderr, /or name a file that sets it with --envfile/);
  });

  it('leaves no part of a file if the disk is full, so that it can be repeated', async () => {
    const { hubfile, envFile } = fresh();
    // The same error at the same place as on a full disk; a pipe has no limit.
    const command = `ulimit -f 0; '${process.execPath}' '${cli}' init --yes --output '${hubfile}' 2>&1 | cat`;
    const { stdout } = await promisify(execFile)('bash', ['-c', command]);
    assert.match(stdout, /Cannot write \S+hubgate\.env: EFBIG/);
    for (const file of [hubfile, envFile]) assert.equal(existsSync(file), false, file);
  });

  it('asks nothing without a terminal, and says which flags are missing', async () => {
    const { hubfile } = fresh();
    const args = ['init', '--site', 'example.com', '--output', hubfile];
    const { code, stderr } = await runCommand(args);
    assert.equal(code, 64);
    assert.match(stderr, /Not a terminal: pass --upstream, --anonymous or --keys, or --yes/);
    assert.ok(!existsSync(hubfile));
  });

  it('rejects an address that is invalid or more than one word, and writes nothing', async () => {
    for (const flags of [
      ['--site', 'a b'],
      ['--site', 'example.com {\n\tabort\n}'],
      ['--site', 'ftp://example.com'],
      ['--upstream', 'http://app/{path'],
      ['--upstream', 'app:notaport'],
    ]) {
      const { hubfile, envFile } = fresh();
      const { code } = await runCommand(['init', '--yes', ...flags, '--output', hubfile]);
      assert.equal(code, 64, flags.join(' '));
      assert.ok(!existsSync(hubfile) && !existsSync(envFile));
    }
  });

  it('asks three questions on a terminal, and uses the default for an empty answer', async (test) => {
    const { hubfile, envFile } = fresh();
    const port = await freePort();
    const shown = await onTerminal(
      test,
      ['init', '--output', hubfile],
      [
        ['Address of the site [localhost:8443]: ', `http://localhost:${port}`],
        ['Where the app listens [localhost:3000]: ', ''],
        ['May everybody subscribe to public updates (yes, no) [yes]: ', 'perhaps'],
        ['May everybody subscribe to public updates (yes, no) [yes]: ', 'no'],
      ],
    );
    if (shown === null) return;
    assert.match(shown, /Next:/);
    const text = readFileSync(hubfile, 'utf8');
    assert.ok(text.includes(`http://localhost:${port} {`));
    assert.ok(text.includes('reverse_proxy localhost:3000'));
    assert.ok(!/^\t\tanonymous$/m.test(text));
    assert.equal((await validate(hubfile, envFile)).code, 0);
  });

  it('asks only for values without a flag, and writes nothing if the user quits', async (test) => {
    const { hubfile } = fresh();
    const args = ['init', '--site', 'example.com', '--keys', '--output', hubfile];
    const shown = await onTerminal(test, args, [
      ['Where the app listens [localhost:3000]: ', '\x04'],
    ]);
    if (shown === null) return;
    assert.match(shown, /You gave no answer, so nothing is written/);
    assert.ok(!existsSync(hubfile));
  });
});

/** Runs a command on a terminal, and types each answer once its question is shown. */
async function onTerminal(
  test: TestContext,
  args: readonly string[],
  answers: readonly (readonly [question: string, answer: string])[],
): Promise<string | null> {
  const script = programPath(test, 'script', 'bsdutils');
  if (script === null) return null;
  const command = [process.execPath, cli, ...args].map((each) => `'${each}'`).join(' ');
  const child = spawn(script, ['--quiet', '--return', '--command', command, '/dev/null']);
  test.after(() => child.kill('SIGKILL'));
  let shown = '';
  let seen = 0;
  let next = 0;
  child.stdout.on('data', (chunk: Buffer) => {
    shown += String(chunk);
    const [question, answer] = answers[next] ?? [];
    if (question === undefined || answer === undefined) return;
    const at = shown.indexOf(question, seen);
    if (at === -1) return;
    seen = at + question.length;
    next += 1;
    child.stdin.write(answer === '\x04' ? answer : `${answer}\r`);
  });
  await once(child, 'close');
  assert.equal(next, answers.length, shown);
  return shown;
}
