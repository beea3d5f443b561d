import assert from 'node:assert/strict';
import { chmod, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, it, type TestContext } from 'node:test';
import { systemClock } from '../../../src/kernel/clock.ts';
import { silentLogger } from '../../../src/kernel/log.ts';
import { CertificateStore } from '../../../src/tls/certificate-store.ts';
import { LocalAuthority } from '../../../src/tls/local-authority.ts';
import { fileName } from '../../../src/tls/storage.ts';
import { temporaryDirectory } from '../../support/temporary-directory.ts';

const WILDCARD = '*.example.com';
const HOST = 'wildcard.example.com';

describe('the stored certificates', () => {
  it('of a wildcard and of a host that is called so are two', async (test) => {
    const { store, authority } = await setUp(test);
    const pairs = [await authority.issue([WILDCARD]), await authority.issue([HOST])] as const;
    await store.write('local', [WILDCARD], pairs[0]);
    await store.write('local', [HOST], pairs[1]);
    assert.equal((await store.read('local', [WILDCARD]))?.chain.trim(), pairs[0].chain.trim());
    assert.equal((await store.read('local', [HOST]))?.chain.trim(), pairs[1].chain.trim());
  });

  it('of wildcards have the names that they have always had', () => {
    assert.equal(fileName([WILDCARD]), HOST);
    assert.equal(fileName(['wildcards.example.com']), 'wildcards.example.com');
    assert.match(fileName([HOST]), /^[0-9a-f]{32}$/);
    assert.match(fileName(['*example.com']), /^[0-9a-f]{32}$/);
  });

  it('are used only for the names that they are for', async (test) => {
    const { storage, store, authority } = await setUp(test);
    const sets = [
      [WILDCARD],
      ['*.localhost'],
      ['localhost', '127.0.0.1', '::1'],
      ['2001:db8::1'],
      ['a_b.example'],
    ];
    for (const names of sets) {
      const pair = await authority.issue(names);
      await store.write('local', names, pair);
      assert.equal((await store.read('local', names))?.key.trim(), pair.key.trim(), names.join());
    }
    const { key, chain } = await authority.issue([HOST]);
    const file = join(storage, 'certificates', 'local', `${fileName([WILDCARD])}.pem`);
    await writeFile(file, `${key}\n${chain}`);
    assert.equal(await store.read('local', [WILDCARD]), null);
  });
});

describe('a storage with files of another user', () => {
  it('says whose they are', async (test) => {
    if (process.geteuid?.() !== 0) return test.skip('only root can become another user');
    const { storage, authority, store } = await setUp(test);
    const pair = await authority.issue([HOST]);
    await chmod(storage, 0o711);
    const refused = {
      code: 'storage-forbidden',
      message: new RegExp(`; ${storage}(?:/pki)? belongs to root, and this process runs as user`),
    };
    process.seteuid?.(65_534);
    try {
      const another = new LocalAuthority(storage, systemClock);
      await assert.rejects(another.prepare(), refused);
      await assert.rejects(store.write('local', [HOST], pair), refused);
      assert.equal(await store.read('local', [HOST]), null);
    } finally {
      process.seteuid?.(0);
    }
  });
});

async function setUp(test: TestContext) {
  const storage = await temporaryDirectory(test);
  const authority = new LocalAuthority(storage, systemClock);
  await authority.prepare();
  return { storage, authority, store: new CertificateStore(storage, silentLogger) };
}
