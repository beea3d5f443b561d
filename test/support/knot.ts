import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { TestContext } from 'node:test';
import { freePort } from './free-port.ts';
import { programPath } from './program.ts';
import { temporaryDirectory } from './temporary-directory.ts';

export interface Knot {
  /** `127.0.0.1:<port>`. */
  readonly address: string;
  /** Base64. */
  readonly key: string;
}

/** The names that a {@link Knot} knows its keys by. */
export const KNOT_KEYS = { 'hmac-sha256': 'key-256.', 'hmac-sha512': 'key-512.' } as const;

/**
 * Debian's Knot DNS with the zone `example.com`, which takes TXT records from whoever signs with one of
 * its keys (RFC 2136, RFC 8945); null where it is not installed, and the test is skipped then.
 */
export async function startKnot(test: TestContext): Promise<Knot | null> {
  const program = programPath(test, 'knotd', 'knot');
  if (program === null) return null;
  const directory = await temporaryDirectory(test);
  const address = `127.0.0.1:${await freePort()}`;
  const key = Buffer.alloc(32, 'hubgate').toString('base64');
  await mkdir(join(directory, 'zones'));
  await writeFile(
    join(directory, 'zones', 'example.com.zone'),
    `@ 60 SOA ns hostmaster 1 3600 600 86400 1
@ 60 NS ns
ns 60 A 127.0.0.1
alias 60 CNAME target.example.com.
`,
  );
  const file = join(directory, 'knot.conf');
  const keys = Object.entries(KNOT_KEYS)
    .map(([algorithm, id]) => `  - id: ${id}\n    algorithm: ${algorithm}\n    secret: ${key}\n`)
    .join('');
  await writeFile(
    file,
    `server:
    listen: ${address.replace(':', '@')}
    rundir: ${directory}
database:
    storage: ${directory}
log:
  - target: stderr
    any: info
key:
${keys}
acl:
  - id: updates
    key: [${Object.values(KNOT_KEYS).join(', ')}]
    action: update
zone:
  - domain: example.com
    storage: ${directory}/zones
    acl: updates
`,
  );
  const knot = spawn(program, ['-c', file], { stdio: ['ignore', 'pipe', 'pipe'] });
  const exited = once(knot, 'exit');
  test.after(async () => {
    knot.kill('SIGKILL');
    await exited;
  });
  await new Promise<void>((resolve, reject) => {
    let said = '';
    const hear = (chunk: Buffer): void => {
      said += String(chunk);
      if (/zone .*loaded/.test(said) && said.includes('server started')) resolve();
    };
    knot.stdout.on('data', hear);
    knot.stderr.on('data', hear);
    knot.once('exit', () => reject(new Error(`knotd ended: ${said}`)));
  });
  return { address, key };
}
