import { isDeepStrictEqual } from 'node:util';
import type { CertificateIssuer, TlsConfig } from '../config/config.ts';
import { defaultAcmeIssuer, defaultTls } from '../config/shape-config.ts';
import { DNS_SERVICES, type DnsServiceOptions } from '../config/dns-challenge.ts';
import type { Cursor, OptionTable } from '../hubfile/cursor.ts';
import { isOpenSslName } from '../config/well-formed.ts';
import { dnsChallenge, type DnsSettings } from '../hubfile/dns-challenge.ts';
import { certificateIssuer, dnsOptions } from './tls/issuer.ts';
import { badValue, choiceOf, fitting, flag, list, name, oneOf } from '../hubfile/values.ts';
import type { Directive } from './directive.ts';

/** How the gateway waits for a record; each provider has these options. */
const DNS_USAGE = `propagation_delay <duration>
        propagation_timeout <duration>|off
        resolvers <address…>
        dns_challenge_override_domain <name>
        dns_ttl <duration>`;

const SERVICES_USAGE = Object.entries<DnsServiceOptions>(DNS_SERVICES).map(
  ([service, { required, optional }]) => {
    const [token, ...others] = Object.values(required);
    const argument = others.length > 0 ? '' : ` [${token}]`;
    const options = Object.entries({ ...required, ...optional }).map((option) => option.join(' '));
    return `    dns ${service}${argument} {
        ${[...options, 'api_url <url>', DNS_USAGE].join('\n        ')}
    }
`;
  },
);

const USAGE = `
tls internal
tls <email>
tls <certificate file> <key file>
tls [internal|<email>|<certificate file> <key file>] {
    issuer acme [<directory>] {
        dir <url>
        email <address>
        eab <key id> <mac key>
        trusted_roots <pem file>
        dns <provider> <argument…> { <options of tls dns…> }
        disable_http_challenge
        disable_tlsalpn_challenge
        ${DNS_USAGE}
    }
    issuer internal
    on_demand
    dns rfc2136 [<name server>] {
        server <name server>
        zone <name>
        key_name <name>
        key_alg hmac-sha256|hmac-sha512
        key <key>
        ${DNS_USAGE}
    }
    dns acme-dns {
        server_url <url>
        username <name>
        password <password>
        subdomain <name>
        ${DNS_USAGE}
    }
    dns exec <program> [<argument…>] {
        env <name> <value>
        timeout <duration>
        ${DNS_USAGE}
    }
${SERVICES_USAGE.join('')}    ${DNS_USAGE.replaceAll('\n    ', '\n')}
    protocols <min> [<max>]
    ciphers <name…>
    curves <name…>
    alpn h2|http/1.1…
    client_auth {
        mode request|require|verify_if_given|require_and_verify
        trust_pool <pem file…>
    }
}
`;

export const tls: Directive = {
  syntax: {
    usage: USAGE,
    summary: 'sets the certificate of the site and its TLS options',
    siteOnly: true,
    once: true,
    read(cursor, scope) {
      const source = tlsSource(cursor);
      const start: TlsDraft = { ...defaultTls, source, issuers: [], dnsSettings: null };
      const draft = cursor.options(start, OPTIONS, {
        repeatable: ['issuer'],
        unsupported: {
          ca: 'write issuer acme <directory>, or acme_ca in the global options',
          ca_root: 'write issuer acme <directory> { trusted_roots <pem file> }',
          eab: 'write issuer acme <directory> { eab <key id> <mac key> }',
          load: 'write tls <certificate file> <key file>',
        },
      });
      cursor.end();
      scope.site.tls = finished(cursor, draft);
      return [];
    },
  },
};

type Protocol = TlsConfig['minVersion'];

const VERSIONS: Readonly<Record<string, Protocol>> = { 'tls1.2': 'TLSv1.2', 'tls1.3': 'TLSv1.3' };

/** Settings of the challenge may come before it. */
interface TlsDraft extends TlsConfig {
  readonly issuers: readonly CertificateIssuer[];
  readonly dnsSettings: Partial<DnsSettings> | null;
}

const OPTIONS: OptionTable<TlsDraft> = {
  on_demand: () => ({ onDemand: flag() }),
  dns: (cursor) => ({ dns: dnsChallenge(cursor) }),
  issuer: (cursor, { source, issuers }) => {
    const issuer = certificateIssuer(cursor);
    if (source.kind !== 'auto') {
      const message = 'the source of the certificate is set twice';
      cursor.fail(cursor.span, 'mutually-exclusive', message);
    }
    return { issuers: [...issuers, issuer] };
  },
  protocols: (cursor) => {
    const minVersion = version(cursor);
    const maxVersion = cursor.left > 0 ? version(cursor) : 'TLSv1.3';
    if (minVersion > maxVersion) {
      cursor.fail(cursor.span, 'bad-value', 'write the lower protocol first');
    }
    return { minVersion, maxVersion };
  },
  ciphers: (cursor) => ({ ciphers: names(cursor, 'a cipher suite') }),
  curves: (cursor) => ({ curves: names(cursor, 'a curve') }),
  alpn: (cursor) => ({ alpn: applicationProtocols(cursor) }),
  client_auth: (cursor) => ({ clientAuth: clientAuth(cursor) }),
  ...dnsOptions<TlsDraft>(),
};

/** A single issuer with the settings of the global options needs no list. */
function sourceOf(issuers: readonly CertificateIssuer[]): TlsConfig['source'] {
  const [only, ...others] = issuers;
  if (others.length === 0 && only?.kind === 'internal') return only;
  const plain = isDeepStrictEqual(only, { kind: 'acme', ...defaultAcmeIssuer });
  if (others.length === 0 && plain) return { kind: 'acme', email: null };
  return { kind: 'issuers', issuers };
}

function finished(cursor: Cursor, draft: TlsDraft): TlsConfig {
  const { dnsSettings, issuers, ...rest } = draft;
  const settings = { ...rest, source: issuers.length > 0 ? sourceOf(issuers) : rest.source };
  if (dnsSettings !== null && settings.dns === null) {
    const message = 'these options need dns <provider>';
    cursor.fail(cursor.span, 'missing-option', message);
  }
  const { kind } = settings.source;
  if (settings.dns !== null && (kind === 'internal' || kind === 'files')) {
    const message = 'dns is for ACME certificates, but this site has others';
    cursor.fail(cursor.span, 'mutually-exclusive', message);
  }
  if (settings.onDemand && kind === 'files') {
    const message = 'on_demand orders certificates, but this site has certificate files';
    cursor.fail(cursor.span, 'mutually-exclusive', message);
  }
  const tls = { ...settings, dns: settings.dns && { ...settings.dns, ...dnsSettings } };
  cursor.origins.follow(tls, draft);
  return tls;
}

function tlsSource(cursor: Cursor): TlsConfig['source'] {
  const first = cursor.optional();
  const second = cursor.optional();
  if (first === undefined) {
    if (!cursor.hasBlock) cursor.argument('internal, an email address, or a certificate and a key');
    return { kind: 'auto' };
  }
  if (second !== undefined) {
    const source = { kind: 'files', certFile: first.text, keyFile: second.text } as const;
    const places = new Map([['certFile', first.span] as const, ['keyFile', second.span] as const]);
    cursor.origins.mark(source, first.span, places);
    return source;
  }
  if (first.text === 'force_automate') {
    cursor.warnNoEffect('tls', first);
    return { kind: 'auto' };
  }
  if (first.text === 'internal') return { kind: 'internal' };
  if (/^[^\s@]+@[^\s@]+$/.test(first.text) || /^\{env\.[^{}]+\}$/.test(first.text)) {
    return { kind: 'acme', email: first.text };
  }
  return badValue(cursor, first, 'internal, an email address, or a certificate and a key');
}

function version(cursor: Cursor): Protocol {
  const word = cursor.argument('tls1.2 or tls1.3');
  return VERSIONS[choiceOf(cursor, word, Object.keys(VERSIONS))] ?? 'TLSv1.2';
}

function names(cursor: Cursor, expected: string): readonly string[] {
  for (const word of cursor.line.words.slice(1)) {
    fitting(cursor, word, isOpenSslName, `${expected} by its OpenSSL name`);
  }
  return list(cursor, expected);
}

function applicationProtocols(cursor: Cursor): TlsConfig['alpn'] {
  const chosen = cursor.several('h2 or http/1.1').map((word) => {
    if (word.text === 'h3') badValue(cursor, word, 'h2 or http/1.1 (HTTP/3 is not supported)');
    return choiceOf(cursor, word, ['h2', 'http/1.1']);
  });
  return [...new Set(chosen)];
}

function clientAuth(cursor: Cursor): NonNullable<TlsConfig['clientAuth']> {
  cursor.block();
  const { errors } = cursor.problems;
  const start: {
    mode: NonNullable<TlsConfig['clientAuth']>['mode'] | null;
    trustPoolFiles: readonly string[];
  } = { mode: null, trustPoolFiles: [] };
  const more = (files: readonly string[], sofar: typeof start): Partial<typeof start> => ({
    trustPoolFiles: [...sofar.trustPoolFiles, ...files],
  });
  const settings = cursor.options(
    start,
    {
      mode: (option) => ({
        mode: oneOf(option, ['request', 'require', 'verify_if_given', 'require_and_verify']),
      }),
      trust_pool: (option, sofar) => more(trustPool(option), sofar),
      trusted_ca_cert_file: (option, sofar) => more([name(option, 'a PEM file')], sofar),
    },
    {
      repeatable: ['trusted_ca_cert_file'],
      unsupported: {
        trusted_ca_cert: 'write the certificate to a file, and trust_pool <pem file>',
        trusted_leaf_cert: 'trust_pool contains authorities, not single certificates',
        trusted_leaf_cert_file: 'trust_pool contains authorities, not single certificates',
        verifier: 'use trust_pool <pem file> to verify clients',
      },
    },
  );
  // A missing option may be one that could not be read.
  const complete = cursor.problems.errors === errors;
  const implied = settings.trustPoolFiles.length === 0 ? 'require' : 'require_and_verify';
  const result = { ...settings, mode: settings.mode ?? implied } as const;
  if (complete && result.mode.includes('verify') && result.trustPoolFiles.length === 0) {
    cursor.fail(cursor.span, 'missing-option', `client_auth mode ${result.mode} needs trust_pool`);
  }
  cursor.origins.follow(result, settings);
  return result;
}

/**
 * `trust_pool <pem file…>`, or as a Caddyfile has it: `trust_pool file <pem file…>`, or with a block of
 * `pem_file <pem file…>`.
 */
export function trustPool(cursor: Cursor): readonly string[] {
  const kind = cursor.peek()?.text ?? '';
  if (Object.hasOwn(OTHER_POOLS, kind)) {
    cursor.failUnsupported(cursor.span, `trust_pool ${kind}`, OTHER_POOLS[kind]);
  }
  const isFile = kind === 'file';
  if (isFile && (cursor.left > 1 || cursor.hasBlock)) cursor.optional();
  if (!isFile || !cursor.hasBlock) return cursor.several('a PEM file').map(({ text }) => text);
  const start = { files: cursor.rest().map(({ text }) => text) };
  const { files } = cursor.options<{ readonly files: readonly string[] }>(
    start,
    {
      pem_file: (option, sofar) => ({
        files: [...sofar.files, ...option.several('a PEM file').map(({ text }) => text)],
      }),
    },
    { repeatable: ['pem_file'] },
  );
  if (files.length === 0) cursor.fail(cursor.span, 'missing-option', 'a trust pool needs pem_file');
  return files;
}

/** Sources of authorities that Caddy has besides files. */
const OTHER_POOLS: Readonly<Record<string, string>> = {
  combined: 'write trust_pool file with several pem_file',
  http: 'fetch the certificates into a file, and write trust_pool file <pem file>',
  inline: 'write the certificate to a file, and trust_pool file <pem file>',
  pki_intermediate:
    'write the certificate of the authority to a file, and trust_pool file <pem file>',
  pki_root: 'write the certificate of the authority to a file, and trust_pool file <pem file>',
  storage: 'write trust_pool file <pem file>',
  system: 'name the file of the authorities of the system: trust_pool file <pem file>',
};
