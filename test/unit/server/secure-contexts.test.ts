import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { createSecureContext, type SecureContextOptions } from 'node:tls';
import { MAX_CONTEXTS, SecureContexts } from '../../../src/server/tls-endpoint.ts';

/** Contexts that count how often one is made, and of what. */
function counting(): { readonly contexts: SecureContexts; readonly made: SecureContextOptions[] } {
  const made: SecureContextOptions[] = [];
  const contexts = new SecureContexts({ minVersion: 'TLSv1.3' }, (options) => {
    made.push(options);
    return createSecureContext();
  });
  return { contexts, made };
}

describe('secure contexts', () => {
  it('are made once per certificate, whatever the number of handshakes and names', () => {
    const { contexts, made } = counting();
    const first = contexts.contextFor('a.test', { cert: 'one', key: 'k' });
    for (let i = 0; i < 100; i += 1) {
      // Certificates from files come as another object each time.
      assert.equal(contexts.contextFor('a.test', { cert: 'one', key: 'k' }), first);
      assert.equal(contexts.contextFor('b.test', { cert: 'one', key: 'k' }), first);
    }
    assert.deepEqual(made, [{ minVersion: 'TLSv1.3', cert: 'one', key: 'k' }]);
  });

  it('are dropped when the certificate of a name changes', () => {
    const { contexts, made } = counting();
    const old = contexts.contextFor('a.test', { cert: 'one', key: 'k' });
    const renewed = contexts.contextFor('a.test', { cert: 'two', key: 'k' });
    assert.notEqual(renewed, old);
    assert.equal(contexts.contextFor('a.test', { cert: 'two', key: 'k' }), renewed);
    assert.equal(made.length, 2);
    assert.notEqual(contexts.contextFor('b.test', { cert: 'one', key: 'k' }), old);
  });

  it(`are limited to ${MAX_CONTEXTS}: the oldest is dropped`, () => {
    const { contexts, made } = counting();
    for (let i = 0; i <= MAX_CONTEXTS; i += 1) {
      contexts.contextFor(`${i}.test`, { cert: String(i), key: 'k' });
    }
    contexts.contextFor(`${MAX_CONTEXTS}.test`, { cert: String(MAX_CONTEXTS), key: 'k' });
    assert.equal(made.length, MAX_CONTEXTS + 1);
    contexts.contextFor('0.test', { cert: '0', key: 'k' });
    assert.equal(made.length, MAX_CONTEXTS + 2);
  });
});
