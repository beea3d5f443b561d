import assert from 'node:assert/strict';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, it, type TestContext } from 'node:test';
import { defaultTls } from '../../../../src/config/shape-config.ts';
import { defaultOptions } from '../../../../src/config/shape-options.ts';
import { silentLogger } from '../../../../src/kernel/log.ts';
import { Scope } from '../../../../src/kernel/scope.ts';
import { ManagedCertificates } from '../../../../src/tls/acme/managed-certificates.ts';
import { CertificateStore } from '../../../../src/tls/certificate-store.ts';
import { openCertificates } from '../../../../src/tls/certificates.ts';
import { LocalAuthority } from '../../../../src/tls/local-authority.ts';
import { onDemandCertificates } from '../../../../src/tls/on-demand/on-demand-certificates.ts';
import { RecordedLog } from '../../../support/recorded-log.ts';
import { TestClock } from '../../../support/test-clock.ts';

const DAY_MS = 24 * 60 * 60 * 1000;

describe('certificates on demand', () => {
  it('are kept in memory up to a limit; the others are loaded from the storage again, without asking for permission', async (test) => {
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

  it('are waited for by a handshake for 8 s at most', async (test) => {
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

  it('need permission again before renewal, and are not ordered if it is refused', async (test) => {
    const { certificates, app, clock, log } = await setUp(test);
    const { cert } = await certificates.certificateFor(['a.example.com']);
    app.status = 403;
    // In one turn: what is asked on the network meanwhile must not find days gone by.
    clock.advance(30 * DAY_MS);
    while (log.of('Certificate not renewed').length === 0) await nextTurn();
    const [line] = log.of('Certificate not renewed');
    assert.match(String(line?.fields['error']), /is not allowed to have a certificate/);
    assert.equal(app.asked >= 2, true);
    const again = await certificates.certificateFor(['a.example.com'], false);
    assert.equal(again.cert, cert);
  });
});

describe('a certificate on demand that is being ordered during a reload', () => {
  const NAME = 'a.example.com';

  it('is ordered once: waiting clients get it, and so does the new configuration', async (test) => {
    const { open, authority, log } = await setUpReloads(test);
    const before = await open('https:// may');
    const waiting = before.source.certificateFor(NAME);
    await authority.asked();
    const after = await open('https:// may');
    const closed = before.close();
    await nextTurn();
    authority.answer();
    await closed;
    const { cert } = await waiting;
    assert.equal((await after.source.certificateFor(NAME)).cert, cert);
    assert.equal(authority.orders, 1);
    assert.deepEqual(log.of('The order of a certificate on demand was cancelled'), []);
  });

  for (const [why, site] of [
    ['is no longer allowed', 'https:// no'],
    ['is no longer of a site', 'https://other.example.com may'],
    ['is of a site with a certificate of its own', 'https://a.example.com internal'],
  ] as const) {
    it(`is canceled if its name ${why}, which is logged`, async (test) => {
      const { open, authority, log } = await setUpReloads(test);
      const before = await open('https:// may');
      const waiting = before.source.certificateFor(NAME);
      const refused = assert.rejects(waiting, { code: 'certificate-pending' });
      await authority.asked();
      await open(site);
      const closed = before.close();
      while (log.of('The order of a certificate on demand was cancelled').length === 0) {
        await nextTurn();
      }
      authority.fail();
      await Promise.all([closed, refused]);
      const [line] = log.of('The order of a certificate on demand was cancelled');
      assert.deepEqual(line?.fields, { name: NAME });
    });
  }

  it('is ordered again if another app is now asked and allows it', async (test) => {
    const { open, authority, log } = await setUpReloads(test);
    const before = await open('https:// may');
    const refused = assert.rejects(before.source.certificateFor(NAME));
    await authority.asked();
    const after = await open('https:// also');
    const closed = before.close();
    const again = 'A certificate on demand is ordered again with the new configuration';
    while (log.of(again).length === 0) await nextTurn();
    authority.fail();
    await Promise.all([closed, refused]);
    await after.close();
  });

  it('is not counted again towards the orders of the interval', async (test) => {
    const { open, authority, log } = await setUpReloads(test, { intervalMs: DAY_MS, burst: 1 });
    const before = await open('https:// may');
    const waiting = before.source.certificateFor(NAME);
    await authority.asked();
    const after = await open('https:// may');
    const closed = before.close();
    await nextTurn();
    authority.answer();
    await Promise.all([closed, waiting]);
    await after.source.certificateFor(NAME);
    assert.equal(authority.orders, 1);
    assert.deepEqual(log.of('The order of a certificate on demand was cancelled'), []);
  });
});

/** Configurations that follow each other, of one site; and an authority that takes its time. */
async function setUpReloads(test: TestContext, limits = { intervalMs: 0, burst: 1 }) {
  const { managed, authority, localAuthority, clock, log, store, port } = await setUp(test);
  const open = async (site: string) => {
    const [address = '', path = ''] = site.split(' ');
    const scope = new Scope();
    test.after(() => scope.close());
    const onDemand = { ask: `http://127.0.0.1:${port}/${path}`, ...limits };
    const tls = { ...defaultTls, source: { kind: 'internal' as const } };
    const host = address.slice('https://'.length);
    const addresses = [{ scheme: 'https' as const, host, port: null }];
    const source = await openCertificates(
      [{ addresses, tls: { ...tls, onDemand: path !== 'internal' } }],
      {
        ...{ options: { ...defaultOptions, onDemand }, authority: localAuthority },
        ...{ store, managed, clock, log },
      },
      scope,
    );
    source.begin();
    return { source, close: () => scope.close() };
  };
  authority.isSlow = true;
  return { open, authority, log };
}

/** One that gives its certificates when it is told to. */
function slowAuthority(real: LocalAuthority) {
  let ask: () => void = () => {};
  let go: (fails: boolean) => void = () => {};
  const asked = new Promise<void>((resolve) => (ask = resolve));
  const gone = new Promise<boolean>((resolve) => (go = resolve));
  const authority = {
    isSlow: false,
    orders: 0,
    asked: () => asked,
    answer: () => go(false),
    fail: () => go(true),
    async issue(names: readonly string[]) {
      authority.orders += 1;
      ask();
      if (authority.isSlow && (await gone)) throw new Error('broken off');
      return real.issue(names);
    },
  };
  return authority;
}

async function nextTurn(): Promise<'waits'> {
  for (let i = 0; i < 20; i += 1) await new Promise((resolve) => setImmediate(resolve));
  return 'waits';
}

async function setUp(test: TestContext, maxHeld?: number) {
  const storage = mkdtempSync(join(tmpdir(), 'hubgate-on-demand-'));
  const server = createServer((request, response) => {
    app.asked += 1;
    const status = request.url?.startsWith('/no') === true ? 403 : app.status;
    if (!app.silent) response.writeHead(status).end();
  });
  const app = { server, asked: 0, status: 200, silent: false };
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const clock = new TestClock();
  const log = new RecordedLog();
  const store = new CertificateStore(storage, silentLogger);
  const localAuthority = new LocalAuthority(storage, clock);
  const authority = slowAuthority(localAuthority);
  const managed = new ManagedCertificates({
    ...{ storage, store, localAuthority: authority, clock, log, nameCheck: null },
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
  return { certificates, app, clock, log, store, managed, authority, localAuthority, port };
}
