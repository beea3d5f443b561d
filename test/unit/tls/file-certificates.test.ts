import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { systemClock } from '../../../src/kernel/clock.ts';
import { coversHost } from '../../../src/tls/certificate.ts';
import { LocalAuthority } from '../../../src/tls/local-authority.ts';
import { temporaryDirectory } from '../../support/temporary-directory.ts';

describe('the identities in a certificate (RFC 9525 §6)', () => {
  it('are names, wildcards for one label, and addresses', async (test) => {
    const authority = new LocalAuthority(await temporaryDirectory(test), systemClock);
    await authority.prepare();
    const { chain } = await authority.issue(['example.com', '*.wild.example', '192.0.2.1']);
    for (const host of ['example.com', 'a.wild.example', '*.wild.example', '192.0.2.1']) {
      assert.ok(coversHost(chain, host), host);
    }
    for (const host of ['www.example.com', 'wild.example', 'a.b.wild.example', '192.0.2.2']) {
      assert.ok(!coversHost(chain, host), host);
    }
  });
});
