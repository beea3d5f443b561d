import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { ConfigError, describeProblem, type Problem } from '../../../src/config/problem.ts';
import { loadConfig } from '../../../src/load-config.ts';

describe('the check of certificate sources before anything is opened', () => {
  it('refuses what ACME cannot issue, at its place and with an alternative', () => {
    assert.deepEqual(
      errorsOf(
        'example.com, *.example.com {\n\ttls ops@example.com\n\trespond ok\n}\n\nhttps:// {\n\ttls {\n\t\tissuer acme\n\t}\n}\n',
      ),
      [
        'Hubfile:1:14: error: ACME issues no certificate for *.example.com',
        '    example.com, *.example.com {',
        '                 ^^^^^^^^^^^^^',
        '  wildcard names need the DNS challenge: write dns <provider> in tls, or acme_dns; or give certificate files: tls <cert> <key>',
        'Hubfile:6:1: error: ACME issues no certificate for a site without a host',
        '    https:// {',
        '    ^^^^^^^^',
        '  give the site a host name, or use tls internal',
      ],
    );
  });

  it('refuses a directory that is not an https URL if a site needs it', () => {
    const options = '{\n\tacme_ca https://ca.example/dir http://ca.example/dir\n}\n';
    assert.deepEqual(errorsOf(`${options}example.com {\n\trespond ok\n}\n`), [
      'Hubfile:2:2: error: http://ca.example/dir is not a URL of an ACME directory',
      '    acme_ca https://ca.example/dir http://ca.example/dir',
      '    ^^^^^^^',
      '  the URL must begin with https:// (RFC 8555 §6.1)',
    ]);
    assert.deepEqual(problemsOf(`${options}localhost {\n\trespond ok\n}\n`), []);
  });

  it('warns that the certificate of a public wildcard is one that browsers do not trust', () => {
    const [warning, ...others] = problemsOf('*.example.com {\n\trespond ok\n}\n');
    assert.equal(warning?.code, 'local-certificate');
    assert.equal(warning.severity, 'warning');
    assert.equal(warning.place?.line, 1);
    assert.deepEqual(others, []);
    assert.deepEqual(problemsOf('*.example.com {\n\ttls internal\n}\n'), []);
    assert.deepEqual(problemsOf('{\n\tlocal_certs\n}\n*.example.com {\n\trespond ok\n}\n'), []);
  });

  it('reports nothing for names, addresses and explicit issuers', () => {
    for (const host of ['example.com', 'localhost', '*.localhost', '127.0.0.1', '[::1]', ':8443']) {
      assert.deepEqual(problemsOf(`${host} {\n\trespond ok\n}\n`), [], host);
    }
    for (const host of ['example.com', 'localhost', '192.0.2.1', '[2001:db8::1]']) {
      assert.deepEqual(problemsOf(`${host} {\n\ttls ops@example.com\n}\n`), [], host);
    }
  });
});

/** Warnings of a text that loads. */
function problemsOf(text: string): readonly Problem[] {
  return loadConfig('Hubfile', { read: () => Buffer.from(text), glob: () => [], env: {} }).warnings;
}

function errorsOf(text: string): readonly string[] {
  try {
    problemsOf(text);
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    return error.problems.flatMap((problem) => describeProblem(problem).split('\n'));
  }
  throw new Error('The configuration loads');
}
