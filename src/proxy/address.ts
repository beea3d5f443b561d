import { isIP, type NetConnectOpts } from 'node:net';
import { attemptTimeout } from '../kernel/connection-attempts.ts';
import { HubgateError } from '../kernel/error.ts';
import { parseUrl } from '../kernel/parse.ts';

export interface UpstreamAddress {
  /** Identifies the upstream in logs, in the registry and in `{upstream_hostport}`. */
  readonly hostport: string;
  readonly protocol: 'http:' | 'https:';
  /** Whether HTTP/2 is used without negotiation (RFC 9113 §3.3). */
  readonly http2: boolean;
  /** Name or IP address, IPv6 without brackets; `localhost` for a socket file. */
  readonly hostname: string;
  readonly port: number;
  /** The value of `Host` for requests that name the upstream itself. */
  readonly authority: string;
  /** The socket file of `unix:/path`; otherwise null. */
  readonly socketPath: string | null;
}

/**
 * Parses `http://host:port`, `https://host:port` or `unix:/path`; `h2c://host:port` and `unix+h2c:/path` for
 * HTTP/2 without TLS.
 *
 * @throws HubgateError `invalid-upstream`
 */
export function parseUpstream(text: string): UpstreamAddress {
  const address = upstreamAddress(text);
  if (address !== null) return address;
  throw new HubgateError(
    'invalid-upstream',
    `"${text}" is not a valid upstream address: write http://host:port, https://host:port or unix:/path`,
  );
}

/** The same; null for anything else. */
export function upstreamAddress(text: string): UpstreamAddress | null {
  const socket = /^unix(\+h2c)?:(.*)$/s.exec(text);
  if (socket !== null) return parseSocketFile(socket[2] ?? '', socket[1] !== undefined);
  const http2 = text.startsWith('h2c:');
  const url = parseUrl(http2 ? text.replace('h2c', 'http') : text);
  if (url === null || (url.protocol !== 'http:' && url.protocol !== 'https:')) return null;
  if (url.pathname !== '/' || url.search !== '' || url.hash !== '' || url.username !== '') {
    return null;
  }
  const { protocol } = url;
  const hostname = url.hostname.replace(/^\[|\]$/g, '');
  const port = url.port === '' ? (protocol === 'https:' ? 443 : 80) : Number(url.port);
  const host = isIP(hostname) === 6 ? `[${hostname}]` : hostname;
  const hostport = `${host}:${port}`;
  return { hostport, protocol, http2, hostname, port, authority: hostport, socketPath: null };
}

function parseSocketFile(written: string, http2: boolean): UpstreamAddress | null {
  const path = written.replace(/^\/{2,}/, '/');
  if (!path.startsWith('/') || path.length < 2) return null;
  const place = { hostname: 'localhost', port: 80, authority: 'localhost', socketPath: path };
  return { hostport: `unix:${path}`, protocol: 'http:', http2, ...place };
}

/** Where to connect, as `net.connect` and `tls.connect` take it. */
export function connectOptions(
  { hostname, port, socketPath }: UpstreamAddress,
  { dialTimeoutMs }: { readonly dialTimeoutMs: number },
): NetConnectOpts {
  if (socketPath !== null) return { path: socketPath };
  const autoSelectFamilyAttemptTimeout = attemptTimeout(dialTimeoutMs);
  return { host: hostname, port, autoSelectFamilyAttemptTimeout };
}
