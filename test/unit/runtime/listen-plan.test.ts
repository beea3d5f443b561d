import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { parseHubfile } from '../../../src/index.ts';
import { planListeners } from '../../../src/runtime/listen-plan.ts';

describe('ports needed for ACME certificates', () => {
  const named = 'example.com {\n\trespond ok\n}\n';

  it('include the HTTP port for challenges, with or without redirects', () => {
    assert.deepEqual(portsOf(named), ['443 TLS', '80, 1 redirects']);
    assert.deepEqual(portsOf(named, 'disable_redirects'), ['443 TLS', '80, 0 redirects']);
    const nameless = 'https:// {\n\ttls internal\n\trespond ok\n}\n';
    assert.deepEqual(portsOf(nameless), ['443 TLS', '80, 1 redirects']);
    const explicit = 'localhost:8443 {\n\ttls ops@example.com\n\trespond ok\n}\n';
    assert.deepEqual(portsOf(explicit, 'disable_redirects'), ['8443 TLS', '80, 0 redirects']);
  });

  it('do not include it with auto_https off', () => {
    assert.deepEqual(portsOf(named, 'off'), ['443 TLS']);
  });

  it('do not include it for other certificates without redirects', () => {
    for (const site of ['localhost', '192.0.2.1', '*.localhost']) {
      assert.deepEqual(portsOf(`${site} {\n\trespond ok\n}\n`, 'disable_redirects'), ['443 TLS']);
    }
    const internal = 'example.com {\n\ttls internal\n\trespond ok\n}\n';
    assert.deepEqual(portsOf(internal, 'disable_redirects'), ['443 TLS']);
  });

  it('leave it to an HTTPS site that uses it', () => {
    const text =
      '{\n\thttp_port 8443\n\tauto_https disable_redirects\n}\nhttps://example.com:8443 {\n\trespond ok\n}\n';
    const plan = planListeners(parseHubfile(text, { env: {} }));
    assert.deepEqual(
      plan.map(({ port, secure }) => [port, secure]),
      [[8443, true]],
    );
  });
});

function portsOf(sites: string, autoHttps?: string): string[] {
  const options = autoHttps === undefined ? '' : `{\n\tauto_https ${autoHttps}\n}\n`;
  return planListeners(parseHubfile(`${options}${sites}`, { env: {} })).map(
    ({ port, secure, redirects }) =>
      secure ? `${port} TLS` : `${port}, ${redirects.size} redirects`,
  );
}
