import assert from 'node:assert/strict';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { chromiumPath, launchChromium } from '../support/chromium.ts';
import { freePort } from '../support/free-port.ts';
import { cli, root, runCommand, startProcess } from '../support/process.ts';
import { temporaryDirectory } from '../support/temporary-directory.ts';

const KEY = 'the-key-with-which-the-app-signs-its-tokens';

describe('end-to-end privacy (JWE)', () => {
  it('the browser reads what the app encrypted; the hub sees only the ciphertext', async (test) => {
    const executable = chromiumPath(test);
    if (executable === null) return;
    const [port, appPort] = [await freePort(), await freePort()];
    const site = `https://localhost:${port}`;
    const storage = await temporaryDirectory(test);
    const rootFile = join(storage, 'pki/local/root.crt');
    const example = join(root, 'examples/encrypted');
    const env = {
      STORAGE: storage,
      PORT: String(appPort),
      SITE: site,
      HUB_PUBLISHER_JWT_KEY: KEY,
    };
    const run = [cli, 'run', '--no-watch', '--config', join(example, 'Hubfile')];
    await startProcess(test, run, env).says('Listening on');
    const app = startProcess(test, [join(example, 'server.mjs')], {
      ...env,
      NODE_EXTRA_CA_CERTS: rootFile,
    });
    await app.says('app: http');
    const browser = await launchChromium(test, executable, storage);
    const page = await browser.newPage();
    await page.goto(site);
    await page.locator('body[data-state=open]').waitFor({ state: 'attached' });
    const secret = 'only for those who have the key';
    const said = await page.evaluate(
      async (text) =>
        (await fetch(`/say?text=${encodeURIComponent(text)}`, { method: 'POST' })).status,
      secret,
    );
    assert.equal(said, 204);
    await page.getByText(secret).waitFor();

    const { stdout } = await runCommand([
      ...['subscribe', '--hub', `${site}/.well-known/hub`, '--cacert', rootFile],
      ...['--last-event-id', 'earliest', '--count', '1', '--json'],
    ]);
    const { data } = JSON.parse(stdout) as { data: string };
    assert.match(data, /^[\w-]+\.\.[\w-]+\.[\w-]+\.[\w-]+$/);
    assert.equal(stdout.includes('key'), false);
  });
});
