import type { AcmeIssuerConfig, CertificateIssuer } from '../../config/config.ts';
import { defaultAcmeIssuer } from '../../config/shape-config.ts';
import { defaultDnsChallenge } from '../../config/dns-challenge.ts';
import { didYouMean } from '../../config/problem.ts';
import { Secret } from '../../kernel/secret.ts';
import type { Cursor, OptionTable } from '../../hubfile/cursor.ts';
import { name } from '../../hubfile/values.ts';
import { DNS_SETTINGS, dnsChallenge, type DnsSettings } from '../../hubfile/dns-challenge.ts';

interface AcmeDraft extends Omit<AcmeIssuerConfig, 'kind'> {
  readonly dnsSettings: Partial<DnsSettings> | null;
}

type Challenge = NonNullable<AcmeIssuerConfig['challenges']>[number];

const ISSUERS = ['acme', 'internal'];

/** `issuer acme [<directory>] { … }` or `issuer internal`. */
export function certificateIssuer(cursor: Cursor): CertificateIssuer {
  const word = cursor.argument('acme or internal');
  if (word.text === 'acme') return acme(cursor);
  if (word.text === 'internal') {
    cursor.options(
      {},
      {},
      {
        unsupported: {
          ca: 'the gateway has one authority',
          lifetime: 'hubgate chooses the lifetime of local certificates',
          sign_with_root: 'the intermediate certificate signs them',
        },
      },
    );
    return { kind: 'internal' };
  }
  const hint =
    word.text === 'zerossl'
      ? 'write issuer acme https://acme.zerossl.com/v2/DV90 { eab <key id> <mac key> }'
      : didYouMean(word.text, ISSUERS);
  const message = `${cursor.name} expects one of ${ISSUERS.join(', ')}, not ${cursor.quote(word)}`;
  return cursor.fail(word.span, 'bad-value', message, hint);
}

function acme(cursor: Cursor): AcmeIssuerConfig {
  const directory = cursor.optional()?.text ?? null;
  const start: AcmeDraft = { ...defaultAcmeIssuer, directory, dnsSettings: null };
  const draft = cursor.options(start, OPTIONS, { unsupported: UNSUPPORTED });
  const { dnsSettings, ...settings } = draft;
  if (dnsSettings !== null && settings.dns === null) {
    const message = 'these options need dns <provider>';
    cursor.fail(cursor.span, 'missing-option', message);
  }
  if (settings.challenges?.length === 0 && settings.dns === null) {
    cursor.fail(cursor.span, 'missing-option', 'every challenge is off, and dns is not set');
  }
  const dns = settings.dns && { ...settings.dns, ...dnsSettings };
  const issuer = { kind: 'acme', ...settings, dns } as const;
  cursor.origins.follow(issuer, draft);
  return issuer;
}

const OPTIONS: OptionTable<AcmeDraft> = {
  dir: (option) => ({ directory: name(option, 'the URL of an ACME directory') }),
  email: (option) => ({ email: name(option, 'an email address') }),
  eab: (option) => ({ externalAccount: externalAccount(option) }),
  trusted_roots: (option) => ({ rootFile: name(option, 'a PEM file') }),
  disable_http_challenge: (_, { challenges }) => ({ challenges: without(challenges, 'http-01') }),
  disable_tlsalpn_challenge: (_, { challenges }) => ({
    challenges: without(challenges, 'tls-alpn-01'),
  }),
  dns: (option) => ({ dns: dnsChallenge(option) }),
  ...dnsOptions<AcmeDraft>(),
};

const UNSUPPORTED: Readonly<Record<string, string>> = {
  test_dir: 'set acme_staging in the global options',
  timeout: 'an order has three minutes',
  alt_http_port: 'set http_port in the global options, and forward port 80 to it',
  alt_tlsalpn_port: 'set https_port in the global options, and forward port 443 to it',
  preferred_chains: 'hubgate uses the chain that the authority prefers',
};

function externalAccount(cursor: Cursor): AcmeIssuerConfig['externalAccount'] {
  const keyId = name(cursor, 'the id of the key');
  return { keyId, macKey: new Secret(name(cursor, 'the key')) };
}

function without(
  challenges: AcmeIssuerConfig['challenges'],
  type: Challenge,
): readonly Challenge[] {
  const all: readonly Challenge[] = challenges ?? ['tls-alpn-01', 'http-01'];
  return all.filter((each) => each !== type);
}

/** Settings of a challenge in addition to `dns`, which may come later. */
export function dnsOptions<
  Draft extends { readonly dnsSettings: Partial<DnsSettings> | null },
>(): OptionTable<Draft> {
  return Object.fromEntries(
    Object.entries(DNS_SETTINGS).map(([option, set]) => [
      option,
      (cursor: Cursor, { dnsSettings }: Draft) =>
        // The draft's own member, with further settings.
        ({
          dnsSettings: { ...dnsSettings, ...set?.(cursor, defaultDnsChallenge) },
        }) as Partial<Draft>,
    ]),
  );
}
