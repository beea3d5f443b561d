import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { X509Certificate } from 'node:crypto';
import { mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, it, type TestContext } from 'node:test';
import { defaultTls } from '../../../src/config/shape-config.ts';
import { defaultOptions } from '../../../src/config/shape-options.ts';
import { systemClock } from '../../../src/kernel/clock.ts';
import { silentLogger } from '../../../src/kernel/log.ts';
import { Scope } from '../../../src/kernel/scope.ts';
import { ManagedCertificates } from '../../../src/tls/acme/managed-certificates.ts';
import { CertificateStore } from '../../../src/tls/certificate-store.ts';
import { openCertificates } from '../../../src/tls/certificates.ts';
import { LocalAuthority } from '../../../src/tls/local-authority.ts';
import { TestClock } from '../../support/test-clock.ts';

const DAY_MS = 24 * 60 * 60 * 1000;

describe('local authority', () => {
  it('issues chains that OpenSSL verifies strictly, for names and addresses', async (test) => {
    const { directory, authority } = setUp(test, Date.now());
    const { chain, key } = await authority.issue([
      'localhost',
      '*.example.internal',
      '127.0.0.1',
      '::1',
    ]);
    writeFileSync(join(directory, 'chain.pem'), chain);
    writeFileSync(join(directory, 'key.pem'), key);
    for (const check of [
      ['-verify_hostname', 'localhost'],
      ['-verify_hostname', 'a.example.internal'],
      ['-verify_ip', '127.0.0.1'],
      ['-verify_ip', '::1'],
    ]) {
      const output = execFileSync(
        'openssl',
        [
          ...['verify', '-x509_strict', '-CAfile', authority.rootFile],
          ...['-untrusted', join(directory, 'chain.pem'), ...check, join(directory, 'chain.pem')],
        ],
        { encoding: 'utf8' },
      );
      assert.match(output, /: OK/);
    }
  });

  it('keeps its files private, and reuses them', async (test) => {
    const { directory, authority, clock } = setUp(test);
    await authority.prepare();
    const files = join(directory, 'pki', 'local');
    assert.equal(statSync(files).mode & 0o777, 0o700);
    for (const name of ['root.crt', 'root.key', 'intermediate.crt', 'intermediate.key']) {
      assert.equal(statSync(join(files, name)).mode & 0o777, 0o600);
    }
    const before = readFileSync(authority.rootFile, 'utf8');
    const again = new LocalAuthority(directory, clock);
    const { chain } = await again.issue(['localhost']);
    assert.equal(readFileSync(authority.rootFile, 'utf8'), before);
    const leaf = new X509Certificate(chain);
    assert.equal(leaf.subjectAltName, 'DNS:localhost');
  });

  it('renews its intermediate in the last third of its lifetime, under the same root', async (test) => {
    const { directory, authority, clock } = setUp(test);
    await authority.prepare();
    const file = join(directory, 'pki', 'local', 'intermediate.crt');
    const [root, first] = [readFileSync(authority.rootFile), readFileSync(file, 'utf8')];
    clock.advance(200 * DAY_MS);
    await authority.prepare();
    assert.equal(readFileSync(file, 'utf8'), first);
    clock.advance(100 * DAY_MS);
    await authority.prepare();
    const second = new X509Certificate(readFileSync(file));
    assert.notEqual(readFileSync(file, 'utf8'), first);
    assert.ok(second.checkIssued(new X509Certificate(root)));
  });

  it('keeps a valid intermediate while it cannot be renewed, and tries again a minute later', async (test) => {
    const { directory, authority, clock } = setUp(test);
    await authority.prepare();
    const pki = join(directory, 'pki', 'local');
    const first = new X509Certificate(readFileSync(join(pki, 'intermediate.crt')));
    // Nobody can take this lock, as on a disk that is full or read-only.
    rmSync(join(pki, 'lock.d'), { recursive: true });
    writeFileSync(join(pki, 'lock.d'), '');
    clock.advance(300 * DAY_MS);
    for (const one of [authority, new LocalAuthority(directory, clock)]) {
      const { chain, notAfter } = await one.issue(['localhost']);
      assert.ok(new X509Certificate(chain).checkIssued(first));
      assert.equal(notAfter, clock.now() + 7 * DAY_MS);
    }
    rmSync(join(pki, 'lock.d'));
    clock.advance(60_000);
    assert.ok(
      !new X509Certificate((await authority.issue(['localhost'])).chain).checkIssued(first),
    );
    rmSync(join(pki, 'lock.d'), { recursive: true });
    writeFileSync(join(pki, 'lock.d'), '');
    clock.advance(400 * DAY_MS);
    await assert.rejects(authority.issue(['localhost']), { code: 'EEXIST' });
  });
});

describe('certificates of sites', () => {
  it('are valid again at once when the clock returns from a year ahead', async (test) => {
    const { clock, openSource, directory } = setUp(test);
    const sources = [await openSource(['localhost']), await openSource(['', 'localhost'])];
    for (const source of sources) await source.certificateFor('localhost');
    clock.setBy(365 * DAY_MS);
    for (const source of sources) await source.certificateFor('localhost');
    clock.setBy(-365 * DAY_MS);
    const certs = [
      ...(await Promise.all(sources.map((source) => source.certificateFor('localhost')))),
      await (await openSource(['localhost'])).certificateFor('localhost'),
      { cert: readFileSync(join(directory, 'pki', 'local', 'intermediate.crt'), 'utf8') },
    ];
    for (const { cert } of certs) {
      assert.ok(Date.parse(new X509Certificate(cert).validFrom) <= clock.now());
    }
  });

  it('are issued once per name, and again in the last third of a leaf’s lifetime', async (test) => {
    const { clock, openSource } = setUp(test);
    const source = await openSource(['localhost']);
    const first = await source.fallback();
    assert.equal((await source.fallback())?.cert, first?.cert);
    clock.advance(5 * DAY_MS);
    assert.notEqual((await source.fallback())?.cert, first?.cert);
  });

  it('are refused for names that no site has, and for invalid names', async (test) => {
    const { openSource } = setUp(test);
    const source = await openSource(['localhost', '*.example.internal']);
    await source.certificateFor('LOCALHOST');
    await source.certificateFor('a.example.internal');
    for (const name of ['example.internal', 'a.b.example.internal', 'other', '']) {
      await assert.rejects(source.certificateFor(name), { code: 'no-certificate' });
    }
    const any = await openSource(['']);
    await any.certificateFor('whatever.example');
    for (const name of ['a..b', 'a b', 'x'.repeat(300), 'a/../b', 'evil\0']) {
      await assert.rejects(any.certificateFor(name), { code: 'no-certificate' });
    }
  });

  it('stay the same after a restart for a name in the configuration', async (test) => {
    const { store, clock, openSource } = setUp(test);
    const first = await (await openSource(['localhost'])).certificateFor('localhost');
    const [stored, ...others] = await store.list();
    assert.deepEqual(others, []);
    assert.deepEqual(stored?.names, ['localhost']);
    assert.equal(stored.authority, 'local');
    assert.equal(statSync(stored.file).mode & 0o777, 0o600);
    const again = await (await openSource(['localhost'])).certificateFor('localhost');
    assert.deepEqual(again, first);
    clock.advance(5 * DAY_MS);
    const renewed = await (await openSource(['localhost'])).certificateFor('localhost');
    assert.notEqual(renewed.cert, first.cert);
  });

  it('are not taken from the storage if another authority issued them', async (test) => {
    const { directory, clock, store, openSource } = setUp(test);
    const other = new LocalAuthority(join(directory, 'other'), clock);
    await store.write('local', ['localhost'], await other.issue(['localhost']));
    const { cert } = await (await openSource(['localhost'])).certificateFor('localhost');
    const intermediate = readFileSync(join(directory, 'pki', 'local', 'intermediate.crt'));
    assert.ok(new X509Certificate(cert).checkIssued(new X509Certificate(intermediate)));
  });

  it('are never stored on disk under names that clients choose', async (test) => {
    const { store, openSource } = setUp(test);
    const source = await openSource(['', '*.example.internal']);
    await source.certificateFor('whatever.example');
    await source.certificateFor('a.example.internal');
    await source.fallback();
    assert.deepEqual(await store.list(), []);
  });

  it('come from one authority even if several processes start at once', async (test) => {
    const { directory } = setUp(test);
    const authorities = Array.from({ length: 8 }, () => new LocalAuthority(directory, systemClock));
    await Promise.all(authorities.map((authority) => authority.prepare()));
    const root = new X509Certificate(readFileSync(authorities[0]?.rootFile ?? ''));
    const intermediate = readFileSync(join(directory, 'pki', 'local', 'intermediate.crt'));
    assert.ok(new X509Certificate(intermediate).verify(root.publicKey));
    const chains = await Promise.all(authorities.map((one) => one.issue(['localhost'])));
    for (const { chain } of chains) {
      assert.ok(new X509Certificate(chain).verify(new X509Certificate(intermediate).publicKey));
    }
  });

  it('name the certificate file that cannot be used', async (test) => {
    const { tools, directory } = setUp(test);
    const certFile = join(directory, 'absent.pem');
    const sites = [
      {
        addresses: [{ scheme: 'https' as const, host: 'localhost', port: null }],
        tls: { ...defaultTls, source: { kind: 'files' as const, certFile, keyFile: certFile } },
      },
    ];
    await assert.rejects(openCertificates(sites, tools, new Scope()), (error) => {
      assert.ok(error instanceof Error && error.message.includes('absent.pem'));
      return true;
    });
  });
});

function setUp(test: TestContext, now?: number) {
  const directory = mkdtempSync(join(tmpdir(), 'hubgate-tls-'));
  test.after(() => rmSync(directory, { recursive: true, force: true }));
  const clock = new TestClock(now);
  const authority = new LocalAuthority(directory, clock);
  const store = new CertificateStore(directory, silentLogger);
  const log = silentLogger;
  const random = () => 0;
  const managed = new ManagedCertificates({
    nameCheck: null,
    storage: directory,
    localAuthority: authority,
    store,
    clock,
    log,
    random,
  });
  const tools = { options: defaultOptions, authority, store, managed, clock, log };
  return {
    directory,
    clock,
    authority,
    store,
    tools,
    openSource(hosts: readonly string[]) {
      const addresses = hosts.map((host) => ({ scheme: 'https' as const, host, port: null }));
      const sites = [{ addresses, tls: { ...defaultTls, source: { kind: 'internal' as const } } }];
      return openCertificates(sites, tools, new Scope());
    },
  };
}
