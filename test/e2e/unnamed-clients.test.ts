import assert from 'node:assert/strict';
import { once } from 'node:events';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { connect } from 'node:tls';
import { createGateway, parseHubfile } from '../support/installed-package.ts';
import { freePort } from '../support/free-port.ts';
import { temporaryDirectory } from '../support/temporary-directory.ts';
import { TestClock } from '../support/test-clock.ts';

const DAY_MS = 24 * 60 * 60 * 1000;

describe('clients without a server name', () => {
  it('get the renewed certificate without a reload of the configuration', async (test) => {
    const storage = await temporaryDirectory(test);
    const port = await freePort();
    const config = parseHubfile(
      `{\n\tstorage ${storage}\n\tadmin off\n\tauto_https disable_redirects\n\tgrace_period 1s\n}\n127.0.0.1:${port} {\n\ttls internal\n\trespond ok\n}\n`,
      { env: {} },
    );
    // What is issued five days ago is still valid, and due to be replaced.
    const clock = new TestClock(Date.now() - 5 * DAY_MS);
    const gateway = createGateway(config, { clock });
    test.after(() => gateway.stop(AbortSignal.abort()));
    await gateway.start();
    const ca = await readFile(join(storage, 'pki', 'local', 'root.crt'));
    const validTo = async (): Promise<number> => {
      const socket = connect({ host: '127.0.0.1', port, ca });
      await once(socket, 'secureConnect');
      const end = Date.parse(socket.getPeerCertificate().valid_to);
      socket.destroy();
      return end;
    };
    const first = await validTo();
    clock.advance(5 * DAY_MS);
    let second = await validTo();
    // Renewing takes a moment of its own; each question gives it one.
    while (second === first) second = await validTo();
    assert.ok(second - first >= 4 * DAY_MS);
  });
});
