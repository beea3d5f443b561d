import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { X509Certificate } from 'node:crypto';
import { mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, it, type TestContext } from 'node:test';
import { defaultTls } from '../../../src/config/defaults.ts';
import { silentLogger } from '../../../src/kernel/log.ts';
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

  it('keeps its files to itself, and uses them again', async (test) => {
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

  it('renews its intermediate in the last third of its life, below the same root', async (test) => {
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
});

describe('certificates of sites', () => {
  it('issues once for a name, and anew in the last third of a leaf’s life', async (test) => {
    const { authority, clock } = setUp(test);
    const source = await openSource(authority, clock, ['localhost']);
    const first = await source.fallback();
    assert.equal((await source.fallback())?.cert, first?.cert);
    clock.advance(5 * DAY_MS);
    assert.notEqual((await source.fallback())?.cert, first?.cert);
  });

  it('refuses names that no site has, and names that are none', async (test) => {
    const { authority, clock } = setUp(test);
    const source = await openSource(authority, clock, ['localhost', '*.example.internal']);
    await source.contextFor('LOCALHOST');
    await source.contextFor('a.example.internal');
    for (const name of ['example.internal', 'a.b.example.internal', 'other', '']) {
      await assert.rejects(source.contextFor(name), { code: 'no-certificate' });
    }
    const any = await openSource(authority, clock, ['']);
    await any.contextFor('whatever.example');
    for (const name of ['a..b', 'a b', 'x'.repeat(300), 'a/../b', 'evil\0']) {
      await assert.rejects(any.contextFor(name), { code: 'no-certificate' });
    }
  });

  it('says which certificate file cannot be used', async (test) => {
    const { authority, clock, directory } = setUp(test);
    const certFile = join(directory, 'absent.pem');
    const sites = [
      {
        addresses: [{ scheme: 'https' as const, host: 'localhost', port: null }],
        tls: { ...defaultTls, source: { kind: 'files' as const, certFile, keyFile: certFile } },
      },
    ];
    await assert.rejects(openCertificates(sites, authority, clock, silentLogger), (error) => {
      assert.ok(error instanceof Error && error.message.includes('absent.pem'));
      return true;
    });
  });
});

function setUp(
  test: TestContext,
  now?: number,
): { directory: string; clock: TestClock; authority: LocalAuthority } {
  const directory = mkdtempSync(join(tmpdir(), 'hubgate-tls-'));
  test.after(() => rmSync(directory, { recursive: true, force: true }));
  const clock = new TestClock(now);
  return { directory, clock, authority: new LocalAuthority(directory, clock) };
}

function openSource(authority: LocalAuthority, clock: TestClock, hosts: readonly string[]) {
  const addresses = hosts.map((host) => ({ scheme: 'https' as const, host, port: null }));
  const sites = [{ addresses, tls: { ...defaultTls, source: { kind: 'internal' as const } } }];
  return openCertificates(sites, authority, clock, silentLogger);
}
