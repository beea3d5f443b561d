import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { Problem } from '../../../src/config/problem.ts';
import { ConfigError, parseHubfile } from '../../../src/index.ts';
import { loadConfig } from '../../../src/load-config.ts';

describe('what this release cannot do', () => {
  for (const [what, text] of [
    [
      'client certificates',
      'localhost {\n\ttls {\n\t\tclient_auth {\n\t\t\tmode require\n\t\t}\n\t}\n\trespond ok\n}\n',
    ],
    ['ACME', 'example.com {\n\ttls ops@example.com\n\trespond ok\n}\n'],
    [
      'the PROXY protocol',
      '{\n\tservers {\n\t\tproxy_protocol 10.0.0.0/8\n\t}\n}\nlocalhost {\n\trespond ok\n}\n',
    ],
  ] as const) {
    it(`${what}: is refused, not silently left out`, () => {
      assert.throws(
        () => parseHubfile(text, { env: {} }),
        (error) =>
          error instanceof ConfigError && error.message.includes(`${what} is not supported`),
      );
    });
  }

  it('a public name without a certificate is served with a local one, and told of', () => {
    const warnings = (host: string, tls = ''): readonly Problem[] =>
      loadConfig('Hubfile', {
        read: () => Buffer.from(`${host} {\n${tls}\trespond ok\n}\n`),
        glob: () => [],
        env: {},
      }).warnings;
    const [warning] = warnings('example.com');
    assert.equal(warning?.code, 'local-certificate');
    assert.equal(warning.place?.line, 1);
    for (const host of [
      'localhost',
      'a.localhost',
      'x.internal',
      '127.0.0.1',
      '[::1]',
      'http://example.com',
      ':8443',
    ]) {
      assert.deepEqual(warnings(host), [], host);
    }
    assert.deepEqual(warnings('example.com', '\ttls internal\n'), []);
  });
});
