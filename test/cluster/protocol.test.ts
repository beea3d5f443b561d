import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { root } from '../support/process.ts';
import { startRedis } from '../support/redis-server.ts';

/** HUBGATE_PROTOCOL=all runs all of test/protocol, else what touches the log. */
const FILES =
  process.env['HUBGATE_PROTOCOL'] === 'all'
    ? readdirSync(join(root, 'test', 'protocol'))
        .filter((name) => name.endsWith('.test.ts'))
        .map((name) => name.slice(0, -'.test.ts'.length))
    : ['subscriptions', 'publish'];

describe(`the protocol on other transports: ${FILES.join(', ')}`, () => {
  it('LMDB', async () => {
    await passes('lmdb');
  });

  it('Redis', async (test) => {
    const redis = await startRedis(test, test);
    if (redis !== null) await passes(redis.url);
  });
});

async function passes(transport: string): Promise<void> {
  const files = FILES.map((name) => join('test', 'protocol', `${name}.test.ts`));
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
