import type { Cursor } from '../../../hubfile/cursor.ts';
import { badValue, count, duration, flag, name } from '../../../hubfile/values.ts';
import { trustPool } from '../../tls/syntax.ts';
import type { ReverseProxyConfig } from '../data.ts';

type Transport = ReverseProxyConfig['transport'];

/** `transport http { … }`; what concerns TLS means that upstreams speak it. */
export function proxyTransport(
  cursor: Cursor,
  known: Transport,
): { readonly transport: Transport; readonly tls: boolean } {
  const word = cursor.argument('http');
  if (word.text !== 'http') badValue(cursor, word, 'http, the only transport to upstreams');
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
    },
    {
      unsupported: {
        versions: 'HTTP/1.1 is spoken to upstreams',
        compression: 'use header_up Accept-Encoding',
        proxy_protocol: 'the client is named in X-Forwarded-For',
        tls_trusted_ca_certs: 'use tls_trust_pool',
      },
    },
  );
  const { tls, ...settings } = read;
  cursor.origins.follow(settings, read);
  return { transport: settings, tls };
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
