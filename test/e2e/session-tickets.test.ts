import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, it, type TestContext } from 'node:test';
import { createGateway, parseHubfile } from '../support/installed-package.ts';
import { TICKET_KEYS_MS } from '../../src/tls/ticket-keys.ts';
import { freePort } from '../support/free-port.ts';
import { openssl } from '../support/openssl.ts';
import { temporaryDirectory } from '../support/temporary-directory.ts';
import { TestClock } from '../support/test-clock.ts';
import { type TlsVisit, visit } from '../support/tls-client.ts';

describe('session tickets', () => {
  for (const version of ['TLSv1.2', 'TLSv1.3'] as const) {
    it(`of one gateway are accepted by another with the same storage, until the keys change (${version})`, async (test) => {
      const storage = await temporaryDirectory(test);
      const clock = new TestClock(Date.now());
      const [one, two] = [await start(test, storage, clock), await start(test, storage, clock)];
      const ca = await readFile(one.rootFile);
      const over = ({ port }: { readonly port: number }, old?: TlsVisit): Promise<TlsVisit> => {
        const session = old?.session ?? undefined;
        return visit(
          {
            ...{ port, servername: 'localhost', ca, minVersion: version, maxVersion: version },
            ...(session === undefined ? {} : { session }),
          },
          [`localhost:${port}`],
        );
      };
      const first = await over(one);
      assert.deepEqual([first.resumed, first.statuses], [false, [200]]);
      const elsewhere = await over(two, first);
      assert.deepEqual([elsewhere.resumed, elsewhere.statuses], [true, [200]]);
      await two.reload();
      assert.equal((await over(two, first)).resumed, true);

      clock.advance(TICKET_KEYS_MS);
      for (const gateway of [one, two]) {
        // The new keys come from the disk; what comes before them still resumes.
        while ((await over(gateway, first)).resumed);
      }
      const next = await over(one);
      assert.deepEqual([next.resumed, next.statuses], [false, [200]]);
      assert.equal((await over(two, next)).resumed, true);
    });
  }

  it('from OpenSSL are accepted by a gateway that was started later', async (test) => {
    const storage = await temporaryDirectory(test);
    const clock = new TestClock(Date.now());
    const first = await start(test, storage, clock);
    const file = join(storage, 'session.pem');
    const connect = (port: number, ...args: readonly string[]): Promise<string> =>
      openssl(
        ...['s_client', '-connect', `127.0.0.1:${port}`, '-servername', 'localhost', '-tls1_2'],
        ...['-CAfile', first.rootFile, '-verify_return_error', ...args],
      );
    assert.match(await connect(first.port, '-sess_out', file), /^New, TLSv1\.2/m);
    await first.stop();
    const second = await start(test, storage, clock);
    assert.match(await connect(second.port, '-sess_in', file), /^Reused, TLSv1\.2/m);
  });
});

async function start(test: TestContext, storage: string, clock: TestClock) {
  const port = await freePort();
  const config = (body: string) =>
    parseHubfile(
      `{\n\tstorage ${storage}\n\tadmin off\n\tauto_https disable_redirects\n\tgrace_period 1s\n}\nlocalhost:${port} {\n\ttls internal\n\trespond ${body}\n}\n`,
      { env: {} },
    );
  const gateway = createGateway(config('first'), { clock });
  test.after(() => gateway.stop(AbortSignal.abort()));
  await gateway.start();
  return {
    port,
    rootFile: join(storage, 'pki', 'local', 'root.crt'),
    reload: () => gateway.reload(config('second')),
    stop: () => gateway.stop(AbortSignal.abort()),
  };
}
