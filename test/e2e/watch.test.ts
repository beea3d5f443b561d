import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { unlinkSync, writeFileSync } from 'node:fs';
import { mkdir, mkdtemp, readFile, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, it, type TestContext } from 'node:test';
import { connect } from 'node:tls';
import { systemClock } from '../../src/kernel/clock.ts';
import { LocalAuthority } from '../../src/tls/local-authority.ts';
import { freePort } from '../support/free-port.ts';
import { send } from '../support/http.ts';
import { cli, startProcess, type TestProcess } from '../support/process.ts';
import { removeWith } from '../support/temporary-directory.ts';

interface Watched {
  readonly directory: string;
  readonly port: number;
  readonly gateway: TestProcess;
  /** Writes a file and waits until the gateway has said this. */
  edit(name: string, text: string, says?: string): Promise<void>;
}

async function run(
  test: TestContext,
  files: (port: number, directory: string) => Readonly<Record<string, string | Promise<string>>>,
  more: (directory: string) => readonly string[] = () => [],
): Promise<Watched> {
  const directory = await mkdtemp(join(tmpdir(), 'hubgate-follow-'));
  removeWith(test, directory);
  const port = await freePort();
  for (const [name, text] of Object.entries(files(port, directory))) {
    await writeFile(join(directory, name), await text);
  }
  const hubfile = join(directory, 'Hubfile');
  const gateway = startProcess(test, [cli, 'run', '--config', hubfile, ...more(directory)]);
  await gateway.says('Listening on');
  const edit = async (name: string, text: string, says = 'Configuration reloaded') => {
    const said = gateway.output.length;
    // In one go, so that the gateway hardly ever sees it empty.
    writeFileSync(join(directory, name), text);
    await gateway.says(says, said);
  };
  return { directory, port, gateway, edit };
}

const options = (directory: string): string =>
  `{\n\tadmin off\n\tauto_https off\n\tstorage ${directory}/storage\n}\n`;

describe('hubgate run watches its files (hubfile.md §4)', () => {
  it('the file of --envfile, in which keys are rotated', async (test) => {
    const { port, edit } = await run(
      test,
      (port, directory) => ({
        Hubfile: `${options(directory)}http://localhost:${port} {\n\trespond "{env.SAID} {$WRITTEN}"\n}\n`,
        'hubgate.env': 'SAID=first\nWRITTEN=one\n',
      }),
      (directory) => ['--envfile', join(directory, 'hubgate.env')],
    );
    const body = async (): Promise<string> => (await send(`http://localhost:${port}/`)).body;
    assert.equal(await body(), 'first one');
    await edit('hubgate.env', 'SAID=second\nWRITTEN=two\n');
    assert.equal(await body(), 'second two');
    await edit('hubgate.env', 'no variable\n', 'the old one keeps serving');
    assert.equal(await body(), 'second two');
    await edit('hubgate.env', 'SAID=third\nWRITTEN=three\n');
    assert.equal(await body(), 'third three');
  });

  it('and keeps its sites while the file that has them is being written', async (test) => {
    const site = (port: number, text: string) =>
      `http://localhost:${port} {\n\trespond ${text}\n}\n`;
    const { directory, port, gateway, edit } = await run(test, (port, directory) => ({
      Hubfile: `${options(directory)}${site(port, 'first')}`,
    }));
    const body = async (): Promise<string> => (await send(`http://localhost:${port}/`)).body;
    // As `command > Hubfile` does it: the file is empty, or has its beginning, until the command has written the rest.
    await edit('Hubfile', options(directory), 'the old one keeps serving');
    assert.equal(await body(), 'first');
    await edit('Hubfile', `${options(directory)}${site(port, 'second')}`);
    assert.equal(await body(), 'second');
    await edit('Hubfile', options(directory), 'the old one keeps serving');
    const said = gateway.output.length;
    gateway.child.kill('SIGHUP');
    await gateway.says('Configuration reloaded', said);
    await assert.rejects(body());
  });

  it('and keeps serving when a file is a pipe, a device or nowhere', async (test) => {
    const { directory, port, edit } = await run(test, (port, directory) => ({
      Hubfile: `${options(directory)}http://localhost:${port} {\n\trespond old\n}\n`,
    }));
    const body = async (): Promise<string> => (await send(`http://localhost:${port}/`)).body;
    const pipe = join(directory, 'pipe');
    execFileSync('mkfifo', [pipe]);
    const site = `http://localhost:${port} {\n\trespond new\n`;
    for (const [lines, said] of [
      [`}\nimport ${pipe}\n`, 'not a regular file'],
      ['}\nimport /dev/zero\n', 'not a regular file'],
      [`\theader X {file.${pipe}}\n}\n`, 'not a regular file'],
      [`\ttls ${pipe} ${pipe}\n}\n`, 'not a regular file'],
      ['\tlog {\n\t\toutput file /proc/hubgate/log\n\t}\n}\n', 'ENOENT'],
    ] as const) {
      await edit('Hubfile', `${options(directory)}${site}${lines}`, said);
      assert.equal(await body(), 'old', lines);
    }
    await edit('Hubfile', `${options(directory)}${site}}\n`);
    assert.equal(await body(), 'new');
  });

  it('and keeps the sites of an imported file that has become empty', async (test) => {
    const other = await freePort();
    const { port, gateway, directory, edit } = await run(test, (port, directory) => ({
      Hubfile: `${options(directory)}import *.site\n`,
      'a.site': `http://localhost:${port} {\n\trespond a\n}\n`,
      'b.site': `http://localhost:${other} {\n\trespond b\n}\n`,
    }));
    const body = async (): Promise<string> => (await send(`http://localhost:${port}/`)).body;
    await edit('a.site', '', 'a.site has become empty');
    assert.equal(await body(), 'a');
    await edit('a.site', `http://localhost:${port} {\n\trespond again\n}\n`);
    assert.equal(await body(), 'again');
    await edit('a.site', '', 'a.site has become empty');
    let said = gateway.output.length;
    gateway.child.kill('SIGHUP');
    await gateway.says('Configuration reloaded', said);
    await assert.rejects(body());
    // It was empty before, so nothing keeps another change from being loaded.
    await edit('b.site', `http://localhost:${port} {\n\trespond b\n}\n`);
    assert.equal(await body(), 'b');
    said = gateway.output.length;
    unlinkSync(join(directory, 'a.site'));
    await gateway.says('Configuration reloaded', said);
  });

  it('imported files, new files of a glob, and files that were missing', async (test) => {
    const { port, edit } = await run(test, (port, directory) => ({
      Hubfile: `${options(directory)}http://localhost:${port} {\n\timport *.part\n\trespond /end end\n}\n`,
      'a.part': 'respond /a first\n',
    }));
    const body = async (path: string): Promise<string> =>
      (await send(`http://localhost:${port}${path}`)).body;
    await edit('a.part', 'respond /a second\n');
    assert.equal(await body('/a'), 'second');
    await edit('b.part', 'respond /b new\n');
    assert.equal(await body('/b'), 'new');
    await edit('a.part', 'import missing\n', 'the old one keeps serving');
    assert.equal(await body('/a'), 'second');
    await edit('missing', 'respond /a found\n');
    assert.equal(await body('/a'), 'found');
  });

  it('a new directory that a pattern matches', async (test) => {
    const { directory, port, edit, gateway } = await run(test, (port, place) => ({
      Hubfile: `${options(place)}import sites/*/site.hub\nhttp://127.0.0.1:${port} {\n\trespond end\n}\n`,
    }));
    for (const name of ['one', 'two']) {
      const said = gateway.output.length;
      await mkdir(join(directory, 'sites', name), { recursive: true });
      await edit(
        join('sites', name, 'site.hub'),
        `http://${name}.localhost:${port} {\n\trespond ${name}\n}\n`,
      );
      await gateway.says('Configuration reloaded', said);
      const headers = [['Host', `${name}.localhost:${port}`]] as const;
      assert.equal((await send(`http://127.0.0.1:${port}/`, { headers })).body, name);
    }
  });

  it('secrets in files', async (test) => {
    const { port, edit } = await run(test, (port, directory) => ({
      Hubfile: `${options(directory)}http://localhost:${port} {\n\theader X-Value {file.value}\n\trespond ok\n}\n`,
      value: 'one\n',
    }));
    const value = async () => (await send(`http://localhost:${port}/`)).headers['x-value'];
    assert.equal(await value(), 'one');
    await edit('value', 'two\n');
    assert.equal(await value(), 'two');
  });

  it('reloads nothing when nothing has changed: a comment, another notation, SIGHUP', async (test) => {
    const { port, gateway, edit } = await run(test, (port, directory) => ({
      Hubfile: `${options(directory)}import site\n`,
      site: `http://localhost:${port} {\n\trespond {file.answer}\n}\n`,
      answer: 'one',
    }));
    await edit(
      'site',
      `# The same\nhttp://localhost:${port} {\n\trespond * "{file.answer}" # again\n}\n`,
      'Configuration unchanged',
    );
    const said = gateway.output.length;
    gateway.child.kill('SIGHUP');
    await gateway.says('Configuration unchanged', said);
    // What it takes for unchanged is what runs: the same text with another value is a change.
    await edit('answer', 'two');
    assert.equal((await send(`http://localhost:${port}/`)).body, 'two');
    await edit('answer', 'one');
    assert.equal((await send(`http://localhost:${port}/`)).body, 'one');
  });

  it('the files that it was started with, even after another configuration was posted', async (test) => {
    const admin = await freePort();
    const text = (port: number, directory: string, word: string): string =>
      `${options(directory).replace('admin off', `admin localhost:${admin}`)}http://localhost:${port} {\n\trespond ${word}\n}\n`;
    const { directory, port, edit, gateway } = await run(test, (port, directory) => ({
      Hubfile: text(port, directory, 'one'),
    }));
    const post = async (word: string): Promise<void> => {
      const headers = { 'content-type': 'text/hubfile' };
      const body = text(port, directory, word);
      const answer = await fetch(`http://localhost:${admin}/load`, {
        method: 'POST',
        headers,
        body,
      });
      assert.equal(answer.status, 200);
    };
    const served = async (): Promise<string> => (await send(`http://localhost:${port}/`)).body;
    await post('one');
    await edit('Hubfile', text(port, directory, 'two'));
    assert.equal(await served(), 'two');
    await post('posted');
    assert.equal(await served(), 'posted');
    await edit('Hubfile', text(port, directory, 'three'));
    assert.equal(await served(), 'three');
    assert.equal(await gateway.end(), 0);
  });

  it('not the files of a configuration whose log or admin address is unavailable', async (test) => {
    const [admin, other] = [await freePort(), await freePort()];
    const text = (port: number, directory: string, word: string, more: string): string =>
      `${options(directory).replace('admin off', more)}http://localhost:${port} {\n\trespond ${word}\n}\n`;
    const { directory, port, edit, gateway } = await run(test, (port, directory) => ({
      Hubfile: text(port, directory, 'one', `admin localhost:${admin}`),
    }));
    const served = async (): Promise<string> => (await send(`http://localhost:${port}/`)).body;
    // A file where the directory of the log would be: nothing that could be looked for beforehand.
    const log = `log {\n\t\toutput file /dev/null/log\n\t}`;
    const bad = text(port, directory, 'bad', `admin localhost:${other}\n\t${log}`);
    await edit('Hubfile', bad, 'the old one keeps serving');
    assert.equal(await served(), 'one');
    assert.equal((await send(`http://localhost:${admin}/config/last-error`)).status, 200);
    await edit('Hubfile', text(port, directory, 'two', `admin localhost:${admin}`));
    assert.equal(await served(), 'two');
    assert.equal((await send(`http://localhost:${admin}/config/last-error`)).status, 404);
    assert.equal(await gateway.end(), 0);
  });

  it('certificate and key files: the next handshake gets the new certificate', async (test) => {
    const storage = await mkdtemp(join(tmpdir(), 'hubgate-authority-'));
    removeWith(test, storage);
    const authority = new LocalAuthority(storage, systemClock);
    await authority.prepare();
    const first = await authority.issue(['localhost']);
    const { port, directory, gateway } = await run(test, (port, own) => ({
      Hubfile: `${options(own)}https://localhost:${port} {\n\ttls ${own}/site.crt ${own}/site.key\n\trespond ok\n}\n`,
      'site.crt': first.chain,
      'site.key': first.key,
    }));
    const root = await readFile(join(storage, 'pki/local/root.crt'), 'utf8');
    const before = await serialNumber(port, root);
    const second = await authority.issue(['localhost']);
    // Both at once, as a renewal writes them: read between the two, they would not fit together.
    await Promise.all([
      writeFile(join(directory, 'site.crt'), second.chain),
      writeFile(join(directory, 'site.key'), second.key),
    ]);
    await gateway.says('Configuration reloaded');
    assert.notEqual(await serialNumber(port, root), before);
  });
});

function serialNumber(port: number, ca: string): Promise<string> {
  return new Promise((resolve, reject) => {
    const socket = connect({ port, host: 'localhost', servername: 'localhost', ca }, () => {
      resolve(socket.getPeerCertificate().serialNumber);
      socket.end();
    });
    socket.once('error', reject);
  });
}
