import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdtemp, readFile, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { promisify } from 'node:util';
import { freePort } from '../support/free-port.ts';
import { cli, root, runCommand, startProcess } from '../support/process.ts';
import { packageDirectory } from '../support/installed-package.ts';
import { removeWith } from '../support/temporary-directory.ts';

const KEYS = {
  HUB_PUBLISHER_JWT_KEY: 'publisher-key-of-the-test-0123456789abcdef',
  HUB_SUBSCRIBER_JWT_KEY: 'subscriber-key-of-the-test-0123456789abcdef',
};

describe('README', () => {
  it('its curl commands do what it says, copied and pasted', { timeout: 60_000 }, async (test) => {
    const directory = await mkdtemp(join(tmpdir(), 'hubgate-readme-'));
    removeWith(test, directory);
    const [https, http, app] = [await freePort(), await freePort(), await freePort()];
    // The test must not take the ports that the README names; nothing else is changed.
    const withPorts = (text: string): string =>
      text.replaceAll('8443', String(https)).replaceAll('8080', String(http));
    const example = await readFile(join(root, 'Hubfile.example'), 'utf8');
    const hubfile = join(directory, 'Hubfile');
    const storage = join(directory, '.hubgate');
    await writeFile(
      hubfile,
      withPorts(example).replace('storage .hubgate', `admin off\n\tstorage ${storage}`),
    );
    const gateway = startProcess(test, [cli, 'run', '--config', hubfile], {
      ...KEYS,
      APP_PORT: String(app),
    });
    await gateway.says(`:${https}`);
    const appProcess = startProcess(test, [join(root, 'examples/app/server.mjs')], {
      ...KEYS,
      PORT: String(app),
      SITE: `https://localhost:${https}`,
      NODE_EXTRA_CA_CERTS: join(storage, 'pki/local/root.crt'),
    });
    await appProcess.says('app: http');
    const { stdout: token } = await runCommand([
      ...['token', '--iss', `https://localhost:${https}`],
      ...['--aud', `https://localhost:${https}/.well-known/hub`],
      ...['--key', KEYS.HUB_PUBLISHER_JWT_KEY],
      ...['--publish-urlpattern', `https://localhost:${https}/*`],
    ]);
    await writeFile(join(storage, 'publisher.token'), token);
    await symlink(join(packageDirectory, 'dist'), join(directory, 'dist'));

    const readme = await readFile(join(root, 'README.md'), 'utf8');
    const commands = [...readme.matchAll(/```sh\n(curl [^`]+)```/g)].map(([, command]) =>
      (command ?? '').trim(),
    );
    assert.equal(commands.length, 3);
    const [publish, subscribe, link] = commands.map(withPorts);
    const run = async (command = ''): Promise<string> =>
      (await promisify(execFile)('bash', ['-c', command], { cwd: directory })).stdout;
    assert.match(await run(publish), /^urn:uuid:[0-9a-f-]{36}$/);
    // The stream goes on for ever; curl's own limit ends it, with its exit code 28.
    const stream = await run(`${subscribe?.replace('curl -N', 'curl -N -m 2')} || [ $? -eq 28 ]`);
    assert.match(
      stream,
      /^:\nid: urn:uuid:[0-9a-f-]{36}\ndata: \{"id":"curl-1","from":"curl","text":"hello"\}\n\n/,
    );
    assert.match(
      await run(link),
      /^link: <\/\.well-known\/hub>; rel="hub"; last-event-id="urn:uuid:/i,
    );
  });

  it('its Hubfile is valid', async (test) => {
    const directory = await mkdtemp(join(tmpdir(), 'hubgate-readme-'));
    removeWith(test, directory);
    const readme = await readFile(join(root, 'README.md'), 'utf8');
    const [, hubfile = ''] = /```hubfile\n(example\.com \{[^`]+)```/.exec(readme) ?? [];
    await writeFile(join(directory, 'Hubfile'), hubfile);
    const { code, stderr } = await runCommand(
      ['validate', '--config', join(directory, 'Hubfile')],
      KEYS,
    );
    assert.equal(code, 0, stderr);
  });
});
