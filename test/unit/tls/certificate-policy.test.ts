import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { AcmeOptions, TlsConfig } from '../../../src/config/config.ts';
import { defaultDnsChallenge, defaultExec } from '../../../src/config/dns-challenge.ts';
import { defaultTls } from '../../../src/config/shape-config.ts';
import { defaultOptions } from '../../../src/config/shape-options.ts';
import { certificateOrigin, type CertificateOrigin } from '../../../src/tls/certificate-policy.ts';

type Source = TlsConfig['source'];
const AUTO: Source = { kind: 'auto' };
const PUBLIC = ['example.com', 'www.example.com', 'xn--bcher-kva.example'];
const LOCAL = [
  ...['', 'localhost', 'app.localhost', '*.localhost', 'printer.local', 'a.b.internal'],
  ...['router.home.arpa', 'intranet', '127.0.0.1', '192.0.2.1', '::1', '2001:db8::1'],
];

describe('the source of a host’s certificate', () => {
  it('without tls: ACME for public names, the local authority for all others', () => {
    for (const host of PUBLIC) assert.equal(kindOf(host, AUTO), 'acme', host);
    for (const host of LOCAL) {
      assert.deepEqual(certificateOrigin(host, { ...defaultTls, source: AUTO }, defaultOptions), {
        kind: 'local',
      });
    }
  });

  it('local_certs and tls internal: the local authority, whatever the name', () => {
    const options = { ...defaultOptions, localCerts: true };
    for (const host of [...PUBLIC, ...LOCAL, '*.example.com']) {
      assert.deepEqual(certificateOrigin(host, { ...defaultTls, source: AUTO }, options), {
        kind: 'local',
      });
      const source: Source = { kind: 'internal' };
      assert.deepEqual(certificateOrigin(host, { ...defaultTls, source }, defaultOptions), {
        kind: 'local',
      });
    }
  });

  it('tls <email>: ACME even for local names and addresses, with that email address', () => {
    const source: Source = { kind: 'acme', email: 'site@example.com' };
    const acme = { ...defaultOptions.acme, email: 'all@example.com' };
    for (const host of [...PUBLIC, 'localhost', '192.0.2.1', '2001:db8::1']) {
      const origin = certificateOrigin(
        host,
        { ...defaultTls, source },
        { acme, localCerts: false, onDemand: null },
      );
      assert.equal(firstOf(origin)?.email, 'site@example.com', host);
    }
    const anonymous: Source = { kind: 'acme', email: null };
    const origin = certificateOrigin(
      'a.example',
      { ...defaultTls, source: anonymous },
      { acme, localCerts: true, onDemand: null },
    );
    assert.equal(firstOf(origin)?.email, 'all@example.com');
  });

  it('no configured directory means the default one', () => {
    const acme = { ...defaultOptions.acme, directories: [] };
    const origin = certificateOrigin(
      'a.example',
      { ...defaultTls, source: AUTO },
      { acme, localCerts: false, onDemand: null },
    );
    assert.deepEqual(firstOf(origin)?.directories, defaultOptions.acme.directories);
  });

  it('wildcards: not by ACME, with a warning unless an issuer is configured', () => {
    const source: Source = { kind: 'acme', email: null };
    assert.equal(kindOf('*.example.com', source), 'none');
    assert.equal(kindOf('', source), 'none');
    const origin = certificateOrigin(
      '*.example.com',
      { ...defaultTls, source: AUTO },
      defaultOptions,
    );
    assert.equal(origin.kind === 'local' && origin.warning?.code, 'local-certificate');
  });

  it('with the DNS challenge wildcards are ordered too: for one site, or for all', () => {
    const provider = { kind: 'exec', program: '/bin/true', ...defaultExec } as const;
    const dns = { provider, ...defaultDnsChallenge };
    for (const source of [AUTO, { kind: 'acme', email: null } as const]) {
      const own = certificateOrigin(
        '*.example.com',
        { ...defaultTls, source, dns },
        defaultOptions,
      );
      assert.deepEqual(firstOf(own)?.dns, dns);
      const acme = { ...defaultOptions.acme, dns };
      const all = certificateOrigin(
        '*.example.com',
        { ...defaultTls, source },
        { acme, localCerts: false, onDemand: null },
      );
      assert.deepEqual(firstOf(all)?.dns, dns);
    }
    // Local names stay local unless the site itself says otherwise.
    const acme = { ...defaultOptions.acme, dns };
    assert.equal(
      certificateOrigin('localhost', defaultTls, { acme, localCerts: false, onDemand: null }).kind,
      'local',
    );
  });

  it('certificate files are used as they are', () => {
    const source: Source = { kind: 'files', certFile: 'a.pem', keyFile: 'a.key' };
    assert.deepEqual(
      certificateOrigin('example.com', { ...defaultTls, source }, defaultOptions),
      source,
    );
  });
});

function kindOf(host: string, source: Source): string {
  return certificateOrigin(host, { ...defaultTls, source }, defaultOptions).kind;
}

function firstOf(origin: CertificateOrigin): AcmeOptions | undefined {
  const [first] = origin.kind === 'acme' ? origin.authorities : [];
  return first === 'local' ? undefined : first;
}
