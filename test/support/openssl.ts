import { spawn } from 'node:child_process';
import { once } from 'node:events';

/** Runs OpenSSL with nothing to read, beside a gateway in this process; gives what it prints. */
export async function openssl(...args: readonly string[]): Promise<string> {
  const child = spawn('openssl', args, { stdio: ['ignore', 'pipe', 'pipe'] });
  let output = '';
  for (const stream of [child.stdout, child.stderr]) {
    stream.on('data', (chunk: Buffer) => (output += chunk));
  }
  await once(child, 'close');
  return output;
}
