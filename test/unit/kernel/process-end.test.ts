import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { describe, it } from 'node:test';

const MODULE = fileURLToPath(new URL('../../../src/kernel/process-end.ts', import.meta.url));
/** A process that ends in the middle of work that never ends, like a native library at its exit. */
const PROGRAM = `
  const { endProcess, uncut } = await import(${JSON.stringify(MODULE)});
  setInterval(() => {}, 1000);
  process.on('exit', () => { for (;;); });
  void uncut(() => new Promise(() => {}));
  `;
const NAMESPACE = ['unshare', '--pid', '--fork', '--kill-child'];

const hasNamespaces = spawnSync('unshare', ['--pid', '--fork', 'true']).status === 0;

describe('the end of a process in the middle of work that must not be cut', () => {
  for (const isFirst of [false, true]) {
    const who = isFirst ? 'the first process of a container' : 'any other process';
    for (const end of ['process.exit(0)', 'await endProcess(0)']) {
      it(`does not wait for it for ever: ${who}, ${end}`, {
        skip: isFirst && !hasNamespaces && 'this user may not create namespaces',
      }, () => {
        const node = [process.execPath, '--input-type=module', '--eval', PROGRAM + end];
        const [program = '', ...args] = isFirst ? [...NAMESPACE, ...node] : node;
        const ended = spawnSync(program, args, { timeout: 20_000, killSignal: 'SIGKILL' });
        assert.equal(ended.error, undefined);
        assert.notEqual(ended.status, 0);
      });
    }
  }
});
