import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { describe, it } from 'node:test';
import { freePort } from '../support/free-port.ts';
import { startGateway } from '../support/gateway.ts';

/** What Node and nghttp2 decide; docs/protocol.md tells each. */
const NODES_OWN = new Set([
  ...['5.1. 5', '5.1. 6', '5.1. 8', '5.1. 9', '5.1. 11', '5.1. 12', '5.1.1. 2', '6.1. 2', '8.1. 1'],
  ...['5.3.1. 2', '6.3. 1', '6.7. 2', '6.9.1. 2', '6.9.1. 3'],
]);

describe('h2spec (RFC 9113)', () => {
  it('finds nothing that is not Node’s own', async (test) => {
    const port = await freePort();
    const site = `https://localhost:${port} {\n\ttls internal\n\trespond "hello world, and more"\n}\n`;
    await startGateway(test, site);
    // h2spec leaves connections open, and what ends them keeps no process.
    const alive = setInterval(() => {}, 1000);
    test.after(() => clearInterval(alive));
    const output = await h2spec(port);
    // No Debian package: a peer that is tried where `go install` has put it.
    if (output === null) return test.skip('h2spec is not on the path');
    const [, failures = ''] = output.split('\nFailures:');
    assert.match(output, /\d+ tests, \d+ passed/);
    assert.deepEqual(
      failedIn(failures).filter((name) => !NODES_OWN.has(name)),
      [],
    );
  });
});

function h2spec(port: number): Promise<string | null> {
  const args = ['-t', '-k', '-h', 'localhost', '-p', String(port), '-o', '2'];
  return new Promise((resolve) => {
    execFile('h2spec', args, { maxBuffer: 2 ** 24 }, (error, stdout) =>
      resolve(error !== null && error.code === 'ENOENT' ? null : stdout),
    );
  });
}

/** `5.1. 12` for the twelfth test of section 5.1. */
function failedIn(failures: string): string[] {
  let section = '';
  return failures.split('\n').flatMap((line) => {
    section = /^\s*(\d+(?:\.\d+)*\.) /.exec(line)?.[1] ?? section;
    const number = /^\s*× (\d+):/.exec(line)?.[1];
    return number === undefined ? [] : [`${section} ${number}`];
  });
}
