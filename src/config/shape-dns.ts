import {
  defaultDnsChallenge,
  defaultExec,
  defaultRfc2136,
  type DnsChallengeConfig,
  type DnsProviderConfig,
  type ExecConfig,
  isDnsName,
  isResolver,
} from './dns-challenge.ts';
import { byKind, later, list, nullable, object, type Shape } from './shape.ts';
import { count, duration, name, oneOf, secret, text } from './shape-values.ts';

const dnsName = text('a DNS name', (value) => isDnsName(value) || value.startsWith('{'));

const challenge = object<DnsChallengeConfig>(
  {
    provider: byKind<DnsProviderConfig>({
      rfc2136: object(
        {
          server: name('a name server such as 192.0.2.53:53'),
          zone: nullable(dnsName),
          keyName: dnsName,
          algorithm: oneOf('hmac-sha256', 'hmac-sha512'),
          key: secret,
        },
        defaultRfc2136,
      ),
      'acme-dns': object({
        serverUrl: name('the URL of an acme-dns server'),
        username: secret,
        password: secret,
        subdomain: name('the subdomain of the account'),
      }),
      exec: object<Omit<ExecConfig, 'kind'>>(
        {
          program: name('a program'),
          args: list(text('a text')),
          environment: list(object({ name: name('the name of a variable'), value: secret })),
          timeoutMs: duration({ min: 1 }),
        },
        defaultExec,
      ),
    }),
    propagationDelayMs: duration(),
    propagationTimeoutMs: duration(),
    resolvers: list(text('an address such as 192.0.2.53 or 192.0.2.53:5353', isResolver)),
    overrideDomain: nullable(dnsName),
    ttlSeconds: count({ min: 1, max: 604_800 }),
  },
  defaultDnsChallenge,
);

/** The DNS challenge. */
export const dnsShape: Shape<DnsChallengeConfig> = later('dns', () => challenge);
