import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { describe, it, type TestContext } from 'node:test';
import { freePort } from '../support/free-port.ts';
import { startGateway } from '../support/gateway.ts';

/** What Node and nghttp2 decide; docs/protocol.md tells each. */
const NODES_OWN = new Set([
  ...['5.1. 5', '5.1. 6', '5.1. 8', '5.1. 9', '5.1. 11', '5.1. 12', '5.1.1. 2', '6.1. 2', '8.1. 1'],
  ...['5.3.1. 2', '6.3. 1', '6.7. 2', '6.9.1. 2', '6.9.1. 3'],
]);

/** A stream whose answer is complete is closed with NO_ERROR (RFC 9113 §8.1), at times before this frame comes. */
const EARLY_END = '6.1. 3';

/** Of 145, where an app answers a turn after the request. */
const PASSED_BEHIND_APP = 138;

describe('h2spec (RFC 9113)', () => {
  it('finds only known failures of Node in a synchronous response', async (test) => {
    const output = await tried(test, 'respond "hello world, and more"');
    if (output === null) return test.skip('h2spec is not on the path');
    const [, failures = ''] = output.split('\nFailures:');
    const others = failedIn(failures).filter((name) => !NODES_OWN.has(name));
    assert.deepEqual(
      others.filter((name) => name !== EARLY_END),
      [],
    );
  });

  it('finds only those, and fewer of them, in the response of an app', async (test) => {
    const app = createServer((request, response) => {
      request.resume();
      response.end('hello world, and more');
    });
    app.listen(0, '127.0.0.1');
    await once(app, 'listening');
    test.after(() => app.close());
    const { port } = app.address() as AddressInfo;
    const output = await tried(test, `reverse_proxy 127.0.0.1:${port}`);
    if (output === null) return test.skip('h2spec is not on the path');
    const [, failures = ''] = output.split('\nFailures:');
    assert.deepEqual(
      failedIn(failures).filter((name) => !NODES_OWN.has(name)),
      [],
    );
    const passed = Number(/\d+ tests, (\d+) passed/.exec(output)?.[1]);
    assert.ok(passed >= PASSED_BEHIND_APP, `${passed} passed`);
  });
});

/** What h2spec says of a site; null where it is not installed: no Debian package, `go install` puts it on the path. */
async function tried(test: TestContext, directive: string): Promise<string | null> {
  const port = await freePort();
  await startGateway(test, `https://localhost:${port} {\n\ttls internal\n\t${directive}\n}\n`);
  // h2spec leaves connections open, and what ends them keeps no process.
  const alive = setInterval(() => {}, 1000);
  test.after(() => clearInterval(alive));
  const output = await h2spec(port);
  if (output !== null) assert.match(output, /\d+ tests, \d+ passed/);
  return output;
}

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
