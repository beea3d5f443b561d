import { isIP } from 'node:net';
import { HubgateError } from '../kernel/error.ts';
import { requireUrl } from '../kernel/parse-url.ts';

/** Where an upstream listens. */
export interface UpstreamAddress {
  /** Names the upstream in logs, in the registry and in `{upstream_hostport}`. */
  readonly hostport: string;
  readonly protocol: 'http:' | 'https:';
  /** Name or IP address, IPv6 without brackets; `localhost` for a socket file. */
  readonly hostname: string;
  readonly port: number;
  /** What `Host` says to the upstream when it names the upstream itself. */
  readonly authority: string;
  /** The socket file of `unix:/path`; else null. */
  readonly socketPath: string | null;
}

/**
 * Reads `http://host:port`, `https://host:port` or `unix:/path`.
 *
 * @throws HubgateError `invalid-upstream`
 */
export function parseUpstream(text: string): UpstreamAddress {
  if (text.startsWith('unix:')) return parseSocketFile(text);
  const url = tryUrl(text);
  if (url === null || (url.protocol !== 'http:' && url.protocol !== 'https:')) throw invalid(text);
  if (url.pathname !== '/' || url.search !== '' || url.hash !== '' || url.username !== '') {
    throw invalid(text);
  }
  const { protocol } = url;
  const hostname = url.hostname.replace(/^\[|\]$/g, '');
  const port = url.port === '' ? (protocol === 'https:' ? 443 : 80) : Number(url.port);
  const host = isIP(hostname) === 6 ? `[${hostname}]` : hostname;
  const hostport = `${host}:${port}`;
  return { hostport, protocol, hostname, port, authority: hostport, socketPath: null };
}

function parseSocketFile(text: string): UpstreamAddress {
  const path = text.slice('unix:'.length).replace(/^\/{2,}/, '/');
  if (!path.startsWith('/') || path.length < 2) throw invalid(text);
  const hostport = `unix:${path}`;
  const hostname = 'localhost';
  return { hostport, protocol: 'http:', hostname, port: 80, authority: hostname, socketPath: path };
}

function tryUrl(text: string): URL | null {
  try {
    return requireUrl(text);
  } catch {
    return null;
  }
}

function invalid(text: string): HubgateError {
  return new HubgateError(
    'invalid-upstream',
    `"${text}" is no upstream: write http://host:port, https://host:port or unix:/path`,
  );
}
