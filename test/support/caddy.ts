import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { TestContext } from 'node:test';
import { freePort } from './free-port.ts';
import { programPath } from './program.ts';

/**
 * Debian's Caddy with a site of these directives, beside which a test puts the same request to both.
 *
 * @returns where it answers; null where it is not installed, and the test is skipped then
 */
export async function startCaddy(test: TestContext, directives: string): Promise<string | null> {
  const origin = `http://127.0.0.1:${await freePort()}`;
  const caddyfile = `{\n\tadmin off\n}\n${origin} {\n${directives}}\n`;
  return (await runCaddy(test, caddyfile)) ? origin : null;
}

/**
 * The same with a whole Caddyfile; false where it is not installed.
 *
 * @param certificates that it has got before it is ready
 */
export async function runCaddy(
  test: TestContext,
  caddyfile: string,
  certificates = 0,
): Promise<boolean> {
  const program = programPath(test, 'caddy');
  if (program === null) return false;
  const directory = await mkdtemp(join(tmpdir(), 'hubgate-caddy-'));
  const file = join(directory, 'Caddyfile');
  await writeFile(file, caddyfile);
  const args = ['run', '--adapter', 'caddyfile', '--config', file];
  const env = { ...process.env, HOME: directory, XDG_DATA_HOME: directory };
  const caddy = spawn(program, args, { env, stdio: ['ignore', 'ignore', 'pipe'] });
  const exited = once(caddy, 'exit');
  test.after(async () => {
    caddy.kill('SIGKILL');
    await exited;
    await rm(directory, { recursive: true, force: true });
  });
  await new Promise<void>((resolve, reject) => {
    let said = '';
    // Read to the end: a program whose log nobody reads ends.
    caddy.stderr.on('data', (chunk: Buffer) => {
      said += String(chunk);
      const obtained = said.split('certificate obtained successfully').length - 1;
      if (said.includes('serving initial configuration') && obtained >= certificates) resolve();
    });
    caddy.once('exit', () => reject(new Error(`caddy ended: ${said}`)));
  });
  return true;
}
