import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { chmodSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { TestContext } from 'node:test';
import { freePort } from './free-port.ts';
import type { Owner } from './http.ts';
import type { PostgresServer } from './postgres-server.ts';
import { programPath } from './program.ts';
import { temporaryDirectory } from './temporary-directory.ts';

/**
 * Starts PgBouncer in front of a server.
 *
 * @returns null when it is not installed; the test is skipped then
 */
export async function startPgBouncer(
  test: TestContext,
  owner: Owner,
  { port: server }: PostgresServer,
  mode: 'session' | 'transaction',
): Promise<{ readonly url: string } | null> {
  const program = programPath(test, 'pgbouncer');
  if (program === null) return null;
  const directory = await temporaryDirectory(owner);
  chmodSync(directory, 0o755);
  const port = await freePort();
  const file = join(directory, 'pgbouncer.ini');
  writeFileSync(join(directory, 'users.txt'), '"postgres" ""\n');
  const lines = [
    '[databases]',
    // With `auth_type = any`, it needs to know the user of the server.
    `postgres = host=127.0.0.1 port=${server} user=postgres`,
    '[pgbouncer]',
    'listen_addr = 127.0.0.1',
    `listen_port = ${port}`,
    'unix_socket_dir =',
    'auth_type = any',
    `auth_file = ${join(directory, 'users.txt')}`,
    `pool_mode = ${mode}`,
  ];
  writeFileSync(file, `${lines.join('\n')}\n`);
  const root = process.getuid?.() === 0 ? { uid: 65_534, gid: 65_534 } : {};
  const child = spawn(program, [file], { ...root, stdio: ['ignore', 'ignore', 'pipe'] });
  owner.after(async () => {
    if (child.exitCode !== null || child.signalCode !== null) return;
    const exit = once(child, 'exit');
    child.kill('SIGKILL');
    await exit;
  });
  let said = '';
  await new Promise<void>((resolve, reject) => {
    child.stderr.on('data', (chunk: Buffer) => {
      said += chunk;
      if (said.includes('process up')) resolve();
    });
    child.once('exit', () => reject(new Error(`pgbouncer has ended:\n${said}`)));
  });
  return { url: `postgres://postgres@127.0.0.1:${port}/postgres` };
}
