import assert from 'node:assert/strict';
import { once } from 'node:events';
import { mkdtemp, writeFile } from 'node:fs/promises';
import { createServer, type ServerResponse } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, it, type TestContext } from 'node:test';
import { freePort } from '../support/free-port.ts';
import { askHealth, send } from '../support/http.ts';
import { cli, startProcess } from '../support/process.ts';
import { removeWith } from '../support/temporary-directory.ts';

async function start(test: TestContext, site: string) {
  const directory = await mkdtemp(join(tmpdir(), 'hubgate-health-'));
  removeWith(test, directory);
  const [adminPort, port] = [await freePort(), await freePort()];
  const file = join(directory, 'Hubfile');
  await writeFile(
    file,
    `{\n\tadmin 127.0.0.1:${adminPort}\n\tstorage ${directory}/storage\n}\nhttp://localhost:${port} {\n${site}}\n`,
  );
  const gateway = startProcess(test, [cli, 'run', '--no-watch', '--config', file]);
  await gateway.says('Admin API on');
  return { gateway, admin: `http://127.0.0.1:${adminPort}`, site: `http://localhost:${port}` };
}

const MERCURE =
  '\tmercure {\n\t\tname news\n\t\tissuer https://i.example {\n\t\t\tpublisher {\n\t\t\t\tjwt a-secret-of-the-test-that-is-long-enough\n\t\t\t}\n\t\t}\n\t\tanonymous\n\t\ttransport memory\n\t}\n';

describe('health', () => {
  it('is at the path that probes of the reference hub use, in `profile mercure`', async (test) => {
    const { admin } = await start(test, MERCURE);
    for (const path of ['ready', 'live', 'news/ready', 'news/live']) {
      for (const prefix of ['mercure', 'hub']) {
        const { status, body } = await askHealth(`${admin}/${prefix}/health/${path}`);
        assert.deepEqual([status, JSON.parse(body)], [200, { status: 'ok' }], path);
      }
    }
    assert.equal((await send(`${admin}/mercure/health/nope/ready`)).status, 404);
    const { status, headers } = await send(`${admin}/mercure/health/ready`, { method: 'POST' });
    assert.deepEqual([status, headers['allow']], [405, 'GET']);
  });

  it('is not at that path if no hub has that profile', async (test) => {
    const { admin } = await start(test, MERCURE.replace('mercure', 'hub'));
    assert.equal((await send(`${admin}/mercure/health/ready`)).status, 404);
    assert.equal((await askHealth(`${admin}/hub/health/ready`)).status, 200);
  });

  it('reports not ready, but live, from the beginning of a stop to its end', async (test) => {
    let held: ServerResponse | null = null;
    const app = createServer((_request, response) => {
      held = response;
      response.writeHead(200).write('begun');
      app.emit('held');
    });
    await new Promise<void>((resolve) => app.listen(0, '127.0.0.1', resolve));
    test.after(() => app.close());
    const address = app.address();
    assert.ok(address !== null && typeof address === 'object');
    const { gateway, admin, site } = await start(
      test,
      `\treverse_proxy 127.0.0.1:${address.port}\n`,
    );
    const waiting = once(app, 'held');
    const answer = send(`${site}/slow`);
    await waiting;
    const over = gateway.end('SIGTERM');
    await gateway.says('Stopping');
    const ready = await send(`${admin}/hub/health/ready`);
    assert.deepEqual(
      [ready.status, JSON.parse(ready.body).error],
      [503, 'the gateway is stopping'],
    );
    assert.equal((await send(`${admin}/health/ready`)).status, 503);
    assert.equal((await send(`${admin}/hub/health/live`)).status, 200);
    const response: ServerResponse | null = held;
    assert.ok(response !== null);
    (response as ServerResponse).end(' and ended');
    assert.equal((await answer).body, 'begun and ended');
    assert.equal(await over, 0);
  });
});
