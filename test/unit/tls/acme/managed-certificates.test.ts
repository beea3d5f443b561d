import assert from 'node:assert/strict';
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, statSync, symlinkSync } from 'node:fs';
import { createServer as createHttpServer } from 'node:http';
import { createServer as createHttpsServer } from 'node:https';
import { type AddressInfo, createServer, type Server } from 'node:net';
import { createServer as createTlsServer } from 'node:tls';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, it, type TestContext } from 'node:test';
import type { AcmeOptions } from '../../../../src/config/config.ts';
import { backoff } from '../../../../src/tls/acme/attempts.ts';
import type { ManagedCertificate } from '../../../../src/tls/acme/managed-certificate.ts';
import { systemClock } from '../../../../src/kernel/clock.ts';
import { silentLogger } from '../../../../src/kernel/log.ts';
import { Challenges } from '../../../../src/tls/acme/challenges.ts';
import { ManagedCertificates } from '../../../../src/tls/acme/managed-certificates.ts';
import type { NameCheck } from '../../../../src/tls/acme/name-check.ts';
import { CertificateStore } from '../../../../src/tls/certificate-store.ts';
import { LocalAuthority } from '../../../../src/tls/local-authority.ts';
import { freePort } from '../../../support/free-port.ts';
import { RecordedLog } from '../../../support/recorded-log.ts';
import { TestClock } from '../../../support/test-clock.ts';

const NAME = 'a.example.com';
const MINUTE_MS = 60_000;
const HOUR_MS = 60 * MINUTE_MS;
const DAY_MS = 24 * HOUR_MS;

describe('certificates obtained from ACME authorities', () => {
  it('a failure is reported with its fix, and retried after a minute, from the third failure on after hours', async (test) => {
    const { log, clock, acquire } = await setUp(test);
    (await acquire()).begin();
    const delays: number[] = [];
    for (let count = 1; count <= 12; count += 1) {
      const { level, fields } = await log.says('No certificate', count);
      assert.equal(level, 'error');
      assert.match(String(fields['error']), /ECONNREFUSED/);
      assert.match(String(fields['fix']), /acme_ca/);
      const delay = Date.parse(String(fields['nextAttempt'])) - clock.now();
      delays.push(delay);
      clock.advance(delay - 1);
      await quiet();
      assert.equal(log.of('No certificate').length, count, 'not before its time');
      clock.advance(1);
    }
    assert.deepEqual(
      delays.map((delay) => delay / MINUTE_MS),
      [1, 2, 60, 120, 240, 360, 360, 360, 360, 360, 360, 360],
    );
  });

  it('the back-off survives a restart, and does not apply to other settings', async (test) => {
    const { storage, clock, log, acquire, open } = await setUp(test);
    const before = await acquire();
    before.begin();
    const { fields: failure } = await log.says('No certificate');
    const file = join(storage, 'acme', 'attempts', `${NAME}.json`);
    assert.equal(statSync(file).mode & 0o777, 0o600);
    assert.equal(JSON.parse(readFileSync(file, 'utf8')).count, 1);
    await before.close();

    const restarted = open();
    const again = await restarted.acquire();
    again.begin();
    const { fields: waiting } = await restarted.log.says('Waiting for a certificate');
    assert.equal(waiting['nextAttempt'], failure['nextAttempt']);
    assert.equal(waiting['error'], failure['error']);
    await quiet();
    assert.equal(restarted.log.of('No certificate').length, 0);
    clock.advance(MINUTE_MS);
    await restarted.log.says('No certificate');
    assert.equal(JSON.parse(readFileSync(file, 'utf8')).count, 2);
    await again.close();

    const changed = open();
    (await changed.acquire({ email: 'other@example.com' })).begin();
    await changed.log.says('No certificate');
  });

  it('a certificate in the storage is available at once, and nothing is ordered', async (test) => {
    const { store, authority, acquire, log } = await setUp(test);
    const pair = await authority.issue([NAME]);
    const directory = `127.0.0.1:${await freePort()}`;
    await store.write(directory, [NAME], pair);
    const managed = await acquire({ directories: [`https://${directory}/dir`] });
    assert.equal(managed.require().pair.chain, pair.chain);
    managed.begin();
    await quiet();
    assert.deepEqual(log.lines, []);
  });

  it('a certificate with half a chain is not served, because no handshake could use it', async (test) => {
    const { store, authority, clock, acquire } = await setUp(test);
    const good = await authority.issue([NAME]);
    const half = { ...good, chain: good.chain.slice(0, -200) };
    await store.write('former.example', [NAME], good);
    await store.write('half.example', [NAME], { ...half, notAfter: clock.now() + 90 * DAY_MS });
    assert.equal((await acquire()).current?.authority, 'former.example');
    assert.equal(await store.read('half.example', [NAME]), null);
  });

  it('a certificate that the local authority made while the clock was a year ahead is replaced', async (test) => {
    const { clock, pool, log } = await setUp(test);
    clock.setBy(365 * DAY_MS);
    const lease = await pool.acquire(NAME, ['local']);
    lease.value.begin();
    await log.says('Certificate obtained');
    clock.setBy(-365 * DAY_MS);
    clock.advance(HOUR_MS);
    await log.says('Certificate obtained', 2);
    assert.ok((lease.value.current?.pair.notBefore ?? Infinity) <= clock.now());
    await lease.release();
  });

  it('a file that cannot be read counts as absent, is logged, and causes no more orders', async (test) => {
    const { store, storage, authority, clock, log, acquire } = await setUp(test);
    await store.write('former.example', [NAME], await authority.issue([NAME]));
    mkdirSync(join(storage, 'certificates', 'damaged.example', `${NAME}.pem`), { recursive: true });
    symlinkSync('loop', join(storage, 'certificates', 'loop'));
    const attempts = join(storage, 'acme', 'attempts', `${NAME}.json`);
    mkdirSync(attempts, { recursive: true });
    const managed = await acquire();
    assert.equal(managed.current?.authority, 'former.example');
    const files = log
      .of('A file of the storage cannot be used')
      .map(({ fields }) => fields['file']);
    assert.ok(files.includes(attempts));
    managed.begin();
    for (const delay of [MINUTE_MS, 2 * MINUTE_MS, HOUR_MS]) {
      const { fields } = await log.says(
        'Certificate not renewed',
        log.of('Certificate not renewed').length + 1,
      );
      assert.equal(Date.parse(String(fields['nextAttempt'])) - clock.now(), delay);
      clock.advance(delay);
    }
  });

  it('of several certificates the one that expires last is used, whoever issued it', async (test) => {
    const { store, clock, authority, acquire } = await setUp(test);
    await store.write('first.example', [NAME], await authority.issue([NAME]));
    clock.advance(DAY_MS);
    const later = await authority.issue([NAME]);
    await store.write('second.example', [NAME], later);
    const managed = await acquire({
      directories: ['https://first.example/dir', 'https://second.example/dir'],
    });
    assert.equal(managed.current?.authority, 'second.example');
    assert.equal(managed.require().pair.chain, later.chain);
  });

  it('a certificate of a former authority is served until the current one has issued another', async (test) => {
    const { store, clock, authority, acquire, log } = await setUp(test);
    const pair = await authority.issue([NAME]);
    await store.write('former.example', [NAME], pair);
    // Those of this machine's own authority are for who trusts it.
    await store.write('local', [NAME], await authority.issue([NAME, 'other.example.com']));
    const directory = `127.0.0.1:${await freePort()}`;
    const managed = await acquire({ directories: [`https://${directory}/dir`] });
    assert.equal(managed.require().pair.chain, pair.chain);
    assert.equal(managed.current?.authority, 'former.example');
    managed.begin();
    // The present one is asked at once.
    await log.says('Certificate not renewed');
    const own = await authority.issue([NAME]);
    await store.write(directory, [NAME], own);
    clock.advance(MINUTE_MS);
    await log.says('Another process has ordered the certificate');
    assert.equal(managed.require().pair.chain, own.chain);
  });

  it('of two authorities, the valid certificate of the former one comes before the expired one of the present', async (test) => {
    const { store, clock, authority, acquire, log } = await setUp(test);
    const directory = `127.0.0.1:${await freePort()}`;
    await store.write(directory, [NAME], await authority.issue([NAME]));
    clock.advance(30 * DAY_MS);
    const pair = await authority.issue([NAME]);
    await store.write('former.example', [NAME], pair);
    const managed = await acquire({ directories: [`https://${directory}/dir`] });
    assert.equal(managed.current?.authority, 'former.example');
    let changes = 0;
    managed.onChange(() => (changes += 1));
    managed.begin();
    await log.says('Certificate not renewed');
    assert.equal(managed.require().pair.chain, pair.chain);
    assert.equal(changes, 0);
    const own = await authority.issue([NAME]);
    await store.write(directory, [NAME], own);
    clock.advance(MINUTE_MS);
    await log.says('Another process has ordered the certificate');
    assert.equal(managed.require().pair.chain, own.chain);
  });

  it('an expired certificate of another authority is not adopted', async (test) => {
    const { store, clock, authority, acquire } = await setUp(test);
    await store.write('former.example', [NAME], await authority.issue([NAME]));
    clock.advance(30 * DAY_MS);
    assert.equal((await acquire()).current, null);
  });

  it('an expired certificate is still served while it is being renewed', async (test) => {
    const { store, clock, authority, acquire, log } = await setUp(test);
    const pair = await authority.issue([NAME]);
    const directory = `127.0.0.1:${await freePort()}`;
    await store.write(directory, [NAME], pair);
    clock.advance(30 * DAY_MS);
    const managed = await acquire({ directories: [`https://${directory}/dir`] });
    managed.begin();
    const { level, fields } = await log.says('Certificate not renewed');
    assert.equal(level, 'error');
    assert.equal(fields['notAfter'], `${new Date(pair.notAfter).toISOString().slice(0, -4)}000Z`);
    assert.equal(managed.require().pair.chain, pair.chain);
  });

  it('the local authority, as the last one, does not replace a valid certificate, but does replace an expired one', async (test) => {
    const unknown: NameCheck = {
      ...NOWHERE,
      lookup: async () => {
        throw Object.assign(new Error('getaddrinfo ENOTFOUND'), { code: 'ENOTFOUND' });
      },
    };
    for (const [check, why] of [
      [null, /ECONNREFUSED/],
      [unknown, /has no address/],
    ] as const) {
      const { store, clock, authority, pool, log } = await setUp(test, 0, check);
      const directory = `127.0.0.1:${await freePort()}`;
      await store.write(directory, [NAME], await authority.issue([NAME]));
      clock.advance(5 * DAY_MS);
      const acme = { ...OPTIONS, directories: [`https://${directory}/dir`] };
      const { value: managed, release } = await pool.acquire(NAME, [acme, 'local']);
      managed.begin();
      const { fields } = await log.says('Certificate not renewed');
      assert.match(String(fields['error']), why);
      assert.deepEqual(fields['authorities'], [directory]);
      assert.equal(managed.current?.authority, directory);
      clock.advance(30 * DAY_MS);
      await log.says('Certificate obtained');
      assert.equal(managed.current.authority, 'local');
      await release();
    }
  });

  it('the local authority, as the last one, replaces a certificate that expires while the others are not asked again yet', async (test) => {
    const { store, clock, authority, pool, log, storage } = await setUp(test);
    const directory = `127.0.0.1:${await freePort()}`;
    await store.write(directory, [NAME], await authority.issue([NAME]));
    const { notAfter } = (await store.read(directory, [NAME])) ?? assert.fail();
    clock.advance(5 * DAY_MS);
    const acme = { ...OPTIONS, directories: [`https://${directory}/dir`] };
    const { value: managed, release } = await pool.acquire(NAME, [acme, 'local']);
    managed.begin();
    let failures = 1;
    let nextOfAll = 0;
    for (; ; failures += 1) {
      const { fields } = await log.says('Certificate not renewed', failures);
      nextOfAll = Date.parse(String(fields['nextAttempt']));
      if (nextOfAll > notAfter) break;
      clock.advance(nextOfAll - clock.now());
    }
    clock.advance(notAfter - 1 - clock.now());
    await quiet();
    assert.equal(managed.current?.authority, directory);
    // It cannot be made at first, which says nothing of the others: they are asked as late as before.
    const attempts = join(storage, 'acme', 'attempts', `${NAME}.json`);
    const before = readFileSync(attempts, 'utf8');
    const issue = test.mock.method(authority, 'issue', async () => {
      throw new Error('no space left');
    });
    clock.advance(1);
    const { fields } = await log.says('Certificate not renewed', failures + 1);
    assert.deepEqual(fields['authorities'], ['local']);
    assert.match(String(fields['error']), /no space left/);
    assert.equal(readFileSync(attempts, 'utf8'), before);
    issue.mock.restore();
    clock.advance(5 * MINUTE_MS);
    await log.says('Certificate obtained');
    assert.equal(managed.current.authority, 'local');
    assert.equal(log.of('Certificate not renewed').length, failures + 1);
    assert.deepEqual(log.of('An authority issued no certificate; hubgate asks the next one'), []);
    // The others are asked again as soon as they would be without it.
    assert.equal(readFileSync(attempts, 'utf8'), before);
    clock.advance(nextOfAll - clock.now());
    await log.says('An authority issued no certificate; hubgate asks the next one');
    await release();
  });

  it('renewal begins in the last third of the lifetime, at random times rather than all at once', async (test) => {
    for (const [random, share] of [
      [0, 0],
      [0.999, 0.25],
    ] as const) {
      const { store, clock, authority, acquire, log } = await setUp(test, random);
      const directory = `127.0.0.1:${await freePort()}`;
      await store.write(directory, [NAME], await authority.issue([NAME]));
      const { notBefore, notAfter } = (await store.read(directory, [NAME])) ?? assert.fail();
      (await acquire({ directories: [`https://${directory}/dir`] })).begin();
      const third = (notAfter - notBefore) / 3;
      const due = notAfter - third + share * third;
      clock.advance(due - HOUR_MS - clock.now());
      await quiet();
      assert.deepEqual(log.lines, []);
      clock.advance(HOUR_MS);
      await log.says('Certificate not renewed');
    }
  });

  it('clients that ask for a name without a certificate yet are rejected, which is logged once a minute', async (test) => {
    const { clock, log, acquire } = await setUp(test);
    const managed = await acquire();
    for (let i = 0; i < 50; i += 1) {
      assert.throws(() => managed.require(), { code: 'certificate-pending' });
    }
    assert.equal(log.lines.length, 1);
    assert.equal(log.lines[0]?.level, 'warn');
    clock.advance(MINUTE_MS);
    assert.throws(() => managed.require(), { code: 'certificate-pending' });
    assert.equal(log.lines.length, 2);
  });

  it('an order is aborted when its name is no longer needed', async (test) => {
    const { storage, log, open } = await setUp(test);
    const silent = createServer();
    silent.listen(0, '127.0.0.1');
    await once(silent, 'listening');
    test.after(() => silent.close());
    const contacted = once(silent, 'connection');
    const { port } = silent.address() as AddressInfo;
    const { pool } = open();
    const lease = await pool.acquire(NAME, [
      { ...OPTIONS, directories: [`https://127.0.0.1:${port}/`] },
    ]);
    lease.value.begin();
    await contacted;
    const generation = join(storage, 'acme', 'locks', `${NAME}.lock.d`, '1');
    const expires = (): number => JSON.parse(readFileSync(generation, 'utf8')).expires;
    assert.ok(expires() > 0);
    await lease.release();
    assert.equal(expires(), 0);
    assert.equal(log.of('No certificate').length, 0);
  });

  it('a directory that is not an https URL, and a root that cannot be read, are refused', async (test) => {
    const { acquire } = await setUp(test);
    for (const directory of ['http://ca.example/dir', 'ca.example', 'file:///etc/passwd']) {
      await assert.rejects(acquire({ directories: [directory] }), { code: 'bad-acme-directory' });
    }
    await assert.rejects(acquire({ rootFile: '/nowhere/root.pem' }), {
      code: 'certificate-unusable',
    });
  });
});

describe('back-off', () => {
  it('lasts between a minute and six hours, minus a random part, and as long as the authority asks', () => {
    assert.equal(backoff(1, 0.99, null), MINUTE_MS);
    assert.equal(backoff(3, 0, null), HOUR_MS);
    assert.equal(backoff(3, 0.5, null), 52.5 * MINUTE_MS);
    assert.equal(backoff(1000, 0, null), 6 * HOUR_MS);
    assert.equal(backoff(1, 0, HOUR_MS), HOUR_MS);
    assert.equal(backoff(1, 0, 1000 * DAY_MS), DAY_MS);
  });
});

describe('an authority that asks to wait (RFC 8555 §6.6)', () => {
  it('is contacted again at the time it gave, not before', async (test) => {
    const { log, clock, storage, acquire } = await setUp(test);
    const here = new LocalAuthority(join(storage, 'other'), systemClock);
    const { chain, key } = await here.issue(['127.0.0.1']);
    const server = createHttpsServer({ cert: chain, key }, (_, response) => {
      response
        .writeHead(429, { 'retry-after': '7200', 'content-type': 'application/problem+json' })
        .end(JSON.stringify({ type: 'urn:ietf:params:acme:error:rateLimited', detail: 'slowly' }));
    });
    const port = await listen(test, server);
    const managed = await acquire({
      directories: [`https://127.0.0.1:${port}/dir`],
      rootFile: here.rootFile,
    });
    managed.begin();
    const { fields } = await log.says('No certificate');
    const delay = Date.parse(String(fields['nextAttempt'])) - clock.now();
    assert.equal(delay, 2 * HOUR_MS);
  });
});

describe('a name is checked before a certificate is ordered for it', () => {
  it('if it has no address, no certificate is ordered, and the check is repeated within minutes', async (test) => {
    const { log, clock, acquire } = await setUp(test, 0, {
      ...NOWHERE,
      lookup: async () => {
        throw Object.assign(new Error('getaddrinfo ENOTFOUND'), { code: 'ENOTFOUND' });
      },
    });
    (await acquire()).begin();
    for (let count = 1; count <= 6; count += 1) {
      const { fields } = await log.says('No certificate', count);
      assert.match(String(fields['error']), /has no address/);
      assert.match(String(fields['fix']), /A or AAAA record/);
      const delay = Date.parse(String(fields['nextAttempt'])) - clock.now();
      assert.ok(delay <= 5 * MINUTE_MS, String(delay));
      clock.advance(delay);
    }
  });

  it('if other servers respond, over HTTP and TLS, no certificate is ordered', async (test) => {
    const web = createHttpServer((_, response) => response.writeHead(404).end('no'));
    const { chain, key } = await (await setUp(test)).authority.issue(['other.example.com']);
    const tls = createTlsServer({ cert: chain, key });
    const check = {
      lookup: async () => ['127.0.0.1'],
      httpPort: await listen(test, web),
      httpsPort: await listen(test, tls),
    };
    const { log, acquire } = await setUp(test, 0, check);
    (await acquire()).begin();
    const { fields } = await log.says('No certificate');
    assert.match(String(fields['error']), /points to 127\.0\.0\.1, where another server answers/);
    assert.match(String(fields['fix']), /point its DNS records to this machine/);
  });

  it('if this gateway responds, or nothing can be determined, the certificate is ordered', async (test) => {
    const found = await setUp(test);
    const challenges = new Challenges(found.storage, found.clock);
    const web = createHttpServer((request, response) => {
      assert.equal(request.headers.host, NAME);
      const token = request.url?.split('/').at(-1) ?? '';
      void challenges.keyAuthorization(token).then((text) => response.end(text));
    });
    const here = {
      ...NOWHERE,
      lookup: async () => ['127.0.0.1'],
      httpPort: await listen(test, web),
    };
    const asked = { challenges: ['http-01'] } as const;
    const answers = found.openWith(here);
    (await answers.acquire(asked)).begin();
    const { fields } = await answers.log.says('No certificate');
    assert.match(String(fields['error']), /ECONNREFUSED/);
    for (const check of [
      { ...NOWHERE, httpPort: await freePort(), lookup: async () => ['127.0.0.1'] },
      {
        ...NOWHERE,
        lookup: async () => {
          throw Object.assign(new Error('getaddrinfo EAI_AGAIN'), { code: 'EAI_AGAIN' });
        },
      },
    ]) {
      const { log, acquire } = await setUp(test, 0, check);
      (await acquire(asked)).begin();
      const { fields: said } = await log.says('No certificate');
      assert.match(String(said['error']), /ECONNREFUSED/);
    }
  });
});

const NOWHERE = { httpPort: 1, httpsPort: 1 };

async function listen(test: TestContext, server: Server): Promise<number> {
  server.listen(0, '127.0.0.1');
  test.after(() => server.close());
  await once(server, 'listening');
  // A TCP server that listens has an AddressInfo.
  return (server.address() as AddressInfo).port;
}

const OPTIONS: AcmeOptions = {
  staging: null,
  challenges: ['tls-alpn-01', 'http-01'],
  email: null,
  directories: [],
  rootFile: null,
  externalAccount: null,
  dns: null,
};

/** Certificates of authorities that nobody listens for, unless the test says where. */
async function setUp(test: TestContext, random = 0, nameCheck: NameCheck | null = null) {
  const storage = mkdtempSync(join(tmpdir(), 'hubgate-acme-'));
  const leases: { release(): Promise<void> }[] = [];
  test.after(async () => {
    await Promise.all(leases.map((lease) => lease.release()));
    rmSync(storage, { recursive: true });
  });
  const clock = new TestClock();
  const store = new CertificateStore(storage, silentLogger);
  const authority = new LocalAuthority(storage, clock);
  const nobody = `https://127.0.0.1:${await freePort()}/dir`;
  const openWith = (check: NameCheck | null) => {
    const log = new RecordedLog();
    const pool = new ManagedCertificates({
      ...{ storage, store, localAuthority: authority, clock, log, nameCheck: check },
      random: () => random,
    });
    const acquire = async (options: Partial<AcmeOptions> = {}): Promise<ManagedCertificate> => {
      const lease = await pool.acquire(NAME, [{ ...OPTIONS, directories: [nobody], ...options }]);
      leases.push(lease);
      return lease.value;
    };
    return { log, pool, acquire };
  };
  const open = () => openWith(nameCheck);
  return { storage, clock, store, authority, open, openWith, ...open() };
}

/** Enough turns of the event loop for what is on its way, were there anything. */
async function quiet(): Promise<void> {
  for (let i = 0; i < 50; i += 1) await new Promise((resolve) => setImmediate(resolve));
}
