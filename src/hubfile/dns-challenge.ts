import {
  type AcmeDnsConfig,
  acmeDnsMembers,
  defaultDnsChallenge,
  defaultExec,
  defaultRfc2136,
  DNS_PROVIDERS,
  DNS_SERVICES,
  type DnsChallengeConfig,
  type DnsProviderConfig,
  type DnsServiceConfig,
  type ExecConfig,
  isDnsName,
  isResolver,
  MAX_RESOLVERS,
  type Rfc2136Config,
  rfc2136Members,
  type DnsServiceOptions,
} from '../config/dns-challenge.ts';
import { didYouMean } from '../config/problem.ts';
import { Secret } from '../kernel/secret.ts';
import type { Cursor, OptionTable } from './cursor.ts';
import { badValue, duration, matching, name, optionsOf, within } from './values.ts';

/** How the gateway waits for a record. */
export type DnsSettings = Omit<DnsChallengeConfig, 'provider'>;

const LONGEST_TTL_MS = 7 * 24 * 60 * 60 * 1000;
const ANY = /^\{(?:env|file)\.[^{}]+\}$/;

/** Options of the challenge. They are written next to those of the provider, or in the block of `tls`. */
export const DNS_SETTINGS: OptionTable<DnsSettings> = {
  propagation_delay: (option) => ({ propagationDelayMs: duration(option) }),
  propagation_timeout: (option) => ({ propagationTimeoutMs: timeoutOrOff(option) }),
  resolvers: (option) => ({ resolvers: resolvers(option) }),
  dns_challenge_override_domain: (option) => ({ overrideDomain: dnsName(option) }),
  dns_ttl: (option) => ({ ttlSeconds: ttl(option) }),
};

/** `<provider> [<argument…>] { … }`, after `dns` or `acme_dns`. */
export function dnsChallenge(cursor: Cursor): DnsChallengeConfig {
  const word = cursor.argument(`the provider of the name: ${DNS_PROVIDERS.join(', ')}`);
  switch (word.text) {
    case 'rfc2136':
      return rfc2136(cursor);
    case 'acme-dns':
    case 'acmedns':
      return acmeDns(cursor);
    case 'exec':
      return exec(cursor);
  }
  if (isService(word.text)) return service(word.text, cursor);
  const message = `${cursor.name} expects one of ${DNS_PROVIDERS.join(', ')}, not ${cursor.quote(word)}`;
  const instead =
    'for another DNS provider, use acme-dns with a CNAME, or exec with lego, acme.sh or a program of your own';
  const hint = didYouMean(word.text, DNS_PROVIDERS) ?? instead;
  return cursor.fail(word.span, 'bad-value', message, hint);
}

function rfc2136(cursor: Cursor): DnsChallengeConfig {
  const { errors } = cursor.problems;
  const start: Omit<Rfc2136Config, 'kind'> & DnsSettings = {
    ...defaultDnsChallenge,
    ...defaultRfc2136,
    server: cursor.optional()?.text ?? '',
    keyName: '',
    key: new Secret(''),
  };
  const { server, keyName, key, zone, algorithm, ...settings } = cursor.options(start, {
    ...DNS_SETTINGS,
    ...optionsOf(rfc2136Members, { algorithm: 'key_alg' }),
    zone: (option) => ({ zone: dnsName(option) }),
    key_name: (option) => ({ keyName: dnsName(option) }),
  });
  need(cursor, errors, { server, key_name: keyName, key });
  return complete(cursor, { kind: 'rfc2136', server, zone, keyName, algorithm, key }, settings);
}

function acmeDns(cursor: Cursor): DnsChallengeConfig {
  const { errors } = cursor.problems;
  const start: Omit<AcmeDnsConfig, 'kind'> & DnsSettings = {
    ...defaultDnsChallenge,
    serverUrl: cursor.optional()?.text ?? '',
    username: new Secret(''),
    password: new Secret(''),
    subdomain: '',
  };
  const { serverUrl, username, password, subdomain, ...settings } = cursor.options(start, {
    ...DNS_SETTINGS,
    ...optionsOf(acmeDnsMembers),
  });
  need(cursor, errors, { server_url: serverUrl, username, password, subdomain });
  const provider = { kind: 'acme-dns', serverUrl, subdomain, username, password } as const;
  return complete(cursor, provider, settings);
}

function exec(cursor: Cursor): DnsChallengeConfig {
  const program = name(cursor, 'a program');
  const args = cursor.rest().map(({ text }) => text);
  const start: Pick<ExecConfig, 'environment' | 'timeoutMs'> & DnsSettings = {
    ...defaultDnsChallenge,
    environment: defaultExec.environment,
    timeoutMs: defaultExec.timeoutMs,
  };
  const { environment, timeoutMs, ...settings } = cursor.options(
    start,
    {
      ...DNS_SETTINGS,
      env: (option, sofar) => ({ environment: [...sofar.environment, variable(option)] }),
      timeout: (option) => ({ timeoutMs: positive(option) }),
    },
    { repeatable: ['env'] },
  );
  return complete(cursor, { kind: 'exec', args, environment, timeoutMs, program }, settings);
}

function isService(name: string): name is DnsServiceConfig['kind'] {
  return Object.hasOwn(DNS_SERVICES, name);
}

/** `<service> [<token>] { <option> <value> … }` */
function service(kind: DnsServiceConfig['kind'], cursor: Cursor): DnsChallengeConfig {
  const { errors } = cursor.problems;
  const { required, optional }: DnsServiceOptions = DNS_SERVICES[kind];
  const names = Object.keys(required);
  const token = names.length > 1 ? undefined : cursor.optional();
  const start: Omit<DnsServiceConfig, 'kind'> & DnsSettings = {
    ...defaultDnsChallenge,
    credentials:
      token === undefined
        ? []
        : names.map((each) => ({ name: each, value: new Secret(token.text) })),
    apiUrl: null,
  };
  const table: OptionTable<typeof start> = Object.fromEntries(
    Object.keys({ ...required, ...optional }).map((option) => [
      option,
      (value: Cursor, sofar: typeof start) => ({
        credentials: [
          ...sofar.credentials.filter(({ name: known }) => known !== option),
          { name: option, value: new Secret(name(value, 'a value')) },
        ],
      }),
    ]),
  );
  const { credentials, apiUrl, ...settings } = cursor.options(start, {
    ...DNS_SETTINGS,
    ...table,
    api_url: (option) => ({ apiUrl: name(option, 'the URL of the API') }),
  });
  const known = new Map(credentials.map((each) => [each.name, each.value]));
  need(cursor, errors, Object.fromEntries(names.map((each) => [each, known.get(each) ?? ''])));
  return complete(cursor, { kind, credentials, apiUrl }, settings);
}

function complete(
  cursor: Cursor,
  provider: DnsProviderConfig,
  settings: DnsSettings,
): DnsChallengeConfig {
  cursor.origins.mark(provider, cursor.span, new Map());
  return cursor.origins.of(cursor.span, { provider, ...settings });
}

/**
 * Fails if an option is empty. It may be one that could not be read. In that case the configuration is refused
 * anyway.
 */
function need(
  cursor: Cursor,
  errors: number,
  options: Readonly<Record<string, string | Secret>>,
): void {
  const missing = Object.entries(options).flatMap(([option, value]) =>
    (typeof value === 'string' ? value : value.reveal()) === '' ? [option] : [],
  );
  if (missing.length === 0 || cursor.problems.errors > errors) return;
  const message = `${cursor.name} of this provider needs ${missing.join(' and ')}`;
  cursor.fail(cursor.span, 'missing-option', message);
}

function variable(cursor: Cursor): ExecConfig['environment'][number] {
  const isName = (text: string): boolean => /^[A-Za-z_][A-Za-z0-9_]*$/.test(text);
  const given = matching(cursor, 'the name of a variable', isName);
  const value = new Secret(cursor.argument('its value').text);
  if (cursor.left > 0) {
    // Not shown, because it is part of the value.
    const message = 'env takes a name and one value; put a value with spaces in quotes';
    cursor.fail(cursor.span, 'unexpected-argument', message);
  }
  return { name: given, value };
}

function positive(cursor: Cursor): number {
  return within(cursor, duration, (ms) => ms > 0, 'a time above 0');
}

/** In a Caddyfile, -1 means off. */
function timeoutOrOff(cursor: Cursor): number {
  const off = ['off', '-1'].includes(cursor.peek()?.text ?? '');
  if (!off) return positive(cursor);
  cursor.optional();
  return 0;
}

function resolvers(cursor: Cursor): readonly string[] {
  const words = cursor.several('the addresses of name servers');
  const wrong = words.find(({ text }, index) => !isResolver(text) || index >= MAX_RESOLVERS);
  if (wrong !== undefined) {
    badValue(
      cursor,
      wrong,
      `at most ${MAX_RESOLVERS} addresses such as 192.0.2.53 or 192.0.2.53:5353`,
    );
  }
  return cursor.origins.of(
    cursor.span,
    words.map(({ text }) => text),
  );
}

function dnsName(cursor: Cursor): string {
  return matching(cursor, 'a DNS name', (text) => isDnsName(text) || ANY.test(text));
}

function ttl(cursor: Cursor): number {
  const isPossible = (ms: number): boolean => ms >= 1000 && ms <= LONGEST_TTL_MS;
  return Math.round(within(cursor, duration, isPossible, 'a time from 1s to 7d') / 1000);
}
