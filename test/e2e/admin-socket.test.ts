import assert from 'node:assert/strict';
import { once } from 'node:events';
import { existsSync, readdirSync } from 'node:fs';
import { mkdtemp, stat, writeFile } from 'node:fs/promises';
import { request } from 'node:http';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, it, type TestContext } from 'node:test';
import { freePort } from '../support/free-port.ts';
import { send } from '../support/http.ts';
import { cli, runCommand, startProcess, type TestProcess } from '../support/process.ts';
import { removeWith } from '../support/temporary-directory.ts';

interface Place {
  readonly directory: string;
  readonly file: string;
  readonly socket: string;
  readonly site: string;
  /** Writes a Hubfile with this admin option. */
  write(admin?: string, more?: string): Promise<void>;
}

async function place(test: TestContext): Promise<Place> {
  const directory = await mkdtemp(join(tmpdir(), 'hubgate-socket-'));
  removeWith(test, directory);
  const file = join(directory, 'Hubfile');
  const socket = join(directory, 'admin.sock');
  const site = `http://localhost:${await freePort()}`;
  const write = (admin = `unix/${socket}`, more = ''): Promise<void> =>
    writeFile(
      file,
      `{\n\tadmin ${admin}\n\tstorage ${directory}/storage\n\tgrace_period 1s\n}\n${site} {\n\trespond first\n}\n${more}`,
    );
  await write();
  return { directory, file, socket, site, write };
}

async function run(test: TestContext, { file }: Place): Promise<TestProcess> {
  const gateway = startProcess(test, [cli, 'run', '--no-watch', '--config', file]);
  await gateway.says('Admin API on');
  return gateway;
}

/** Status and body, asked through a Unix socket. */
function ask(
  socketPath: string,
  path: string,
  headers: Readonly<Record<string, string>> = {},
  method = 'GET',
): Promise<{ readonly status: number; readonly body: string }> {
  return new Promise((resolve, reject) => {
    const asked = request({ socketPath, path, headers, method, agent: false }, (response) => {
      let body = '';
      response.on('data', (chunk: Buffer) => (body += String(chunk)));
      response.on('end', () => resolve({ status: response.statusCode ?? 0, body }));
    });
    asked.once('error', reject);
    asked.end();
  });
}

const modeOf = async (path: string): Promise<number> => (await stat(path)).mode & 0o777;

async function reloaded(gateway: TestProcess, says = 'Configuration reloaded'): Promise<void> {
  const said = gateway.output.length;
  gateway.child.kill('SIGHUP');
  await gateway.says(says, said);
}

describe('the admin API on a Unix socket', () => {
  it('is for its owner only, and commands find it in the file', async (test) => {
    const at = await place(test);
    const { file, socket, write } = at;
    const gateway = await run(test, at);
    await gateway.says(`Admin API on unix/${socket}`);
    assert.equal(await modeOf(socket), 0o600);
    const config = JSON.parse((await ask(socket, '/config')).body);
    assert.deepEqual(config.options.admin, { socket: `unix/${socket}`, origins: [] });
    for (const address of [[], ['--address', `unix/${socket}`]]) {
      const to = ['--config', file, ...address];
      const top = await runCommand(['top', '--once', '--interval', '0.1', ...to]);
      assert.match(top.stdout, new RegExp(`on unix/${socket}`));
      const stats = await runCommand(['cache', 'stats', ...to]);
      assert.equal(stats.code, 0, stats.stderr);
      const reload = await runCommand(['reload', ...to]);
      assert.equal(reload.stderr, `The gateway on unix/${socket} has loaded ${file}\n`);
    }
    await write(`unix/${socket}|0660`);
    const dryRun = await runCommand(['reload', '--dry-run', '--config', file]);
    assert.match(dryRun.stdout, new RegExp(`listener opened +admin unix/${socket}\\|0660\n`));
    const stopped = await runCommand(['stop', '--wait', '--config', file]);
    assert.equal(stopped.code, 0, stopped.stderr);
    assert.equal(await gateway.exited(), 0);
    assert.ok(!existsSync(socket));
    const none = await runCommand(['stop', '--config', file]);
    assert.equal(none.code, 1);
    assert.match(none.stderr, /No gateway answers on unix\/\S+: there is no such file/);
  });

  it('accepts any name but no page; with origins, only the names in them', async (test) => {
    const at = await place(test);
    const { socket, write } = at;
    const gateway = await run(test, at);
    const asks = async (rows: readonly (readonly [Record<string, string>, number])[]) => {
      for (const [headers, status] of rows) {
        const answered = await ask(socket, '/config', headers);
        assert.equal(answered.status, status, JSON.stringify(headers));
      }
    };
    await asks([
      [{ host: 'any.example' }, 200],
      [{ host: '' }, 200],
      [{ origin: 'http://evil.example' }, 403],
      [{ 'sec-fetch-site': 'cross-site' }, 403],
    ]);
    await write(`unix/${socket} {\n\t\torigins gateway.example\n\t}`);
    await reloaded(gateway);
    await asks([
      [{ host: 'gateway.example' }, 200],
      [{ host: 'localhost' }, 200],
      [{ host: 'any.example' }, 403],
    ]);
  });

  it('replaces the file of a dead process, but nothing that is alive or another file', async (test) => {
    const at = await place(test);
    const { directory, file, socket, write } = at;
    const dead = await run(test, at);
    dead.child.kill('SIGKILL');
    await once(dead.child, 'exit');
    assert.ok(existsSync(socket));
    await run(test, at);
    assert.equal((await ask(socket, '/health/ready')).status, 200);

    await write(undefined, `http://localhost:${await freePort()} {\n}\n`);
    const second = await runCommand(['run', '--config', file]);
    assert.equal(second.code, 1);
    const taken = /Cannot open the admin API on unix\/\S+: another program uses it.*admin off/;
    assert.match(second.stderr, taken);
    assert.equal((await ask(socket, '/health/ready')).status, 200);

    const other = join(directory, 'other');
    await writeFile(other, 'content');
    await write(`unix/${other}`);
    const refused = await runCommand(['run', '--config', file]);
    assert.equal(refused.code, 1);
    assert.match(refused.stderr, /unix\/\S+: the file is not a socket/);
    assert.equal((await stat(other)).size, 'content'.length);

    await write(`unix/${directory}/none/admin.sock`);
    const lost = await runCommand(['run', '--config', file]);
    assert.match(lost.stderr, /unix\/\S+: the directory does not exist, or/);
  });

  it('moves with a reload, and stays if the new configuration cannot be served', async (test) => {
    const at = await place(test);
    const { directory, socket, site, write } = at;
    const gateway = await run(test, at);
    const before = (await stat(socket)).ino;
    await write(undefined, '# only a comment\n');
    await reloaded(gateway, 'Configuration unchanged');
    assert.equal((await stat(socket)).ino, before);

    const server = createServer().listen(0, '127.0.0.1');
    test.after(() => server.close());
    await once(server, 'listening');
    const address = server.address();
    assert.ok(address !== null && typeof address === 'object');
    const taken = `http://localhost:${address.port} {\n\tbind 127.0.0.1\n}\n`;
    const second = join(directory, 'second.sock');
    for (const admin of [`unix/${second}`, `unix/${socket}|0666`, 'off']) {
      await write(admin, taken);
      await reloaded(gateway, 'the old one keeps serving');
      assert.equal((await ask(socket, '/config/last-error')).status, 200, admin);
      assert.equal(await modeOf(socket), 0o600);
      assert.ok(!existsSync(second));
    }

    await write(`unix/${socket}|0660`);
    await reloaded(gateway);
    assert.equal(await modeOf(socket), 0o660);
    assert.equal((await ask(socket, '/health/ready')).status, 200);

    await write(`unix/${second}`);
    await reloaded(gateway);
    assert.equal((await ask(second, '/health/ready')).status, 200);
    assert.ok(!existsSync(socket));

    const port = await freePort();
    await write(`127.0.0.1:${port}`);
    await reloaded(gateway);
    assert.equal((await send(`http://127.0.0.1:${port}/health/ready`)).status, 200);
    assert.ok(!existsSync(second));

    await write();
    await reloaded(gateway);
    assert.equal((await ask(socket, '/health/ready')).status, 200);
    await assert.rejects(send(`http://127.0.0.1:${port}/health/ready`));

    await write('off');
    await reloaded(gateway);
    assert.ok(!existsSync(socket));
    assert.equal((await send(site)).body, 'first');
  });

  it('belongs to the main process of workers', async (test) => {
    const at = await place(test);
    const { directory, socket, write } = at;
    await write(`unix/${socket}|0640\n\tworkers 2`);
    const gateway = await run(test, at);
    assert.equal(await modeOf(socket), 0o640);
    assert.match((await ask(socket, '/metrics')).body, /^# HELP/);
    assert.equal((await ask(socket, '/stop', {}, 'POST')).status, 200);
    assert.equal(await gateway.exited(), 0);
    assert.deepEqual(
      readdirSync(directory).filter((name) => name.endsWith('.sock')),
      [],
    );
  });

  it('has a path in which the gateway and the commands resolve placeholders', async (test) => {
    const { directory, file, socket, write } = await place(test);
    await write('unix/{env.ADMIN_DIRECTORY}/admin.sock');
    const variables = join(directory, 'variables');
    const named = ['--config', file, '--envfile', variables];
    await writeFile(variables, `ADMIN_DIRECTORY=/${'a'.repeat(120)}\n`);
    const refused = await runCommand(['validate', ...named]);
    assert.equal(refused.code, 1);
    assert.match(refused.stderr, /Hubfile:2:2: error: .* is too long for the path of a socket/);
    await writeFile(variables, `ADMIN_DIRECTORY=${directory}\n`);
    const gateway = startProcess(test, [cli, 'run', '--no-watch', ...named]);
    await gateway.says(`Admin API on unix/${socket}`);
    const done = await runCommand(['reload', ...named]);
    assert.equal(done.code, 0, done.stderr);
    assert.equal((await runCommand(['stop', ...named])).code, 0);
  });

  it('is refused as an address that is not a valid path', async (test) => {
    const { file } = await place(test);
    for (const address of ['unix/', 'unix//run/', `unix//${'a'.repeat(107)}`]) {
      const { code, stderr } = await runCommand(['stop', '--config', file, '--address', address]);
      assert.equal(code, 64);
      assert.match(stderr, /--address is host:port or unix/);
    }
  });
});
