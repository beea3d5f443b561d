import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { root } from '../support/process.ts';
import { startRedis } from '../support/redis-server.ts';

describe('the protocol on other transports', () => {
  it('LMDB', async () => {
    await passes('lmdb', ['subscribe', 'subscriptions', 'publish']);
  });

  // Those that turn the clock are left out: it is also that of the connection.
  it('Redis', async (test) => {
    const redis = await startRedis(test, test);
    if (redis !== null) await passes(redis.url, ['subscriptions', 'publish']);
  });
});

async function passes(transport: string, names: readonly string[]): Promise<void> {
  const files = names.map((name) => join('test', 'protocol', `${name}.test.ts`));
  const flags = [
    '--conditions=hubgate-source',
    '--import',
    'tsx',
    '--test',
    '--test-reporter=spec',
  ];
  // Without this the inner run believes that it is a part of the outer one.
  const { NODE_TEST_CONTEXT: _context, ...env } = process.env;
  const child = spawn(process.execPath, [...flags, ...files], {
    cwd: root,
    env: { ...env, HUBGATE_TEST_TRANSPORT: transport },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  let output = '';
  child.stdout.on('data', (chunk: Buffer) => (output += chunk));
  await once(child, 'close');
  const failures = output.slice(output.indexOf('failing tests:'));
  assert.equal(child.exitCode, 0, failures);
  assert.match(output, /^ℹ pass [1-9]/m);
}
