import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { root, SOURCE } from './process.ts';

/** Runs files of test/protocol once more, against hubs that the variables make others. */
export async function protocolPasses(
  names: readonly string[],
  variables: Record<string, string>,
): Promise<void> {
  const files = names.map((name) => join('test', 'protocol', `${name}.test.ts`));
  const flags = [...SOURCE, '--test', '--test-reporter=spec'];
  // Without this the inner run believes that it is a part of the outer one.
  const { NODE_TEST_CONTEXT: _context, ...env } = process.env;
  const child = spawn(process.execPath, [...flags, ...files], {
    cwd: root,
    env: { ...env, ...variables },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  let output = '';
  child.stdout.on('data', (chunk: Buffer) => (output += chunk));
  await once(child, 'close');
  const failures = output.slice(output.indexOf('failing tests:'));
  assert.equal(child.exitCode, 0, failures);
  assert.match(output, /^ℹ pass [1-9]/m);
}
