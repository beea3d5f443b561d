import assert from 'node:assert/strict';
import { once } from 'node:events';
import { mkdtemp, readdir, readFile, writeFile } from 'node:fs/promises';
import { type AddressInfo, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, it, type TestContext } from 'node:test';
import { freePort } from '../support/free-port.ts';
import { send } from '../support/http.ts';
import { cli, startProcess } from '../support/process.ts';
import { packageDirectory } from '../support/installed-package.ts';
import { removeWith } from '../support/temporary-directory.ts';

const ANSWERS = {
  'with bytes behind it':
    'HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\nbytes',
  'with nothing behind it': 'HTTP/1.1 101 Switching Protocols\r\n\r\n',
} as const;

async function startSite(test: TestContext, answer: string): Promise<string> {
  const app = createServer((socket) => {
    socket.on('error', () => {}).once('data', () => socket.write(answer));
  });
  app.listen(0, '127.0.0.1');
  await once(app, 'listening');
  test.after(() => app.close());
  const directory = await mkdtemp(join(tmpdir(), 'hubgate-switch-'));
  removeWith(test, directory);
  const [port, file] = [await freePort(), join(directory, 'Hubfile')];
  const { port: appPort } = app.address() as AddressInfo;
  await writeFile(
    file,
    `{\n\tadmin off\n\tstorage ${directory}/storage\n}\nhttp://localhost:${port} {\n\treverse_proxy 127.0.0.1:${appPort}\n}\n`,
  );
  const gateway = startProcess(test, [cli, 'run', '--no-watch', '--config', file]);
  await gateway.says('Listening on');
  return `http://localhost:${port}`;
}

describe('an upstream that switches protocols without being asked', () => {
  for (const [how, answer] of Object.entries(ANSWERS)) {
    it(`results in a 502, ${how}`, async (test) => {
      const site = await startSite(test, answer);
      assert.equal((await send(`${site}/`)).status, 502);
      assert.equal((await send(`${site}/`)).status, 502);
    });
  }

  it('cannot fail an assertion, because no file of the bundle imports assert', async () => {
    const directory = join(packageDirectory, 'dist');
    const files = (await readdir(directory, { recursive: true })).filter((name) =>
      /\.c?js$/.test(name),
    );
    assert.ok(files.length > 10);
    const asking: string[] = [];
    for (const name of files) {
      const text = await readFile(join(directory, name), 'utf8');
      if (/(?:require|from|import)\(?\s*["'](?:node:)?assert/.test(text)) asking.push(name);
    }
    assert.deepEqual(asking, []);
  });
});
