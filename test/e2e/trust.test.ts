import assert from 'node:assert/strict';
import { execFile, spawnSync } from 'node:child_process';
import { X509Certificate } from 'node:crypto';
import { existsSync } from 'node:fs';
import { chown, mkdir, readdir, readFile, rm, stat, symlink, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { describe, it, type TestContext } from 'node:test';
import { promisify } from 'node:util';
import { freePort } from '../support/free-port.ts';
import { startGateway } from '../support/gateway.ts';
import { cli, runCommand } from '../support/process.ts';
import { temporaryDirectory } from '../support/temporary-directory.ts';
import { isMissed } from '../support/program.ts';

const STORE = '/usr/local/share/ca-certificates';
/** The user `nobody` of Debian. */
const NOBODY = 65534;
/** Without variables that name another store. */
const PLAIN = { PATH: process.env['PATH'] };
const run = promisify(execFile);

describe("trust, untrust: Debian's store", () => {
  it('make every program on the machine trust the gateway, and undo it', async (test) => {
    if (!mayChangeStore(test)) return;
    const port = await freePort();
    const { storage, rootFile } = await startGateway(
      test,
      `localhost:${port} {\n\ttls internal\n\trespond ok\n}\n`,
    );
    const before = await readdir(STORE);
    const home = await temporaryDirectory(test);
    const { env, config } = await surroundings(test, storage, home);
    const fetched = (): Promise<string> =>
      run('curl', ['-sS', '--noproxy', '*', `https://localhost:${port}/`], { env: PLAIN }).then(
        ({ stdout }) => stdout,
        ({ stderr }: { readonly stderr: string }) => stderr,
      );
    assert.match(await fetched(), /SSL certificate problem/);
    assert.deepEqual(await readdir(STORE), before, 'run touches nothing');

    const label = await labelOf(rootFile);
    const trusted = await runCommand(['trust', '--config', config], env);
    assert.deepEqual([trusted.code, trusted.stderr], [0, '']);
    assert.equal((await stat(join(STORE, `${label}.crt`))).mode & 0o777, 0o644);
    const verified = await run('openssl', ['verify', '-CApath', '/etc/ssl/certs', rootFile]);
    assert.match(verified.stdout, /: OK/);
    assert.equal(await fetched(), 'ok');
    const again = await runCommand(['trust', '--config', config], env);
    assert.equal(again.code, 0);
    assert.match(again.stderr, /the system's store already trusts hubgate-local-[0-9a-f]{16}/);

    const untrusted = await runCommand(['untrust', '--config', config], env);
    assert.equal(untrusted.code, 0, untrusted.stderr);
    assert.deepEqual(await readdir(STORE), before);
    const links = await readdir('/etc/ssl/certs');
    assert.equal(
      links.some((name) => name.startsWith(label)),
      false,
    );
    assert.match(await fetched(), /SSL certificate problem/);
    const nothing = await runCommand(['untrust', '--config', config], env);
    assert.deepEqual([nothing.code, nothing.stderr], [0, 'No store trusts the authority\n']);
  });

  it('untrust removes a root that has been replaced since', async (test) => {
    if (!mayChangeStore(test)) return;
    const storage = await temporaryDirectory(test);
    const { env, config } = await surroundings(test, storage, await temporaryDirectory(test));
    const before = await readdir(STORE);
    assert.equal((await runCommand(['trust', '--config', config], env)).code, 0);
    await rm(join(storage, 'pki', 'local'), { recursive: true });
    assert.equal((await runCommand(['trust', '--config', config], env)).code, 0);
    assert.equal((await readdir(STORE)).length, before.length + 2);
    const { code, stdout } = await runCommand(['untrust', '--config', config], env);
    assert.equal(code, 0);
    assert.equal(stdout.trim().split('\n').length, 2);
    assert.deepEqual(await readdir(STORE), before);
  });

  it('--export writes the root to a file that every user may read, and changes no store', async (test) => {
    const storage = await temporaryDirectory(test);
    const { env, config } = await surroundings(test, storage, await temporaryDirectory(test));
    const file = join(storage, 'exported.crt');
    const exported = await runCommand(['trust', '--export', file, '--config', config], env);
    assert.equal(exported.code, 0, exported.stderr);
    assert.equal((await stat(file)).mode & 0o777, 0o644);
    const root = await readFile(join(storage, 'pki', 'local', 'root.crt'), 'utf8');
    assert.equal(await readFile(file, 'utf8'), root);
    const again = await runCommand(['trust', '--export', file, '--config', config], env);
    assert.notEqual(again.code, 0, 'it overwrites nothing');
  });

  it('print the commands and fail without permission', async (test) => {
    if (!existsSync('/usr/sbin/update-ca-certificates')) return test.skip('this is not a Debian');
    const storage = await temporaryDirectory(test);
    const { env, config } = await surroundings(test, storage, storage);
    const before = await readdir(STORE);
    const asRoot = process.getuid?.() === 0;
    for (const path of asRoot ? [storage, config, dirname(config)] : []) {
      await chown(path, NOBODY, NOBODY);
    }
    const identity = asRoot ? { uid: NOBODY, gid: NOBODY } : {};
    const look = `require('node:fs').accessSync(${JSON.stringify(cli)})`;
    const { status } = spawnSync(process.execPath, ['-e', look], { ...identity, cwd: storage });
    if (status !== 0) return test.skip('this checkout, or this node, is not for other users');
    const refusal: unknown = await run(process.execPath, [cli, 'trust', '--config', config], {
      ...identity,
      cwd: storage,
      env: { ...process.env, ...env },
    }).catch((error: unknown) => error);
    assert.ok(refusal instanceof Error && 'code' in refusal && 'stderr' in refusal);
    assert.equal(refusal.code, 1);
    const label = await labelOf(join(storage, 'pki', 'local', 'root.crt'));
    assert.equal(
      refusal.stderr,
      "the system's store can be changed only by an administrator; run:\n" +
        `    sudo install -m 0644 ${storage}/pki/local/root.crt ${STORE}/${label}.crt\n` +
        '    sudo /usr/sbin/update-ca-certificates\n',
    );
    assert.deepEqual(await readdir(STORE), before);
  });
});

describe('trust, untrust: NSS databases of the user', () => {
  it('add the root to those of Chromium and Firefox, and remove it', async (test) => {
    if (!hasCertutil(test) || !mayChangeStore(test)) return;
    const storage = await temporaryDirectory(test);
    const home = await temporaryDirectory(test);
    const { env, config } = await surroundings(test, storage, home);
    const databases = [
      join(home, '.pki', 'nssdb'),
      join(home, '.mozilla', 'firefox', 'abc.default-release'),
    ];
    await mkdir(join(home, '.mozilla', 'firefox', 'Crash Reports'), { recursive: true });
    for (const directory of databases) {
      await mkdir(directory, { recursive: true });
      await run('certutil', ['-N', '--empty-password', '-d', `sql:${directory}`]);
    }
    const certificates = async (directory: string): Promise<string> =>
      (await run('certutil', ['-L', '-d', `sql:${directory}`])).stdout;

    assert.equal((await runCommand(['trust', '--config', config], env)).code, 0);
    for (const directory of databases) {
      assert.match(await certificates(directory), /^hubgate-local-[0-9a-f]{16} +C,,/m);
    }
    assert.equal((await runCommand(['untrust', '--config', config], env)).code, 0);
    for (const directory of databases) {
      assert.doesNotMatch(await certificates(directory), /hubgate/);
    }
  });
});

describe('trust --print, untrust --print', () => {
  it('print what would be done, and change nothing', async (test) => {
    const storage = await temporaryDirectory(test);
    const { env, config } = await surroundings(test, storage, await temporaryDirectory(test));
    const early = await runCommand(['trust', '--print', '--config', config], env);
    assert.deepEqual([early.code, early.stdout], [0, '']);
    assert.match(early.stderr, /has no authority yet/);
    assert.deepEqual(await readdir(storage), []);
    const none = await runCommand(['untrust', '--config', config], env);
    assert.deepEqual([none.code, none.stderr], [0, `${storage} has no authority\n`]);
    if (!existsSync(STORE)) return test.skip('this is not a Debian');

    const gateway = await startGateway(
      test,
      `localhost:${await freePort()} {\n\ttls internal\n}\n`,
    );
    const own = await surroundings(test, gateway.storage, storage);
    const before = await readdir(STORE);
    const { code, stdout } = await runCommand(['trust', '--print', '--config', own.config], env);
    assert.equal(code, 0);
    const installs = new RegExp(`install -m 0644 ${gateway.rootFile} ${STORE}/hubgate-local-`);
    assert.match(stdout, installs);
    assert.match(stdout, /\/update-ca-certificates$/m);
    assert.deepEqual(await readdir(STORE), before);
    assert.equal(existsSync(join(gateway.storage, 'pki', 'trusted')), false);

    // A home directory that cannot be read does not keep the store of the system from the list.
    await mkdir(join(storage, '.mozilla'));
    await symlink('firefox', join(storage, '.mozilla', 'firefox'));
    const partly = await runCommand(['trust', '--print', '--config', own.config], own.env);
    assert.equal(partly.code, 1);
    assert.match(partly.stderr, /profiles of Firefox cannot be read: ELOOP/);
    assert.match(partly.stdout, installs);
  });
});

/** These skips hold in CI too: they depend on who runs the tests, not on what is installed. */
function mayChangeStore(test: TestContext): boolean {
  const root = process.getuid?.() === 0;
  if (root && existsSync('/usr/sbin/update-ca-certificates')) return true;
  test.skip('only root on Debian may change the store of the system');
  return false;
}

function hasCertutil(test: TestContext): boolean {
  if (existsSync('/usr/bin/certutil')) return true;
  isMissed(test, 'certutil is not installed (apt-get install libnss3-tools)');
  return false;
}

/** A Hubfile for the storage; what is still in the store of the system goes with the test. */
async function surroundings(test: TestContext, storage: string, home: string) {
  const config = join(await temporaryDirectory(test), 'Hubfile');
  await writeFile(config, `{\n\tstorage ${storage}\n}\nlocalhost {\n\trespond ok\n}\n`);
  const env = { HOME: home };
  const before = existsSync(STORE) ? await readdir(STORE) : [];
  test.after(async () => {
    const after = existsSync(STORE) ? await readdir(STORE) : [];
    const left = after.filter(
      (name) => name.startsWith('hubgate-local-') && !before.includes(name),
    );
    for (const name of left) await rm(join(STORE, name));
    if (left.length > 0) await run('update-ca-certificates', ['--fresh']);
  });
  return { env, config };
}

async function labelOf(rootFile: string): Promise<string> {
  const { fingerprint256 } = new X509Certificate(await readFile(rootFile));
  return `hubgate-local-${fingerprint256.replaceAll(':', '').slice(0, 16).toLowerCase()}`;
}
