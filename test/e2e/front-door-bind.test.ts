import assert from 'node:assert/strict';
import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { mkdtemp, readFile, stat, writeFile } from 'node:fs/promises';
import { request, type RequestOptions } from 'node:http';
import { connect, createServer, type Server } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, it, type TestContext } from 'node:test';
import { setImmediate } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { freePort } from '../support/free-port.ts';
import { startLibraryGateway } from '../support/gateway.ts';
import { programPath } from '../support/program.ts';
import { cli, SOURCE, startProcess } from '../support/process.ts';
import { removeWith } from '../support/temporary-directory.ts';

const run = promisify(execFile);
const FIXTURE = [
  ...SOURCE,
  fileURLToPath(new URL('./fixtures/handed-gateway.ts', import.meta.url)),
];
const WHO = 'respond "{host} {scheme} {remote_host}."';

describe('bind: interfaces', () => {
  it('binds IPv6, with and without brackets, and nothing else', async (test) => {
    for (const text of ['::1', '[::1]']) {
      const port = await freePort();
      const { gateway } = await startLibraryGateway(
        test,
        `http://:${port} {\n\tbind ${text}\n\t${WHO}\n}\n`,
      );
      const { stdout } = await run('curl', ['-sS', `http://[::1]:${port}/`]);
      assert.equal(stdout, '::1 http ::1.');
      await assert.rejects(fetch(`http://127.0.0.1:${port}/`));
      assert.deepEqual(gateway.listeners, [{ host: '::1', port, socket: null, secure: false }]);
      await gateway.stop();
    }
  });

  it('binds several, a different one for each site', async (test) => {
    const port = await freePort();
    await startLibraryGateway(
      test,
      `http://localhost:${port} {\n\tbind 127.0.0.1 127.0.0.2\n\trespond first\n}\nhttp://:${port} {\n\tbind 127.0.0.3\n\trespond second\n}\n`,
    );
    for (const [address, body] of [
      ['127.0.0.1', 'first'],
      ['127.0.0.2', 'first'],
      ['127.0.0.3', 'second'],
    ] as const) {
      const to = `localhost:${port}:${address}:${port}`;
      const { stdout } = await run('curl', [
        '-sS',
        '--connect-to',
        to,
        `http://localhost:${port}/`,
      ]);
      assert.equal(stdout, body);
    }
  });
});

describe('bind: Unix sockets', () => {
  it('serves every address of the site, whatever its port, to users that the file mode allows', async (test) => {
    const directory = await temporary(test);
    const [path, open] = [join(directory, 'a.sock'), join(directory, 'open.sock')];
    const { gateway } = await startLibraryGateway(
      test,
      `http://a.example, http://b.example:8081 {\n\tbind unix/${path} unix/${open}|0666\n\t${WHO}\n}\n`,
    );
    for (const [socket, mode] of [
      [path, 0o600],
      [open, 0o666],
    ] as const) {
      assert.equal((await stat(socket)).mode & 0o777, mode);
      assert.equal(await ask(socket, 'a.example'), '200 a.example http .');
      assert.equal(await ask(socket, 'b.example:8081'), '200 b.example http .');
      assert.equal(await ask(socket, 'c.example'), '421 Misdirected Request\n');
    }
    assert.deepEqual(gateway.listeners, [
      { host: '', port: 0, socket: `unix/${path}`, secure: false },
      { host: '', port: 0, socket: `unix/${open}|0666`, secure: false },
    ]);
    await gateway.stop();
    assert.ok(!existsSync(path) && !existsSync(open), 'the files go with the listeners');
  });

  it('speaks TLS and HTTP/2 for an HTTPS site, and opens no port for a redirect', async (test) => {
    const path = join(await temporary(test), 'a.sock');
    const { gateway, rootFile } = await startLibraryGateway(
      test,
      `a.localhost {\n\tbind unix/${path}\n\ttls internal\n\t${WHO}\n}\n`,
      '',
    );
    for (const flag of ['--http1.1', '--http2']) {
      const flags = ['-sS', '--cacert', rootFile, '--unix-socket', path, flag];
      const { stdout } = await run('curl', [...flags, 'https://a.localhost/']);
      assert.equal(stdout, 'a.localhost https .');
    }
    assert.equal(gateway.listeners.length, 1);
  });

  it('replaces the socket file of a dead process', async (test) => {
    const path = join(await temporary(test), 'a.sock');
    // Killed, it cannot remove its socket.
    const child = spawn(
      process.execPath,
      [
        '-e',
        `require('net').createServer().listen(${JSON.stringify(path)},()=>console.log('ready'))`,
      ],
      { stdio: ['ignore', 'pipe', 'inherit'] },
    );
    await once(child.stdout, 'data');
    child.kill('SIGKILL');
    await once(child, 'exit');
    assert.ok(existsSync(path));
    await startLibraryGateway(test, `http://a.example {\n\tbind unix/${path}\n\t${WHO}\n}\n`);
    assert.equal(await ask(path, 'a.example'), '200 a.example http .');
  });

  it('does not replace the socket of a running process, nor a file that is not a socket', async (test) => {
    const directory = await temporary(test);
    const [living, file] = [join(directory, 'a.sock'), join(directory, 'file')];
    const server = createServer((socket) => {
      // Whether somebody listens is found out by a connection that says nothing.
      socket.on('error', () => {});
      socket.end('mine');
    });
    server.listen(living);
    await once(server, 'listening');
    test.after(() => server.close());
    await writeFile(file, 'content');
    for (const path of [living, file]) {
      await assert.rejects(
        startLibraryGateway(test, `http://a.example {\n\tbind unix/${path}\n\t${WHO}\n}\n`),
        (error: Error & { code?: string }) =>
          error.code === 'listen-failed' && error.message.includes(`unix/${path}`),
      );
    }
    const [data] = await once(connect(living), 'data');
    assert.equal(String(data), 'mine');
    assert.equal((await stat(file)).size, 'content'.length);
  });

  it('keeps the socket open during a reload, and requests in flight continue', async (test) => {
    const path = join(await temporary(test), 'a.sock');
    const site = (routes: string): string =>
      `http://a.example {\n\tbind unix/${path}\n\t${routes}\n}\n`;
    const { reload } = await startLibraryGateway(test, site('respond one'));
    const before = await stat(path);
    const kept = connect(path);
    test.after(() => kept.destroy());
    const get = 'GET / HTTP/1.1\r\nHost: a.example\r\n\r\n';
    kept.write(get);
    assert.match(String(await once(kept, 'data')), /one$/);
    await reload(site('respond two'));
    kept.write(get);
    assert.match(String(await once(kept, 'data')), /two$/);
    assert.equal(await ask(path, 'a.example'), '200 two');
    const after = await stat(path);
    assert.equal(after.ino, before.ino);
    await reload('http://a.example {\n\tbind unix/' + path + '.other\n\trespond three\n}\n');
    assert.equal(await ask(`${path}.other`, 'a.example'), '200 three');
  });

  it('changes the mode of the socket with a reload', async (test) => {
    const path = join(await temporary(test), 'a.sock');
    const site = (mode: string): string =>
      `http://a.example {\n\tbind unix/${path}|${mode}\n\t${WHO}\n}\n`;
    const { reload } = await startLibraryGateway(test, site('0666'));
    const { ino } = await stat(path);
    for (const mode of ['0600', '0660']) {
      await reload(site(mode));
      assert.equal((await stat(path)).ino, ino);
      assert.equal((await stat(path)).mode & 0o777, Number.parseInt(mode, 8));
      assert.equal(await ask(path, 'a.example'), '200 a.example http .');
    }
  });

  it('resolves a relative path from the working directory', async (test) => {
    const directory = await temporary(test);
    const before = process.cwd();
    process.chdir(directory);
    test.after(() => process.chdir(before));
    await startLibraryGateway(test, `http://a.example {\n\tbind unix/a.sock\n\t${WHO}\n}\n`);
    assert.equal(await ask(join(directory, 'a.sock'), 'a.example'), '200 a.example http .');
  });
});

describe('bind: inherited sockets', () => {
  it('serves on a descriptor, TCP or Unix, and keeps it during a reload', async (test) => {
    const { child, stdin, port, listeners, order } = await startHanded(test);
    assert.match(listeners, new RegExp(`fd/3 ${port} fd/4 0`));
    assert.equal(await get(port, 'a.example'), '200 one');
    await order('reload');
    assert.equal(await get(port, 'a.example'), '200 two');
    const exit = once(child, 'exit');
    stdin.end();
    assert.deepEqual(await exit, [0, null]);
    await assert.rejects(get(port, 'a.example'));
  });

  it('keeps a descriptor that no configuration uses, also after a dry run and after a reload that fails', async (test) => {
    const { child, stdin, port, order } = await startHanded(test);
    assert.equal(await get(port, 'a.example'), '200 one');
    for (const between of ['leave', 'dry-run', 'fail']) {
      await order('leave');
      await assert.rejects(get(port, 'a.example'), between);
      await order(between);
      await assert.rejects(get(port, 'a.example'), between);
      await order('reload');
      assert.equal(await get(port, 'a.example'), '200 two', between);
    }
    const exit = once(child, 'exit');
    stdin.end();
    assert.deepEqual(await exit, [0, null]);
  });

  it('serves the first connection, for which systemd-socket-activate starts it', async (test) => {
    const program = programPath(test, 'systemd-socket-activate', 'systemd');
    if (program === null) return;
    const [port, other] = [await freePort(), await freePort()];
    const sockets = ['-l', `127.0.0.1:${port}`, '-l', `127.0.0.1:${other}`];
    const child = spawn(program, [...sockets, process.execPath, ...FIXTURE], {
      stdio: ['pipe', 'ignore', 'pipe'],
    });
    test.after(() => child.kill('SIGKILL'));
    let said = '';
    child.stderr.on('data', (chunk: Buffer) => (said += String(chunk)));
    while (!said.includes(`:${other}`)) await once(child.stderr, 'data');
    assert.equal(await get(port, 'a.example'), '200 one');
    assert.equal(await get(other, 'a.example'), '200 one');
  });

  it('ends with an error when all workers have ended, because their descriptor is closed then', async (test) => {
    const directory = await temporary(test);
    const hubfile = join(directory, 'Hubfile');
    await writeFile(
      hubfile,
      `{\n\tstorage ${directory}/storage\n\tadmin off\n\tworkers 2\n}\nhttp://a.example {\n\tbind fd/3\n\trespond ok\n}\n`,
    );
    const server = await listening(test, { port: 0, host: '127.0.0.1' });
    const address = server.address();
    assert.ok(address !== null && typeof address === 'object');
    const child = spawn(process.execPath, [cli, 'run', '--no-watch', '--config', hubfile], {
      stdio: ['ignore', 'pipe', 'pipe', handleOf(server)],
    });
    test.after(() => child.kill('SIGKILL'));
    let said = '';
    child.stdout?.on('data', (chunk: Buffer) => (said += String(chunk)));
    child.stderr?.on('data', (chunk: Buffer) => (said += String(chunk)));
    while (!said.includes('Listening on')) await setImmediate();
    server.close();
    assert.equal(await get(address.port, 'a.example'), '200 ok');
    const [one, other] = await childrenOf(child.pid ?? 0);
    process.kill(one ?? 0, 'SIGKILL');
    while (!said.includes('A worker was replaced')) await setImmediate();
    assert.equal(await get(address.port, 'a.example'), '200 ok');
    const left = await childrenOf(child.pid ?? 0);
    assert.ok(other !== undefined && left.includes(other));
    const exit = once(child, 'close');
    for (const pid of left) process.kill(pid, 'SIGKILL');
    assert.deepEqual(await exit, [1, null]);
    assert.match(said, /Cannot listen on fd\/3: it was closed when the last worker ended/);
  });

  it('reports a descriptor that is not a listening socket', async (test) => {
    await assert.rejects(
      startLibraryGateway(test, `http://a.example {\n\tbind fd/999\n\t${WHO}\n}\n`),
      (error: Error & { code?: string }) =>
        error.code === 'listen-failed' &&
        /fd\/999: it is not a listening socket/.test(error.message),
    );
  });

  it('says why it needs a port on which nobody has written a site', async (test) => {
    const server = await listening(test, { port: 0, host: '127.0.0.1' });
    const address = server.address();
    assert.ok(address !== null && typeof address === 'object');
    const options = `\tlocal_certs\n\thttp_port ${address.port}\n`;
    const site = `https://localhost:${await freePort()} {\n\tbind 127.0.0.1\n\t${WHO}\n}\n`;
    await assert.rejects(startLibraryGateway(test, site, options), (error: Error) => {
      assert.match(error.message, /another program uses it.*no site is there.*auto_https/);
      return true;
    });
    const own = `http://localhost:${address.port} {\n\tbind 127.0.0.1\n\t${WHO}\n}\n`;
    await assert.rejects(startLibraryGateway(test, own), (error: Error) => {
      assert.match(error.message, /another program uses it; stop .* choose another port$/);
      return true;
    });
  });
});

describe('bind: the output of run', () => {
  it('names interfaces, sockets and descriptors', async (test) => {
    const directory = await temporary(test);
    const port = await freePort();
    const path = join(directory, 'a.sock');
    const hubfile = join(directory, 'Hubfile');
    await writeFile(
      hubfile,
      `{\n\tstorage ${directory}/storage\n\tadmin off\n}\nhttp://:${port} {\n\tbind ::1 unix/${path}\n\trespond ok\n}\n`,
    );
    const gateway = startProcess(test, [cli, 'run', '--config', hubfile, '--no-watch']);
    await gateway.says(`Listening on http://[::1]:${port}`);
    await gateway.says(`Listening on http on unix/${path}`);
    await gateway.end();
    assert.ok(!existsSync(path));
  });
});

/** Starts the fixture on the sockets of two servers of this process. */
async function startHanded(test: TestContext) {
  const path = join(await temporary(test), 'handed.sock');
  const [tcp, unix] = [
    await listening(test, { port: 0, host: '127.0.0.1' }),
    await listening(test, { path }),
  ];
  const address = tcp.address();
  assert.ok(address !== null && typeof address === 'object');
  const child = spawn(process.execPath, FIXTURE, {
    stdio: ['pipe', 'pipe', 'inherit', handleOf(tcp), handleOf(unix)],
  });
  test.after(() => child.kill('SIGKILL'));
  const { stdin, stdout } = child;
  assert.ok(stdin !== null && stdout !== null);
  let said = '';
  stdout.on('data', (chunk: Buffer) => (said += String(chunk)));
  const says = async (text: string): Promise<string> => {
    while (!said.includes(text)) await once(stdout, 'data');
    const found = said;
    said = '';
    return found;
  };
  const listeners = await says('started');
  // This process holds the same sockets, but only the gateway accepts.
  tcp.close();
  unix.close();
  const order = async (text: string): Promise<void> => {
    stdin.write(`${text}\n`);
    await says(`${text} done`);
  };
  return { child, stdin, port: address.port, listeners, order };
}

async function temporary(test: TestContext): Promise<string> {
  const directory = await mkdtemp(join(tmpdir(), 'hubgate-bind-'));
  removeWith(test, directory);
  return directory;
}

function ask(socketPath: string, host: string): Promise<string> {
  return answer({ socketPath, headers: { host } });
}

function get(port: number, host: string): Promise<string> {
  return answer({ port, host: '127.0.0.1', headers: { host } });
}

/** Status and body of the answer, on a connection of its own. */
function answer(options: RequestOptions): Promise<string> {
  return new Promise((resolve, reject) => {
    const asked = request({ ...options, agent: false }, (response) => {
      let text = '';
      response.on('data', (chunk: Buffer) => (text += String(chunk)));
      response.on('end', () => resolve(`${response.statusCode} ${text}`));
    });
    asked.once('error', reject);
    asked.end();
  });
}

async function listening(
  test: TestContext,
  where: { port: number; host: string } | { path: string },
): Promise<Server> {
  const server = createServer();
  server.listen(where);
  await once(server, 'listening');
  test.after(() => server.close());
  return server;
}

async function childrenOf(pid: number): Promise<readonly number[]> {
  const children = await readFile(`/proc/${pid}/task/${pid}/children`, 'utf8');
  return children.split(' ').filter(Boolean).map(Number);
}

/** The descriptor of a server, which Node does not tell officially. */
function handleOf(server: Server): number {
  const handle: unknown = Reflect.get(server, '_handle');
  assert.ok(typeof handle === 'object' && handle !== null && 'fd' in handle);
  assert.ok(typeof handle.fd === 'number');
  return handle.fd;
}
