import assert from 'node:assert/strict';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import type { TlsConfig } from '../../../src/config/config.ts';
import { defaultTls } from '../../../src/config/shape-config.ts';
import { openHandshakePolicy } from '../../../src/tls/handshake-policy.ts';
import { createClientAuthority } from '../../support/client-authority.ts';
import { temporaryDirectory } from '../../support/temporary-directory.ts';

const HERE = [{ scheme: 'https', host: 'here.test', port: null }] as const;
const THERE = [{ scheme: 'https', host: 'there.test', port: null }] as const;

describe('handshake policies', () => {
  it('are shared by all sites with the same settings and no client certificates', async () => {
    const [here, there] = await Promise.all([
      openHandshakePolicy(defaultTls, HERE),
      openHandshakePolicy({ ...defaultTls, source: { kind: 'internal' } }, THERE),
    ]);
    assert.equal(here.id, there.id);
    const newer = await openHandshakePolicy({ ...defaultTls, minVersion: 'TLSv1.3' }, HERE);
    assert.notEqual(newer.id, here.id);
  });

  it('with client certificates differ by site, mode and content of the trust pool', async (test) => {
    const directory = await temporaryDirectory(test);
    const trustPoolFiles = [createClientAuthority(directory, 'pool').file];
    const tls = (mode: 'require' | 'require_and_verify'): TlsConfig => ({
      ...defaultTls,
      clientAuth: { mode, trustPoolFiles },
    });
    const ids = [
      await openHandshakePolicy(tls('require'), HERE),
      await openHandshakePolicy(tls('require'), THERE),
      await openHandshakePolicy(tls('require_and_verify'), HERE),
    ].map(({ id }) => id);
    assert.deepEqual((await openHandshakePolicy(tls('require'), HERE)).id, ids[0]);
    createClientAuthority(directory, 'pool');
    ids.push((await openHandshakePolicy(tls('require'), HERE)).id);
    assert.equal(new Set(ids).size, 4);
    for (const id of ids) assert.match(id, /^[0-9a-f]{32}$/);
  });

  it('use defaults for what a list of suites omits', async () => {
    const ciphers = async (...named: readonly string[]): Promise<string> =>
      (await openHandshakePolicy({ ...defaultTls, ciphers: named }, HERE)).options.ciphers ?? '';
    assert.match(
      await ciphers('ECDHE-RSA-AES256-GCM-SHA384'),
      /^TLS_AES[^]*:ECDHE-RSA-AES256[^:]*$/,
    );
    assert.match(await ciphers('TLS_AES_128_GCM_SHA256'), /^TLS_AES_128_GCM_SHA256:ECDHE-ECDSA/);
  });

  it('cannot be created with suites and curves that OpenSSL does not know', async () => {
    for (const wrong of [{ ciphers: ['NONSENSE'] }, { curves: ['nonsense'] }]) {
      await assert.rejects(openHandshakePolicy({ ...defaultTls, ...wrong }, HERE), {
        code: 'tls-unusable',
      });
    }
  });

  it('name the trust pool that cannot be used', async (test) => {
    const directory = await temporaryDirectory(test);
    const broken = join(directory, 'broken.pem');
    await writeFile(broken, '-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n');
    for (const trustPoolFile of [broken, join(directory, 'absent.pem')]) {
      const clientAuth = { mode: 'require', trustPoolFiles: [trustPoolFile] } as const;
      await assert.rejects(
        openHandshakePolicy({ ...defaultTls, clientAuth }, HERE),
        (error) => error instanceof Error && error.message.includes(trustPoolFile),
      );
    }
  });
});
