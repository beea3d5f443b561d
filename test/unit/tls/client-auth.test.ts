import assert from 'node:assert/strict';
import { X509Certificate } from 'node:crypto';
import { describe, it } from 'node:test';
import {
  type ClientIdentity,
  isVerified,
  refusalReason,
} from '../../../src/tls/handshake-policy.ts';
import { createClientAuthority } from '../../support/client-authority.ts';
import { temporaryDirectory } from '../../support/temporary-directory.ts';

describe('the check of client certificates', () => {
  it('rejects a client without one if verification is required, whatever Node reports for a resumed session', () => {
    const resumed: ClientIdentity = {
      getPeerX509Certificate: () => undefined,
      authorized: true,
      authorizationError: null,
    };
    assert.equal(refusalReason(resumed, 'require_and_verify'), 'no certificate was given');
    assert.equal(refusalReason(resumed, 'require'), 'no certificate was given');
    assert.equal(refusalReason(resumed, 'verify_if_given'), null);
    assert.equal(refusalReason(resumed, 'request'), null);
  });

  it('says why a certificate is not trusted', async (test) => {
    const { cert } = createClientAuthority(await temporaryDirectory(test), 'any').issue('client');
    const stranger: ClientIdentity = {
      getPeerX509Certificate: () => new X509Certificate(cert),
      authorized: false,
      authorizationError: 'CERT_HAS_EXPIRED',
    };
    for (const mode of ['verify_if_given', 'require_and_verify'] as const) {
      assert.match(String(refusalReason(stranger, mode)), /not trusted: CERT_HAS_EXPIRED/);
    }
    assert.equal(refusalReason(stranger, 'require'), null);
  });

  it('rejects a certificate that has expired since the session began that the client resumes', async (test) => {
    const { cert } = createClientAuthority(await temporaryDirectory(test), 'any').issue('client');
    const certificate = new X509Certificate(cert);
    const resumed: ClientIdentity = {
      getPeerX509Certificate: () => certificate,
      authorized: true,
      authorizationError: null,
    };
    const end = Date.parse(certificate.validTo);
    for (const mode of ['verify_if_given', 'require_and_verify'] as const) {
      assert.equal(refusalReason(resumed, mode, end), null);
      assert.equal(isVerified(resumed, mode, end), true);
      assert.equal(refusalReason(resumed, mode, end + 1000), 'the certificate has expired');
      assert.equal(isVerified(resumed, mode, end + 1000), false);
    }
    // These modes verify nothing.
    assert.equal(refusalReason(resumed, 'require', end + 1000), null);
    assert.equal(isVerified(resumed, 'require', end), false);
  });
});
