import { answer } from '../http/answer.ts';
import type { Exchange } from '../http/exchange.ts';
import type { HeaderList } from '../http/header-list.ts';
import { registrableDomain } from '../http/same-site.ts';
import { originList } from './origins.ts';

const METHODS = ['GET', 'HEAD', 'POST', 'QUERY'];
const HEADERS = ['authorization', 'cache-control', 'content-type', 'last-event-id'];

/** The cross-origin policy of a hub (WHATWG Fetch §3.2). */
export interface Cors {
  /** Adds the fields of an actual response. */
  apply(exchange: Exchange, headers: HeaderList): void;
  /** Answers a preflight; false when the request is none. */
  answerPreflight(exchange: Exchange): boolean;
}

/**
 * @param cursorHeader response field that scripts may read beside `Link`
 * @returns null for a hub that serves its own origin only
 */
export function createCors(origins: readonly string[], cursorHeader: string): Cors | null {
  if (origins.length === 0) return null;
  const allowed = originList(origins);
  const exposed = `Link, ${cursorHeader}, Accept-Query`;

  const allowOrigin = (exchange: Exchange, headers: HeaderList): boolean => {
    const origin = exchange.headers.get('origin');
    if (origin === undefined) return false;
    if (allowed.any) {
      headers.set('access-control-allow-origin', '*');
      return true;
    }
    const entry = allowed.find(origin.toLowerCase());
    if (entry === undefined) return false;
    headers.set('access-control-allow-origin', origin);
    if (mayCarryCredentials(entry)) headers.set('access-control-allow-credentials', 'true');
    return true;
  };

  return {
    apply(exchange, headers) {
      if (isPreflight(exchange)) return;
      headers.append('vary', 'Origin');
      if (allowOrigin(exchange, headers)) headers.set('access-control-expose-headers', exposed);
    },
    answerPreflight(exchange) {
      if (!isPreflight(exchange)) return false;
      const method = exchange.headers.get('access-control-request-method') ?? '';
      const requested = exchange.headers.get('access-control-request-headers') ?? '';
      exchange.onHead(({ headers }) => {
        headers.set(
          'vary',
          'Origin, Access-Control-Request-Method, Access-Control-Request-Headers',
        );
        if (!METHODS.includes(method) || !mayRequestHeaders(requested)) return undefined;
        if (!allowOrigin(exchange, headers)) return undefined;
        headers.set('access-control-allow-methods', method);
        if (requested !== '') headers.set('access-control-allow-headers', requested);
        return undefined;
      });
      answer(exchange, 204, {});
      return true;
    },
  };
}

function isPreflight({ method, headers }: Exchange): boolean {
  return (
    method === 'OPTIONS' && headers.has('origin') && headers.has('access-control-request-method')
  );
}

/** Browsers send the list in lower case and sorted; anything else did not come from one. */
function mayRequestHeaders(requested: string): boolean {
  if (requested === '') return true;
  const names = requested.split(',').map((name) => name.trim());
  return names.every(
    (name, index) => HEADERS.includes(name) && (index === 0 || name > (names[index - 1] ?? '')),
  );
}

/**
 * Whether an entry names origins of one owner: not `*`, not `null`, and a wildcard only for the
 * subdomains of one registrable domain. Everyone else's pages must not read with a user's cookie.
 */
function mayCarryCredentials(entry: string): boolean {
  if (entry === '*' || entry === 'null') return false;
  if (!entry.includes('*')) return true;
  const [, domain] = /^[a-z][a-z0-9+.-]*:\/\/\*\.([^*/:]+)(?::\d+)?$/.exec(entry) ?? [];
  return domain !== undefined && registrableDomain(domain) !== null;
}
