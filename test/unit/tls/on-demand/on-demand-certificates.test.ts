import assert from 'node:assert/strict';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, it, type TestContext } from 'node:test';
import { ManagedCertificates } from '../../../../src/tls/acme/managed-certificates.ts';
import { CertificateStore } from '../../../../src/tls/certificate-store.ts';
import { LocalAuthority } from '../../../../src/tls/local-authority.ts';
import { onDemandCertificates } from '../../../../src/tls/on-demand/on-demand-certificates.ts';
import { RecordedLog } from '../../../support/recorded-log.ts';
import { TestClock } from '../../../support/test-clock.ts';

const DAY_MS = 24 * 60 * 60 * 1000;

describe('certificates on demand', () => {
  it('no more are held than the bound; the others come from the storage again, unasked', async (test) => {
    const { certificates, app, store } = await setUp(test, 2);
    for (const name of ['a.example.com', 'b.example.com', 'a.example.com', 'c.example.com']) {
      await certificates.certificateFor([name]);
    }
    const held = () => certificates.inUse().map(({ names }) => names[0]);
    while (held().length > 2) await new Promise((resolve) => setImmediate(resolve));
    assert.deepEqual(held(), ['a.example.com', 'c.example.com']);
    assert.notEqual(await store.read('local', ['b.example.com']), null);
    assert.equal(app.asked, 3);
    await certificates.certificateFor(['b.example.com']);
    assert.equal(app.asked, 3);
  });

  it('a handshake waits for 8 s and no longer', async (test) => {
    const { certificates, app, clock } = await setUp(test);
    app.silent = true;
    const asked = once(app.server, 'request');
    const waiting = certificates.certificateFor(['a.example.com']);
    const refused = assert.rejects(waiting, { code: 'certificate-pending' });
    await asked;
    clock.advance(7_999);
    assert.equal(await Promise.race([refused.then(() => 'over'), nextTurn()]), 'waits');
    clock.advance(1);
    await refused;
  });

  it('before it is renewed it is asked again, and what is refused is not ordered', async (test) => {
    const { certificates, app, clock, log } = await setUp(test);
    const { cert } = await certificates.certificateFor(['a.example.com']);
    app.status = 403;
    // In one turn: what is asked on the network meanwhile must not find days gone by.
    clock.advance(30 * DAY_MS);
    while (log.of('Certificate not renewed').length === 0) await nextTurn();
    const [line] = log.of('Certificate not renewed');
    assert.match(String(line?.fields['error']), /may have no certificate/);
    assert.equal(app.asked >= 2, true);
    const again = await certificates.certificateFor(['a.example.com'], false);
    assert.equal(again.cert, cert);
  });
});

async function nextTurn(): Promise<'waits'> {
  for (let i = 0; i < 20; i += 1) await new Promise((resolve) => setImmediate(resolve));
  return 'waits';
}

async function setUp(test: TestContext, maxHeld?: number) {
  const storage = mkdtempSync(join(tmpdir(), 'hubgate-on-demand-'));
  const server = createServer((_, response) => {
    app.asked += 1;
    if (!app.silent) response.writeHead(app.status).end();
  });
  const app = { server, asked: 0, status: 200, silent: false };
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const clock = new TestClock();
  const log = new RecordedLog();
  const store = new CertificateStore(storage);
  const localAuthority = new LocalAuthority(storage, clock);
  const managed = new ManagedCertificates({
    ...{ storage, store, localAuthority, clock, log, nameCheck: null },
    random: () => 0,
  });
  const { port } = server.address() as AddressInfo;
  const onDemand = { ask: `http://127.0.0.1:${port}/may`, intervalMs: 0, burst: 1 };
  const certificates = onDemandCertificates({
    ...{ onDemand, authorities: ['local'], managed, clock, log },
    ...(maxHeld === undefined ? {} : { maxHeld }),
  });
  test.after(async () => {
    server.closeAllConnections();
    server.close();
    await certificates.close();
    rmSync(storage, { recursive: true });
  });
  return { certificates, app, clock, log, store };
}
