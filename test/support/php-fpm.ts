import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readdirSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { TestContext } from 'node:test';
import { freePort } from './free-port.ts';
import { isMissed } from './program.ts';
import { temporaryDirectory } from './temporary-directory.ts';

export interface PhpFpm {
  /** As a Hubfile and a Caddyfile name it. */
  readonly upstream: string;
}

/** Debian's php-fpm with two workers, at a port or a socket; null where it is not installed. */
export async function startPhpFpm(
  test: TestContext,
  at: 'port' | 'socket' = 'port',
): Promise<PhpFpm | null> {
  const program = readdirSync('/usr/sbin').find((name) => /^php-fpm\d/.test(name));
  if (program === undefined) {
    isMissed(test, 'php-fpm is not installed (apt-get install php-fpm)');
    return null;
  }
  const directory = await temporaryDirectory(test);
  const listen = at === 'socket' ? join(directory, 'fpm.sock') : `127.0.0.1:${await freePort()}`;
  const file = join(directory, 'fpm.conf');
  await writeFile(
    file,
    `[global]\nerror_log = ${join(directory, 'fpm.log')}\ndaemonize = no\n[www]\nuser = root\nlisten = ${listen}\npm = static\npm.max_children = 2\n`,
  );
  const root = process.getuid?.() === 0 ? ['--allow-to-run-as-root'] : [];
  const args = ['--nodaemonize', '--force-stderr', ...root, '--fpm-config', file];
  const fpm = spawn(join('/usr/sbin', program), args, { stdio: ['ignore', 'ignore', 'pipe'] });
  const exited = once(fpm, 'exit');
  test.after(async () => {
    // Its workers end with it only so.
    fpm.kill('SIGTERM');
    await exited;
  });
  await new Promise<void>((resolve, reject) => {
    let said = '';
    fpm.stderr.on('data', (chunk: Buffer) => {
      said += String(chunk);
      if (said.includes('ready to handle connections')) resolve();
    });
    fpm.once('exit', () => reject(new Error(`php-fpm ended: ${said}`)));
  });
  const upstream = at === 'socket' ? `unix/${listen}` : listen;
  return { upstream };
}
