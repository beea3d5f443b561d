import assert from 'node:assert/strict';
import { mkdtemp, writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import { once } from 'node:events';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, it, type TestContext } from 'node:test';
import { freePort } from '../support/free-port.ts';
import { openStream, send, type Stream } from '../support/http.ts';
import { cli, startProcess } from '../support/process.ts';
import { removeWith } from '../support/temporary-directory.ts';

async function start(test: TestContext, site: string) {
  const directory = await mkdtemp(join(tmpdir(), 'hubgate-stop-'));
  removeWith(test, directory);
  const port = await freePort();
  const file = join(directory, 'Hubfile');
  await writeFile(
    file,
    `{\n\tadmin off\n\tstorage ${directory}/storage\n}\nhttp://localhost:${port} {\n${site}}\n`,
  );
  const gateway = startProcess(test, [cli, 'run', '--no-watch', '--config', file]);
  await gateway.says('Listening on');
  return { gateway, site: `http://localhost:${port}` };
}

describe('a stop (SIGTERM)', () => {
  it('closes streams one after the other, each with its own time to reconnect, and exits 0', async (test) => {
    const { gateway, site } = await start(
      test,
      '\thub {\n\t\tissuer https://i.example {\n\t\t\tpublisher {\n\t\t\t\tjwt a-secret-of-the-test-that-is-long-enough\n\t\t\t}\n\t\t}\n\t\tanonymous\n\t\ttransport memory\n\t}\n',
    );
    const streams: Stream[] = [];
    for (let i = 0; i < 40; i += 1) {
      streams.push(await openStream(test, `${site}/.well-known/hub?match=a`));
    }
    const code = gateway.end('SIGTERM');
    await Promise.all(streams.map((stream) => stream.untilEnd()));
    assert.equal(await code, 0);
    assert.match(gateway.output, /"streams":40,"why":"the gateway stops","overMs":400/);
    const retries = new Set(streams.map(({ text }) => /retry: (\d+)\n$/.exec(text)?.[1]));
    assert.ok(retries.size > 2 && !retries.has(undefined), [...retries].join());
  });

  it('serves a client that connected before it and sends its request after it', async (test) => {
    const { gateway, site } = await start(test, '\trespond served\n');
    const accepted = connect({ host: 'localhost', port: Number(new URL(site).port) });
    test.after(() => accepted.destroy());
    await once(accepted, 'connect');
    // The next one is answered, so the one before it has been accepted.
    await send(site);
    gateway.child.kill('SIGTERM');
    await gateway.says('"Stopping"');
    // First, because the gateway waits a second for it.
    accepted.write(`GET / HTTP/1.1\r\nHost: ${new URL(site).host}\r\n\r\n`);
    const [answer] = (await once(accepted, 'data')) as [Buffer];
    await assert.rejects(send(site), 'nobody is accepted any more');
    assert.match(String(answer), /^HTTP\/1\.1 200 OK\r\n[^]*Connection: close/i);
    assert.equal(await gateway.exited(), 0);
  });

  it('reports when a second signal aborts requests in flight, and exits 2', async (test) => {
    const app = createServer((_request, response) => response.writeHead(200).write('begun'));
    app.listen(0, '127.0.0.1');
    await once(app, 'listening');
    test.after(() => {
      app.closeAllConnections();
      app.close();
    });
    const address = app.address();
    assert.ok(address !== null && typeof address === 'object');
    const { gateway, site } = await start(test, `\treverse_proxy 127.0.0.1:${address.port}\n`);
    const arrived = once(app, 'request');
    const cut = assert.rejects(send(site));
    await arrived;
    gateway.child.kill('SIGTERM');
    await gateway.says('Still stopping');
    assert.match(gateway.output, /"requests":1/);
    assert.equal(await gateway.end('SIGTERM'), 2);
    assert.match(gateway.output, /Second signal: closing all connections/);
    await cut;
  });
});
