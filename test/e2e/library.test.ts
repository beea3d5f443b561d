import assert from 'node:assert/strict';
import { mkdtemp } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, it, type TestContext } from 'node:test';
import { EventSource } from 'eventsource';
import { freePort } from '../support/free-port.ts';
import { startProcess, type TestProcess, TYPESCRIPT } from '../support/process.ts';
import { removeWith } from '../support/temporary-directory.ts';

describe('library: the examples compile and run', () => {
  for (const [name, app] of [
    ['hub-in-node', 'the app\n'],
    ['hub-in-express', 'the app\n'],
  ] as const) {
    it(`${name}: serves the hub and passes other requests on`, async (test) => {
      const port = await freePort();
      const example = startExample(test, name, [], { PORT: String(port) });
      await example.says('listening');
      const base = `http://127.0.0.1:${port}`;
      assert.equal(await (await fetch(base)).text(), app);
      const refused = await fetch(`${base}/.well-known/hub`, {
        method: 'POST',
        body: new URLSearchParams({ topic: 'a' }),
      });
      assert.equal(refused.status, 401);
      const metadata = await fetch(`${base}/.well-known/oauth-protected-resource/.well-known/hub`);
      assert.match(await metadata.text(), new RegExp(`"resource":"${base}/.well-known/hub"`));
      const unknown = await fetch(`${base}/.well-known/hub?match=a&match_regexp=b`);
      assert.equal(unknown.status, 400);
      assert.equal(await example.end(), 0);
    });
  }

  it('hub-in-node: publishes in the same process, and reports its cursor', async (test) => {
    const port = await freePort();
    const example = startExample(test, 'hub-in-node', [], { PORT: String(port) });
    await example.says('listening');
    const source = new EventSource(
      `http://127.0.0.1:${port}/.well-known/hub?match=https://example.com/clock`,
    );
    test.after(() => source.close());
    const id = await new Promise<string>((resolve, reject) => {
      source.onmessage = ({ lastEventId }) => resolve(lastEventId);
      source.onerror = ({ message }) => reject(new Error(message));
    });
    assert.match(id, /^urn:uuid:/);
    const link = (await fetch(`http://127.0.0.1:${port}/`)).headers.get('link') ?? '';
    assert.match(link, /rel="hub"; last-event-id="urn:uuid:/);
  });

  it('gateway: starts from the text of a Hubfile and stops', async (test) => {
    const storage = await mkdtemp(join(tmpdir(), 'hubgate-library-'));
    removeWith(test, storage);
    const port = await freePort();
    const hubfile = `{\n\tstorage ${storage}\n}\nhttp://localhost:${port} {\n\trespond "from the library"\n}\n`;
    const example = startExample(test, 'gateway', [hubfile], {});
    await example.says(`http on port ${port}`);
    assert.equal(await (await fetch(`http://localhost:${port}`)).text(), 'from the library');
    assert.equal(await example.end(), 0);
  });
});

function startExample(
  test: TestContext,
  name: string,
  args: readonly string[],
  env: NodeJS.ProcessEnv,
): TestProcess {
  return startProcess(test, [...TYPESCRIPT, `examples/library/${name}.ts`, ...args], env);
}
