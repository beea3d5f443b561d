import assert from 'node:assert/strict';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { chromiumPath, launchChromium } from '../support/chromium.ts';
import { freePort } from '../support/free-port.ts';
import { startGateway } from '../support/gateway.ts';
import { root, runCommand, startProcess } from '../support/process.ts';

const KEY = 'the-key-with-which-the-app-signs-its-tokens';

describe('end-to-end privacy (JWE)', () => {
  it('the browser reads what the app encrypted; the hub sees only the ciphertext', async (test) => {
    const executable = chromiumPath(test);
    if (executable === null) return;
    const [port, appPort] = [await freePort(), await freePort()];
    const site = `https://localhost:${port}`;
    const { rootFile, storage } = await startGateway(
      test,
      `localhost:${port} {\n\ttls internal\n\thub {\n\t\tissuer ${site} {\n\t\t\tpublisher {\n\t\t\t\tjwt ${KEY}\n\t\t\t}\n\t\t}\n\t\tanonymous\n\t}\n\treverse_proxy 127.0.0.1:${appPort}\n}\n`,
    );
    const app = startProcess(test, [join(root, 'examples/encrypted/server.mjs')], {
      PORT: String(appPort),
      SITE: site,
      HUB_PUBLISHER_JWT_KEY: KEY,
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
