import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { once } from 'node:events';
import { createServer } from 'node:http';
import { describe, it, type TestContext } from 'node:test';
import { promisify } from 'node:util';
import { freePort } from '../support/free-port.ts';
import { startGateway } from '../support/gateway.ts';
import { programPath } from '../support/program.ts';

const run = promisify(execFile);

/** What catches a hang; nothing here is timed. */
describe('front door under load: HTTP/2 over TLS, from a third-party client', () => {
  it('answers 100,000 requests itself without a failure', async (test) => {
    await load(test, 100_000, 'respond "ok"');
  });

  it('passes 20,000 requests on to an app without a failure', async (test) => {
    const app = createServer((_request, response) => response.end('ok'));
    app.listen(0, '127.0.0.1');
    await once(app, 'listening');
    test.after(() => {
      app.closeAllConnections();
      app.close();
    });
    const address = app.address();
    assert.ok(address !== null && typeof address === 'object');
    await load(test, 20_000, `reverse_proxy 127.0.0.1:${address.port}`);
  });
});

async function load(test: TestContext, requests: number, routes: string): Promise<void> {
  const program = programPath(test, 'h2load', 'nghttp2-client');
  if (program === null) return;
  const port = await freePort();
  await startGateway(test, `https://localhost:${port} {\n\ttls internal\n\t${routes}\n}\n`);
  const url = `https://localhost:${port}/`;
  const { stdout } = await run(program, ['-n', String(requests), '-c', '16', '-m', '32', url]);
  assert.match(stdout, /^Application protocol: h2$/m);
  assert.match(
    stdout,
    new RegExp(
      `^requests: ${requests} total, ${requests} started, ${requests} done, ${requests} succeeded, 0 failed, 0 errored, 0 timeout$`,
      'm',
    ),
  );
  assert.match(stdout, new RegExp(`^status codes: ${requests} 2xx, 0 3xx, 0 4xx, 0 5xx$`, 'm'));
}
