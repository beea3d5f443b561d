import { silentLogger } from '../../src/kernel/log.ts';
import assert from 'node:assert/strict';
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { systemClock } from '../../src/kernel/clock.ts';
import { CertificateStore } from '../../src/tls/certificate-store.ts';
import { LocalAuthority } from '../../src/tls/local-authority.ts';
import { createClientAuthority } from '../support/client-authority.ts';
import { freePort } from '../support/free-port.ts';
import { send } from '../support/http.ts';
import { cli, runCommand, startProcess } from '../support/process.ts';
import { temporaryDirectory } from '../support/temporary-directory.ts';
import { TestClock } from '../support/test-clock.ts';
import { visit } from '../support/tls-client.ts';

const DAY_MS = 24 * 60 * 60 * 1000;

interface Listed {
  readonly names: readonly string[];
  readonly authority: string;
  readonly not_after: string | null;
  readonly file: string;
  readonly problem?: string;
}

describe('hubgate list-certificates', () => {
  it('lists the certificates in the storage and in files of the configuration, by expiry', async (test) => {
    const storage = await temporaryDirectory(test);
    const store = new CertificateStore(storage, silentLogger);
    const authority = new LocalAuthority(storage, systemClock);
    const past = new LocalAuthority(storage, new TestClock(Date.now() - 20 * DAY_MS));
    await authority.prepare();
    await store.write('local', ['old.localhost'], await past.issue(['old.localhost']));
    const many = ['a.test', 'b.test', 'c.test', 'd.test', '127.0.0.1'];
    await store.write('acme.example', many, await authority.issue(many));
    const own = createClientAuthority(storage, 'own');
    const config = join(storage, 'Hubfile');
    // Its key is in the environment of the gateway, not in that of the operator's shell.
    const hub =
      '\thub {\n\t\tissuer i {\n\t\t\tpublisher {\n\t\t\t\tjwt {env.NOT_HERE}\n\t\t\t}\n\t\t}\n\t}\n';
    const hubfile = (file: string): string =>
      `{\n\tstorage ${storage}\n}\nexample.com {\n\ttls ${file} ${file}\n\trespond ok\n${hub}}\n`;

    await writeFile(config, hubfile(own.file));

    const { code, stdout } = await runCommand(['list-certificates', '--config', config]);
    assert.equal(code, 0);
    const [head, ...rows] = stdout.trimEnd().split('\n');
    assert.match(head ?? '', /^NAMES +AUTHORITY +EXPIRES +FILE$/);
    assert.deepEqual(
      rows.map((row) => row.split(/ {2,}/).slice(0, 2)),
      [
        ['old.localhost', 'local'],
        ['own', 'files'],
        ['a.test, b.test, c.test and 2 more', 'acme.example'],
        [`hubgate local intermediate ${new Date().getUTCFullYear()}`, 'local'],
        [`hubgate local root ${new Date().getUTCFullYear()}`, 'local'],
      ],
    );
    assert.match(rows[0] ?? '', / \d{4}-\d\d-\d\d {2}expired +\//);
    assert.match(rows[1] ?? '', / {2}in 1 day +\//);
    assert.match(rows[2] ?? '', / {2}in 6 days +\//);

    const listed = await asJson(config);
    assert.deepEqual(
      listed.map(({ names }) => names.length),
      [1, 1, 5, 1, 1],
    );
    const ends = listed.map(({ not_after: end }) => end ?? '');
    assert.deepEqual(ends, ends.toSorted());
    assert.equal(listed[1]?.file, own.file);
  });

  it('fails when a file of the configuration cannot be read, and still lists the rest', async (test) => {
    const storage = await temporaryDirectory(test);
    await new LocalAuthority(storage, systemClock).prepare();
    const config = join(storage, 'Hubfile');
    const absent = join(storage, 'absent.pem');
    await writeFile(
      config,
      `{\n\tstorage ${storage}\n}\nexample.com {\n\ttls ${absent} ${absent}\n\trespond ok\n}\n`,
    );
    const { code, stdout, stderr } = await runCommand(['list-certificates', '--config', config]);
    assert.equal(code, 1);
    assert.equal(stderr, `${absent} cannot be read: the file does not exist\n`);
    assert.match(stdout, /unreadable[^]*hubgate local root/);
    const [first] = await asJson(config);
    assert.deepEqual([first?.not_after, first?.file], [null, absent]);
  });

  it('reads the default storage if there is no Hubfile', async (test) => {
    const data = await temporaryDirectory(test);
    const env = { XDG_DATA_HOME: data };
    const nothing = await runCommand(['list-certificates'], env);
    assert.deepEqual([nothing.code, nothing.stdout], [0, '']);
    assert.match(nothing.stderr, /No certificates found/);
    await new LocalAuthority(join(data, 'hubgate'), systemClock).prepare();
    const { stdout } = await runCommand(['list-certificates', '--json'], env);
    assert.equal((JSON.parse(stdout) as Listed[]).length, 2);
  });
});

describe('hubgate --help, completion', () => {
  for (const [command, option] of [
    ['trust', '--print'],
    ['untrust', '--print'],
    ['list-certificates', '--json'],
  ] as const) {
    it(`include ${command}`, async () => {
      const help = await runCommand([command, '--help']);
      assert.equal(help.code, 0);
      assert.match(help.stdout, new RegExp(`${option}[^]*--help|--help[^]*${option}`));
      for (const shell of ['bash', 'zsh', 'fish']) {
        const { stdout } = await runCommand(['completion', shell]);
        assert.match(stdout, new RegExp(`\\b${command}\\b`), shell);
      }
      assert.equal((await runCommand([command, '--nonsense'])).code, 64);
    });
  }
});

describe('GET /metrics', () => {
  it('shows when each certificate in use expires', async (test) => {
    const storage = await temporaryDirectory(test);
    const bought = await new LocalAuthority(join(storage, 'other'), systemClock).issue([
      'example.com',
      'www.example.com',
    ]);
    const [certFile, keyFile] = [join(storage, 'own.crt'), join(storage, 'own.key')];
    await writeFile(certFile, bought.chain);
    await writeFile(keyFile, bought.key);
    const [adminPort, port, other] = [await freePort(), await freePort(), await freePort()];
    const config = join(storage, 'Hubfile');
    await writeFile(
      config,
      `{\n\tadmin 127.0.0.1:${adminPort}\n\tstorage ${storage}\n\tauto_https disable_redirects\n\tgrace_period 1s\n}\nlocalhost:${port} {\n\ttls internal\n\trespond ok\n}\nexample.com:${other} {\n\ttls ${certFile} ${keyFile}\n\trespond ok\n}\n`,
    );
    const gateway = startProcess(test, [cli, 'run', '--no-watch', '--config', config]);
    await gateway.says('Admin API on');
    const ca = await readFile(join(storage, 'pki', 'local', 'root.crt'));
    await visit({ port, servername: 'localhost', ca }, [`localhost:${port}`]);
    const { body } = await send(`http://127.0.0.1:${adminPort}/metrics`);
    assert.match(body, /^# TYPE hubgate_certificate_not_after_seconds gauge$/m);
    const days = (names: string, authority: string): number => {
      const labels = `\\{names="${names}",authority="${authority}"\\}`;
      const line = new RegExp(`^hubgate_certificate_not_after_seconds${labels} ([\\d.]+)$`, 'm');
      return Math.round((Number(line.exec(body)?.[1]) - Date.now() / 1000) / 86_400);
    };
    assert.equal(days('localhost', 'local'), 7);
    assert.equal(days('example.com www.example.com', 'files'), 7);
    assert.equal(days('hubgate local intermediate \\d{4}', 'local'), 365);
    assert.equal(days('hubgate local root \\d{4}', 'local'), 3650);
  });
});

async function asJson(config: string): Promise<Listed[]> {
  const { stdout } = await runCommand(['list-certificates', '--json', '--config', config]);
  // What the command prints is what this file describes; the assertions find out otherwise.
  return JSON.parse(stdout) as Listed[];
}
