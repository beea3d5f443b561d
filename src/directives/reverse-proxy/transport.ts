import type { Cursor, OptionTable } from '../../hubfile/cursor.ts';
import { badValue, count, duration, flag, list, name, oneOf, text } from '../../hubfile/values.ts';
import { trustPool } from '../tls.ts';
import type { TransportWords } from './upstreams.ts';
import { isParameterName } from './data.ts';
import {
  defaultFastcgi,
  defaultReverseProxy,
  type FastcgiConfig,
  type ReverseProxyConfig,
} from '../../proxy/proxy-config.ts';

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

/** What concerns TLS means that upstreams speak it. */
function httpTransport(
  cursor: Cursor,
  known: Transport,
): { readonly transport: Transport } & TransportWords {
  const read = cursor.options(
    { ...known, tls: false, h2c: false },
    {
      dial_timeout: (option) => ({ dialTimeoutMs: positiveDuration(option) }),
      response_header_timeout: (option) => ({ responseHeaderTimeoutMs: duration(option) }),
      read_timeout: (option) => ({ readTimeoutMs: duration(option) }),
      write_timeout: (option) => ({ writeTimeoutMs: duration(option) }),
      keepalive: (option) => ({ keepAliveMs: keepAlive(option) }),
      max_conns_per_host: (option) => ({ maxConnectionsPerHost: count(option) }),
      versions: (option) => versions(option),
      tls: () => ({ tls: flag() }),
      tls_insecure_skip_verify: () => ({ tlsInsecureSkipVerify: flag(), tls: true }),
      tls_server_name: (option) => ({ tlsServerName: name(option, 'a host name'), tls: true }),
      tls_trust_pool: (option) => ({ tlsTrustPoolFile: trustPool(option), tls: true }),
      tls_trusted_ca_certs: (option) => ({ tlsTrustPoolFile: trustPool(option), tls: true }),
    },
    {
      unsupported: {
        read_buffer: 'buffers are as large as they need to be',
        write_buffer: 'buffers are as large as they need to be',
        max_response_header: 'heads of responses have 80 KiB at most',
        dial_fallback_delay: 'addresses of both versions are tried as Node tries them',
        expect_continue_timeout: 'an upstream has a second to ask for a body',
        resolvers: 'names are those of the system; dynamic a has resolvers',
        tls_timeout: 'dial_timeout holds for the handshake too',
        tls_client_auth: 'prove who asks with header_up, or by a tunnel to the upstream',
        tls_renegotiation: 'TLS 1.3 has none',
        tls_except_ports: 'use a reverse_proxy of its own for those ports',
        tls_curves: 'curves are negotiated',
        keepalive_interval: 'use keepalive',
        keepalive_idle_conns: 'use keepalive, and max_conns_per_host',
        keepalive_idle_conns_per_host: 'use keepalive, and max_conns_per_host',
        local_address: 'the address is chosen by the routes of the system',
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

/** The options of FastCGI, which `php_fastcgi` has too. */
export const FASTCGI_OPTIONS: OptionTable<FastcgiDraft> = {
  root: (option) => ({ root: name(option, 'a directory') }),
  split: (option) => ({ splitPath: list(option, 'the end of a name such as .php') }),
  env: (option, { env }) => ({ env: [...env, parameter(option)] }),
  dial_timeout: (option, { transport }) => ({
    transport: { ...transport, dialTimeoutMs: positiveDuration(option) },
  }),
  response_header_timeout: (option, { transport }) => ({
    transport: { ...transport, responseHeaderTimeoutMs: duration(option) },
  }),
  read_timeout: (option, { transport }) => ({
    transport: { ...transport, readTimeoutMs: duration(option) },
  }),
  write_timeout: (option, { transport }) => ({
    transport: { ...transport, writeTimeoutMs: duration(option) },
  }),
};

export const FASTCGI_UNSUPPORTED: Readonly<Record<string, string>> = {
  capture_stderr: 'what scripts complain about goes to the log always',
  resolve_root_symlink: 'write the root as the server of scripts sees it',
};

function parameter(option: Cursor): FastcgiConfig['env'][number] {
  const word = option.argument('a name and a value');
  if (!isParameterName(word.text))
    badValue(option, word, 'the name of a parameter such as APP_ENV');
  return { name: word.text, value: text(option, 'a value') };
}

/** `versions <1.1|2|h2c…>`; `h2c` is HTTP/2 alone, as it is not negotiated. */
function versions(cursor: Cursor): Pick<Transport, 'versions'> & { readonly h2c: boolean } {
  const words = cursor.several('1.1, 2 or h2c');
  for (const word of words) {
    if (word.text === '3') {
      const hint = 'write versions 1.1 2, or put a proxy that speaks HTTP/3 in between';
      cursor.fail(word.span, 'bad-value', 'HTTP/3 is not spoken to upstreams by hubgate', hint);
    }
    if (!['1.1', '2', 'h2c'].includes(word.text)) badValue(cursor, word, '1.1, 2 or h2c');
  }
  const named = new Set(words.map(({ text: version }) => version));
  if (named.has('h2c')) {
    if (!named.has('1.1')) return { versions: defaultReverseProxy.transport.versions, h2c: true };
    const message = 'h2c is not negotiated, so that it cannot be one of two versions';
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

/** Where 0 would not mean "no limit" but nonsense. */
export function positiveDuration(cursor: Cursor): number {
  const word = cursor.peek();
  const ms = duration(cursor);
  return ms === 0 && word !== undefined ? badValue(cursor, word, 'a duration above 0') : ms;
}
