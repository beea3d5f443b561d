import type { Exchange } from '../http/exchange.ts';
import type { HeaderList } from '../http/header-list.ts';
import type { Clock } from '../kernel/clock.ts';
import type { Logger } from '../kernel/log.ts';
import type { SiteHandler } from './site.ts';

/** Fields whose values open doors. */
const SECRET_FIELDS = new Set(['authorization', 'cookie', 'proxy-authorization']);
/** Query parameters that may carry a token, of hubs (0.x clients) as of apps. */
const SECRET_PARAMETERS = /([?&](?:authorization|access_token|token|jwt|code)=)[^&]*/gi;
/** Longest target or value that a line repeats, in characters. */
const MAX_SHOWN = 1024;

/**
 * Writes a line for each exchange when it is over: for an event stream, when the client has gone.
 * Who reads the log must not be able to act for a user, so tokens and cookies are left out.
 */
export function logAccess(inner: SiteHandler, log: Logger, clock: Clock): SiteHandler {
  return async (exchange) => {
    const began = clock.monotonic();
    try {
      await inner(exchange);
    } finally {
      const { status } = exchange;
      const line = {
        request: exchange.id,
        remote_ip: exchange.remoteAddress,
        client_ip: exchange.clientAddress,
        proto: `HTTP/${exchange.httpVersion}`,
        method: exchange.method,
        host: exchange.host,
        uri: shownTarget(exchange),
        headers: shownHeaders(exchange.headers),
        status,
        duration_ms: Math.round(clock.monotonic() - began),
      };
      if (status >= 500) log.error('handled request', line);
      else log.info('handled request', line);
    }
  };
}

function shownTarget({ originalTarget }: Exchange): string {
  return originalTarget.slice(0, MAX_SHOWN).replace(SECRET_PARAMETERS, '$1REDACTED');
}

function shownHeaders(headers: HeaderList): Record<string, string> {
  const shown: Record<string, string> = Object.create(null);
  for (const [name, value] of headers) {
    const key = name.toLowerCase();
    shown[key] = SECRET_FIELDS.has(key) ? 'REDACTED' : value.slice(0, MAX_SHOWN);
  }
  return shown;
}
