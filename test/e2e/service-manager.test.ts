import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { mkdtemp, readFile, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, it, type TestContext } from 'node:test';
import { ServiceManager } from '../../src/cli/service-manager.ts';
import { freePort } from '../support/free-port.ts';
import { cli, startProcess } from '../support/process.ts';
import { programPath } from '../support/program.ts';
import { RecordedLog } from '../support/recorded-log.ts';
import { removeWith } from '../support/temporary-directory.ts';

/** Node has no such sockets, Python has. */
const LISTEN = `import socket, sys
s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
s.bind(sys.argv[1])
while True:
    print(repr(s.recv(4096).decode()), flush=True)
`;

describe('systemd (sd_notify)', () => {
  it('is notified of ready, reloads and the stop, in this order, and its watchdog is fed', async (test) => {
    const python = programPath(test, 'python3');
    const notify = programPath(test, 'systemd-notify', 'systemd');
    if (python === null || notify === null) return;
    const directory = await mkdtemp(join(tmpdir(), 'hubgate-notify-'));
    removeWith(test, directory);
    const socket = join(directory, 'notify');
    const listener = spawn(python, ['-c', LISTEN, socket], {
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    test.after(() => listener.kill('SIGKILL'));
    let heard = '';
    listener.stdout.on('data', (chunk: Buffer) => (heard += String(chunk)));
    const hears = async (text: string, after = 0): Promise<void> => {
      while (!heard.slice(after).includes(text)) await once(listener.stdout, 'data');
    };
    while (!existsSync(socket)) await new Promise((resolve) => setImmediate(resolve));

    const file = join(directory, 'Hubfile');
    const port = await freePort();
    const hubfile = (answer: string): string =>
      `{\n\tadmin off\n\tstorage ${directory}/storage\n}\nhttp://localhost:${port} {\n\trespond ${answer}\n}\n`;
    await writeFile(file, hubfile('first'));
    const gateway = startProcess(test, [cli, 'run', '--no-watch', '--config', file], {
      NOTIFY_SOCKET: socket,
      WATCHDOG_USEC: '200000',
    });
    await hears('READY=1');
    assert.ok(heard.includes(`MAINPID=${gateway.child.pid ?? 0}`));
    await hears('WATCHDOG=1');
    await writeFile(file, hubfile('second'));
    const before = heard.length;
    gateway.child.kill('SIGHUP');
    await hears('RELOADING=1\\nMONOTONIC_USEC=', before);
    await hears('READY=1', heard.indexOf('RELOADING=1'));
    assert.equal(await gateway.end('SIGTERM'), 0);
    await hears('STOPPING=1');
    assert.ok(heard.indexOf('STOPPING=1') > heard.lastIndexOf('READY=1'));
  });

  it('is notified again after the operating system refused at once to start the program', async (test) => {
    const { said, variables } = await standIn(test);
    const environment: NodeJS.ProcessEnv = {
      ...variables,
      // As for lack of memory, `spawn` throws.
      TOO_LARGE: 'x'.repeat(4 * 1024 ** 2),
    };
    const log = new RecordedLog();
    const manager = new ServiceManager(environment, log);
    manager.ready('Serving');
    await log.says('systemd could not be notified');
    delete environment['TOO_LARGE'];
    await manager.stopping();
    assert.equal(await readFile(said, 'utf8'), 'STOPPING=1\n');
    assert.equal(log.lines.length, 1);
  });

  it('cannot be notified for long: the log does not say so each time', async (test) => {
    const { variables } = await standIn(test);
    const log = new RecordedLog();
    const manager = new ServiceManager({ ...variables, TOO_LARGE: 'x'.repeat(4 * 1024 ** 2) }, log);
    for (let count = 0; count < 19; count += 1) manager.reloading();
    await manager.stopping();
    const warnings = log.lines.filter(({ level }) => level === 'warn');
    // The first, second, fourth, eighth and sixteenth of twenty.
    assert.equal(warnings.length, 5);
  });

  it('hears of no load that ends, or begins, after the stop has begun', async (test) => {
    const { said, variables } = await standIn(test);
    const manager = new ServiceManager({ ...variables, WATCHDOG_USEC: '1000' }, new RecordedLog());
    manager.reloading();
    await manager.stopping();
    manager.ready('Serving');
    manager.reloading();
    await manager.stopping();
    assert.equal(await readFile(said, 'utf8'), 'RELOADING=1\nSTOPPING=1\nSTOPPING=1\n');
  });
});

/** Replaces the program of systemd by one that writes each state to the file `said`. */
async function standIn(test: TestContext) {
  const directory = await mkdtemp(join(tmpdir(), 'hubgate-notify-'));
  removeWith(test, directory);
  const said = join(directory, 'said');
  const program = `#!/bin/sh\necho "$1" >>${said}\n`;
  await writeFile(join(directory, 'systemd-notify'), program, { mode: 0o755 });
  const variables = { NOTIFY_SOCKET: '/run/notify', PATH: `${directory}:/bin:/usr/bin` };
  return { said, variables };
}
