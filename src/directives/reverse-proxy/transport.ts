import type { Cursor, OptionTable } from '../../hubfile/cursor.ts';
import {
  badValue,
  duration,
  flag,
  matching,
  oneOf,
  optionsOf,
  optionsOfPart,
  text,
} from '../../hubfile/values.ts';
import { isServerName } from '../../config/well-formed.ts';
import { trustPool } from '../tls.ts';
import type { TransportWords } from './upstreams.ts';
import {
  defaultFastcgi,
  defaultReverseProxy,
  type FastcgiConfig,
  fastcgiMembers,
  isParameterName,
  type ReverseProxyConfig,
  timeoutMembers,
  transportMembers,
} from '../../proxy/proxy-config.ts';

const SERVER_NAME = 'a host name, the same for all requests';

type Transport = ReverseProxyConfig['transport'];

/** `transport http { … }` or `transport fastcgi { … }`. */
export function proxyTransport(
  cursor: Cursor,
  sofar: Pick<ReverseProxyConfig, 'transport' | 'fastcgi'>,
): Partial<Pick<ReverseProxyConfig, 'transport' | 'fastcgi'>> & Partial<TransportWords> {
  return oneOf(cursor, ['http', 'fastcgi']) === 'http'
    ? httpTransport(cursor, sofar.transport)
    : fastcgiTransport(cursor, sofar.transport);
}

/** An option of TLS implies that upstreams use TLS. */
function httpTransport(
  cursor: Cursor,
  known: Transport,
): { readonly transport: Transport } & TransportWords {
  const read = cursor.options(
    { ...known, tls: false, h2c: false },
    {
      ...optionsOf(transportMembers, {
        keepAliveMs: 'keepalive',
        maxConnectionsPerHost: 'max_conns_per_host',
      }),
      keepalive: (option) => ({ keepAliveMs: keepAlive(option) }),
      versions: (option) => versions(option),
      tls: () => ({ tls: flag() }),
      tls_insecure_skip_verify: () => ({ tlsInsecureSkipVerify: flag(), tls: true }),
      tls_server_name: (option) => ({
        tlsServerName: matching(option, SERVER_NAME, isServerName),
        tls: true,
      }),
      tls_trust_pool: (option) => ({ tlsTrustPoolFiles: trustPool(option), tls: true }),
      tls_trusted_ca_certs: (option) => ({ tlsTrustPoolFiles: trustPool(option), tls: true }),
    },
    {
      unsupported: {
        max_response_header: 'response heads are limited to 80 KiB',
        resolvers: "hubgate uses the system's resolver; dynamic a has resolvers",
        tls_client_auth: 'authenticate with header_up, or use a tunnel to the upstream',
        tls_except_ports: 'use a separate reverse_proxy for those ports',
        tls_curves: 'hubgate negotiates curves',
        local_address: "the system's routes choose the address",
        forward_proxy_url: 'use a tunnel to the upstream',
        network_proxy: 'use a tunnel to the upstream',
        compression: 'use header_up Accept-Encoding',
        proxy_protocol: 'the client is named in X-Forwarded-For',
      },
    },
  );
  const { tls, h2c, ...settings } = read;
  cursor.origins.follow(settings, read);
  return { transport: settings, tls, h2c };
}

interface FastcgiDraft extends FastcgiConfig {
  readonly transport: Transport;
}

function fastcgiTransport(
  cursor: Cursor,
  transport: Transport,
): Pick<ReverseProxyConfig, 'transport' | 'fastcgi'> {
  const read = cursor.options<FastcgiDraft>({ ...defaultFastcgi, transport }, FASTCGI_OPTIONS, {
    repeatable: ['env'],
    unsupported: FASTCGI_UNSUPPORTED,
  });
  const { transport: settings, ...fastcgi } = read;
  return { transport: settings, fastcgi };
}

/** The options of FastCGI, which `php_fastcgi` also has. */
export const FASTCGI_OPTIONS: OptionTable<FastcgiDraft> = {
  ...optionsOf(fastcgiMembers, { splitPath: 'split' }),
  env: (option, { env }) => ({ env: [...env, parameter(option)] }),
  ...optionsOfPart('transport', defaultReverseProxy.transport, optionsOf(timeoutMembers)),
};

export const FASTCGI_UNSUPPORTED: Readonly<Record<string, string>> = {
  capture_stderr: 'hubgate always logs the errors of scripts',
};

function parameter(option: Cursor): FastcgiConfig['env'][number] {
  const expected = 'the name of a parameter such as APP_ENV';
  const given = matching(option, 'a name and a value', isParameterName, expected);
  return { name: given, value: text(option, 'a value') };
}

/** `versions <1.1|2|h2c…>`; `h2c` is HTTP/2 only, because it is not negotiated. */
function versions(cursor: Cursor): Pick<Transport, 'versions'> & { readonly h2c: boolean } {
  const words = cursor.several('1.1, 2 or h2c');
  for (const word of words) {
    if (word.text === '3') {
      const hint = 'write versions 1.1 2, or put a proxy with HTTP/3 in between';
      cursor.fail(word.span, 'bad-value', 'hubgate does not support HTTP/3 to upstreams', hint);
    }
    if (!['1.1', '2', 'h2c'].includes(word.text)) badValue(cursor, word, '1.1, 2 or h2c');
  }
  const named = new Set(words.map(({ text: version }) => version));
  if (named.has('h2c')) {
    if (!named.has('1.1')) return { versions: defaultReverseProxy.transport.versions, h2c: true };
    const message = 'h2c is not negotiated, so it cannot be one of two versions';
    return cursor.fail(cursor.span, 'bad-value', message, 'write versions h2c, or versions 1.1');
  }
  const both = (['1.1', '2'] as const).filter((version) => named.has(version));
  return { versions: both, h2c: false };
}

function keepAlive(cursor: Cursor): number {
  if (cursor.peek()?.text !== 'off') return duration(cursor);
  cursor.optional();
  return 0;
}
