import assert from 'node:assert/strict';
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { createClientAuthority } from '../support/client-authority.ts';
import { freePort } from '../support/free-port.ts';
import { cli, startProcess } from '../support/process.ts';
import { temporaryDirectory } from '../support/temporary-directory.ts';

describe('startup and the storage', () => {
  it('a damaged local authority does not stop a gateway with certificate files', async (test) => {
    const directory = await temporaryDirectory(test);
    const pki = join(directory, 'storage', 'pki', 'local');
    await mkdir(pki, { recursive: true });
    for (const name of ['root.crt', 'root.key']) await writeFile(join(pki, name), 'damaged');
    createClientAuthority(directory, 'root').issue('site');
    const file = join(directory, 'Hubfile');
    const write = async (tls: string): Promise<void> =>
      writeFile(
        file,
        `{\n\tadmin off\n\tauto_https off\n\tstorage ${directory}/storage\n}\nlocalhost:${await freePort()} {\n\ttls ${tls}\n\trespond hello\n}\n`,
      );
    await write(`${directory}/site.crt ${directory}/site.key`);
    const running = startProcess(test, [cli, 'run', '--no-watch', '--config', file]);
    await running.says('Listening on https');
    assert.equal(await running.end(), 0);
    await write('internal');
    const refused = startProcess(test, [cli, 'run', '--no-watch', '--config', file]);
    assert.equal(await refused.exited(), 1);
    assert.match(refused.output, /cannot use .*root\.(?:crt|key)/);
  });

  it('a gateway that waits for the lock of another process says so, and stops on SIGTERM', async (test) => {
    const directory = await temporaryDirectory(test);
    const lock = join(directory, 'storage', 'pki', 'local', 'lock.d');
    await mkdir(lock, { recursive: true });
    const holder = {
      host: 'elsewhere',
      pid: 42,
      owner: 'another',
      since: Date.now(),
      expires: Date.now() + 3_600_000,
    };
    await writeFile(join(lock, '1'), JSON.stringify(holder));
    const file = join(directory, 'Hubfile');
    await writeFile(
      file,
      `{\n\tadmin off\n\tstorage ${directory}/storage\n\tauto_https off\n}\nlocalhost:${await freePort()} {\n\ttls internal\n}\n`,
    );
    const running = startProcess(test, [cli, 'run', '--no-watch', '--config', file]);
    await running.says('Waiting for a lock');
    assert.match(running.output, /"file":"[^"]*pki\/local\/lock\.d","host":"elsewhere","pid":42/);
    assert.equal(await running.end('SIGTERM'), 0);
    assert.match(running.output, /"during":"the start"/);
  });
});
