import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { describe, it } from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { execProvider } from '../../../../../src/tls/acme/dns/exec.ts';
import { TYPESCRIPT } from '../../../../support/process.ts';

const MODULE = fileURLToPath(new URL('../../../../../src/tls/acme/dns/exec.ts', import.meta.url));
/** Runs a program of a provider when no descriptor is left, and again when there are some. */
const PROGRAM = `
const { execProvider } = await import(process.argv[1]);
const { closeSync, openSync } = await import('node:fs');
const config = { kind: 'exec', program: '/bin/true', args: [], environment: [], timeoutMs: 10_000 };
const provider = execProvider(config);
const record = { name: '_acme-challenge.example.com', value: 'value', ttlSeconds: 60 };
const present = () => provider.present(record, new AbortController().signal);
const opened = [];
try {
  for (;;) opened.push(openSync('/dev/null'));
} catch {}
const failed = present().then(() => 'presented', (error) => error.code + ' ' + error.message);
for (const descriptor of opened) closeSync(descriptor);
console.log(await failed);
await present();
console.log('presented');
`;

describe('the program of a DNS provider', () => {
  it('may have more time than a timer of Node can have', async () => {
    const config = { kind: 'exec', args: ['0.05'], environment: [], timeoutMs: 2 ** 40 } as const;
    const provider = execProvider({ ...config, program: '/bin/sleep' });
    const record = { name: '_acme-challenge.example.com', value: 'value', ttlSeconds: 60 };
    await provider.present(record, new AbortController().signal);
  });

  it('fails when no descriptor is left, and the process continues', async () => {
    const run = [...TYPESCRIPT, '--input-type=module', '--eval', PROGRAM, MODULE];
    const limited = ['-c', 'ulimit -n 100; exec "$0" "$@"', process.execPath, ...run];
    const { stdout } = await promisify(execFile)('sh', limited);
    assert.deepEqual(stdout.trim().split('\n'), [
      'acme-dns-failed /bin/true present: it cannot be run: spawn /bin/true EMFILE',
      'presented',
    ]);
  });
});
