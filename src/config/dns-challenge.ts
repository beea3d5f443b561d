import { isIP } from 'node:net';
import { parseUrl } from '../kernel/parse.ts';
import type { Secret } from '../kernel/secret.ts';
import {
  byKind,
  defaultsOf,
  later,
  list,
  object,
  type Of,
  optional,
  withDefault,
} from './shape.ts';
import { count, duration, name, oneOf, secret, secretText, text } from './shape-values.ts';
import { MINUTE } from './units.ts';

/** The HTTP API of a company that hosts zones. */
export type DnsServiceConfig = {
  readonly [Name in DnsServiceName]: {
    readonly kind: Name;
    /** The values of its options in `DNS_SERVICES`. All are treated as secrets. */
    readonly credentials: readonly { readonly name: string; readonly value: Secret }[];
    /** The address of the API, for a service that is compatible; null: that of the company. */
    readonly apiUrl: string | null;
  };
}[DnsServiceName];

/**
 * The options of a service, each with the form of its value in the usage. If one alone is required, it may also stand
 * behind the name: `dns cloudflare {env.CF_API_TOKEN}`.
 */
export interface DnsServiceOptions {
  readonly required: Readonly<Record<string, string>>;
  readonly optional?: Readonly<Record<string, string>>;
}

/** The companies whose API is known, with the option names of Caddy's modules for them. */
export const DNS_SERVICES = {
  azure: {
    required: {
      tenant_id: '<id>',
      client_id: '<id>',
      client_secret: '<secret>',
      subscription_id: '<id>',
      resource_group_name: '<name>',
    },
    optional: { authority_host: '<url>' },
  },
  cloudflare: { required: { api_token: '<token>' }, optional: { zone_token: '<token>' } },
  desec: { required: { token: '<token>' } },
  digitalocean: { required: { auth_token: '<token>' } },
  gandi: { required: { bearer_token: '<token>' } },
  googleclouddns: { required: { gcp_project: '<id>', gcp_application_default: '<file>' } },
  hetzner: { required: { api_token: '<token>' } },
  ovh: {
    required: { application_key: '<key>', application_secret: '<secret>', consumer_key: '<key>' },
    optional: { endpoint: 'ovh-eu|ovh-ca|ovh-us' },
  },
  route53: {
    required: { access_key_id: '<id>', secret_access_key: '<key>' },
    optional: { session_token: '<token>', region: '<name>', hosted_zone_id: '<id>' },
  },
} satisfies Record<string, DnsServiceOptions>;

type DnsServiceName = keyof typeof DNS_SERVICES;

/** The names of the providers in a configuration. */
export const DNS_PROVIDERS = ['rfc2136', 'acme-dns', 'exec', ...Object.keys(DNS_SERVICES)];

/** Most name servers of one challenge. */
export const MAX_RESOLVERS = 8;
const DNS_PORT = 53;

/** Host and port of a name server; null if the text is not valid. */
export function parseNameServer(
  text: string,
): { readonly host: string; readonly port: number } | null {
  if (isIP(text) === 6) return { host: text, port: DNS_PORT };
  const [, bracketed, plain, digits = String(DNS_PORT)] =
    /^(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9._-]{1,253}))(?::(\d{1,5}))?$/.exec(text) ?? [];
  const host = bracketed ?? plain;
  const port = Number(digits);
  if (host === undefined || port < 1 || port > 65_535) return null;
  return bracketed !== undefined && isIP(bracketed) !== 6 ? null : { host, port };
}

/** Whether a text is the address of a name server, which needs no look-up. */
export function isResolver(text: string): boolean {
  const server = parseNameServer(text);
  return server !== null && isIP(server.host) !== 0;
}

/**
 * Describes what is wrong with a provider, after its placeholders have been resolved; null if nothing is
 * wrong.
 */
export function providerFault(provider: DnsProviderConfig): string | null {
  switch (provider.kind) {
    case 'rfc2136':
      if (parseNameServer(provider.server) === null) {
        return 'server is not a name server such as ns.example.com or 192.0.2.53:53';
      }
      if (!isDnsName(provider.keyName)) return 'key_name is not the name of a key';
      if (!isTsigKey(provider.key.reveal())) {
        return 'key is not base64 of at least 16 bytes, as tsig-keygen and keymgr print it';
      }
      return provider.zone === null || isDnsName(provider.zone) ? null : 'zone is not a DNS name';
    case 'acme-dns': {
      if (!isServiceUrl(provider.serverUrl)) return `server_url is not ${SERVICE_URL}`;
      if (!isDnsName(provider.subdomain)) return 'subdomain is not a name';
      const known = provider.username.reveal() !== '' && provider.password.reveal() !== '';
      return known ? null : 'username or password is empty';
    }
    case 'exec':
      return provider.program === '' ? 'the program is not named' : null;
    default:
      return serviceFault(provider);
  }
}

function serviceFault({ kind, credentials, apiUrl }: DnsServiceConfig): string | null {
  const { required, optional }: DnsServiceOptions = DNS_SERVICES[kind];
  const given = new Map(credentials.map(({ name, value }) => [name, value.reveal()]));
  const missing = Object.keys(required).filter((name) => (given.get(name) ?? '') === '');
  if (missing.length > 0) return `${missing.join(' and ')} must have a value`;
  const known = Object.keys({ ...required, ...optional });
  const unknown = [...given.keys()].find((name) => !known.includes(name));
  if (unknown !== undefined) return `${unknown} is not one of its options`;
  if (apiUrl !== null && !isServiceUrl(apiUrl)) return `api_url is not ${SERVICE_URL}`;
  const authority = given.get('authority_host');
  const isOther = authority !== undefined && !isServiceUrl(authority);
  return isOther ? `authority_host is not ${SERVICE_URL}` : null;
}

const SERVICE_URL = 'an http or https URL without a user';

/** A URL with a password cannot be fetched, and the error would contain it. */
function isServiceUrl(text: string): boolean {
  const url = parseUrl(text);
  if (url === null || url.username !== '' || url.password !== '') return false;
  return url.protocol === 'http:' || url.protocol === 'https:';
}

const DNS_NAME =
  /^(?=.{1,253}\.?$)(?:[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?)(?:\.[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?)*\.?$/i;

/** Whether a text is a valid name of a zone, key or record. It may end with a dot. */
export function isDnsName(text: string): boolean {
  return DNS_NAME.test(text);
}

/** Base64 of at least 16 bytes, the format of TSIG keys. */
function isTsigKey(text: string): boolean {
  return /^[A-Za-z0-9+/]+={0,2}$/.test(text) && Buffer.from(text, 'base64').length >= 16;
}

const dnsName = text('a DNS name', (value) => isDnsName(value) || value.startsWith('{'));

export const rfc2136Members = {
  /** `ns.example.com`, `192.0.2.53:5353`, `[2001:db8::53]:53`. */
  server: name('a name server such as 192.0.2.53:53'),
  /** null: determined by asking the server. */
  zone: optional(dnsName),
  keyName: dnsName,
  algorithm: withDefault(oneOf('hmac-sha256', 'hmac-sha512'), 'hmac-sha256'),
  /** Base64. */
  key: secretText('the key in base64'),
};

/** A name server that accepts dynamic updates (RFC 2136), signed (RFC 8945). */
export interface Rfc2136Config extends Of<typeof rfc2136Members> {
  readonly kind: 'rfc2136';
}

export const defaultRfc2136 = defaultsOf(rfc2136Members);

export const acmeDnsMembers = {
  serverUrl: name('the URL of an acme-dns server'),
  username: secretText('the name of the account'),
  password: secretText('its password'),
  subdomain: name('the subdomain of the account'),
};

/** An acme-dns server, to which the CNAME of the name's `_acme-challenge` leads. */
export interface AcmeDnsConfig extends Of<typeof acmeDnsMembers> {
  readonly kind: 'acme-dns';
}

const execMembers = {
  program: name('a program'),
  args: withDefault(list(text('a text')), []),
  environment: withDefault(
    list(object({ name: name('the name of a variable'), value: secret })),
    [],
  ),
  timeoutMs: withDefault(duration({ min: 1 }), 60_000),
};

/** A program of the operator. */
export interface ExecConfig extends Of<typeof execMembers> {
  readonly kind: 'exec';
}

export const defaultExec = defaultsOf(execMembers);

/** The service or program that writes the record. */
export type DnsProviderConfig = Rfc2136Config | AcmeDnsConfig | ExecConfig | DnsServiceConfig;

/** All services have the same members. */
const serviceShape = object({
  credentials: list(object({ name: name('the name of an option'), value: secret })),
  apiUrl: optional(text('a URL')),
});

// Each name of the table has this shape.
const serviceShapes = Object.fromEntries(
  Object.keys(DNS_SERVICES).map((name) => [name, serviceShape]),
) as Record<DnsServiceName, typeof serviceShape>;

const challengeMembers = {
  provider: byKind<DnsProviderConfig>({
    rfc2136: object(rfc2136Members),
    'acme-dns': object(acmeDnsMembers),
    exec: object(execMembers),
    ...serviceShapes,
  }),
  /** Delay before the first check for the record. */
  propagationDelayMs: withDefault(duration(), 0),
  /** Longest time until all servers show the record; 0: no check. */
  propagationTimeoutMs: withDefault(duration(), 2 * MINUTE),
  /** Name servers to ask, `192.0.2.53` or `192.0.2.53:5353`; empty: those of the zone. */
  resolvers: withDefault(
    list(text('an address such as 192.0.2.53 or 192.0.2.53:5353', isResolver)),
    [],
  ),
  /** The name at which the record is written, for a name with a CNAME to it; null: the name itself. */
  overrideDomain: optional(dnsName),
  ttlSeconds: withDefault(count({ min: 1, max: 604_800 }), 120),
};

/** How control of a name is proven with a TXT record (RFC 8555 §8.4). */
export interface DnsChallengeConfig extends Of<typeof challengeMembers> {}

/** The defaults of a challenge for which only the provider is given. */
export const defaultDnsChallenge = defaultsOf(challengeMembers);

export const dnsShape = later<DnsChallengeConfig>('dns', () => object(challengeMembers));
