import type { Cursor, OptionTable } from '../../../hubfile/cursor.ts';
import {
  badValue,
  count,
  duration,
  flag,
  list,
  name,
  oneOf,
  text,
} from '../../../hubfile/values.ts';
import { trustPool } from '../../tls/syntax.ts';
import {
  defaultFastcgi,
  type FastcgiConfig,
  isParameterName,
  type ReverseProxyConfig,
} from '../data.ts';

type Transport = ReverseProxyConfig['transport'];

/** `transport http { … }` or `transport fastcgi { … }`. */
export function proxyTransport(
  cursor: Cursor,
  sofar: Pick<ReverseProxyConfig, 'transport' | 'fastcgi'>,
): Partial<Pick<ReverseProxyConfig, 'transport' | 'fastcgi'>> & { readonly tls?: boolean } {
  return oneOf(cursor, ['http', 'fastcgi']) === 'http'
    ? httpTransport(cursor, sofar.transport)
    : fastcgiTransport(cursor, sofar.transport);
}

/** What concerns TLS means that upstreams speak it. */
function httpTransport(
  cursor: Cursor,
  known: Transport,
): { readonly transport: Transport; readonly tls: boolean } {
  const read = cursor.options(
    { ...known, tls: false },
    {
      dial_timeout: (option) => ({ dialTimeoutMs: positiveDuration(option) }),
      response_header_timeout: (option) => ({ responseHeaderTimeoutMs: duration(option) }),
      read_timeout: (option) => ({ readTimeoutMs: duration(option) }),
      write_timeout: (option) => ({ writeTimeoutMs: duration(option) }),
      keepalive: (option) => ({ keepAliveMs: keepAlive(option) }),
      max_conns_per_host: (option) => ({ maxConnectionsPerHost: count(option) }),
      tls: () => ({ tls: flag() }),
      tls_insecure_skip_verify: () => ({ tlsInsecureSkipVerify: flag(), tls: true }),
      tls_server_name: (option) => ({ tlsServerName: name(option, 'a host name'), tls: true }),
      tls_trust_pool: (option) => ({ tlsTrustPoolFile: trustPool(option), tls: true }),
      tls_trusted_ca_certs: (option) => ({ tlsTrustPoolFile: trustPool(option), tls: true }),
    },
    {
      unsupported: {
        versions: 'HTTP/1.1 is spoken to upstreams',
        compression: 'use header_up Accept-Encoding',
        proxy_protocol: 'the client is named in X-Forwarded-For',
      },
    },
  );
  const { tls, ...settings } = read;
  cursor.origins.follow(settings, read);
  return { transport: settings, tls };
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
