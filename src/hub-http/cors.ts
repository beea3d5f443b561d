import { answer } from '../http/answer.ts';
import type { Exchange } from '../http/exchange.ts';
import type { HeaderList } from '../http/header-list.ts';
import { registrableDomain } from '../http/same-site.ts';
import { compileWildcard } from '../http/linear-regexp.ts';
import { parseUrl } from '../kernel/parse.ts';
import type { RefusalLog } from './refusal.ts';

const METHODS = ['GET', 'HEAD', 'POST', 'QUERY'];
const HEADERS = ['authorization', 'cache-control', 'content-type', 'last-event-id'];

/** The cross-origin policy of a hub (WHATWG Fetch §3.2). */
export interface Cors {
  /** Adds the fields of an actual response. */
  apply(exchange: Exchange, headers: HeaderList): void;
  /** Responds to a preflight request. Returns false for any other request. */
  answerPreflight(exchange: Exchange): boolean;
}

/**
 * @param cursorHeader response field that scripts may read in addition to `Link`, `Accept-Query`, and the
 * challenge, which names the metadata (RFC 9728 §5.1)
 * @returns null for a hub that serves only its own origin
 */
export function createCors(origins: readonly string[], cursorHeader: string): Cors | null {
  if (origins.length === 0) return null;
  const allowed = originList(origins);
  const exposed = `Link, ${cursorHeader}, Accept-Query, WWW-Authenticate`;

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

/** Browsers send the list in lower case and sorted. Any other list does not come from a browser. */
function mayRequestHeaders(requested: string): boolean {
  if (requested === '') return true;
  const names = requested.split(',').map((name) => name.trim());
  return names.every(
    (name, index) => HEADERS.includes(name) && (index === 0 || name > (names[index - 1] ?? '')),
  );
}

/**
 * Whether an entry names origins of one owner: neither `*` nor `null`, and a wildcard only for the subdomains
 * of one registrable domain. Pages of other owners must not read data with a user's cookie.
 */
function mayCarryCredentials(entry: string): boolean {
  if (entry === '*' || entry === 'null') return false;
  if (!entry.includes('*')) return true;
  const [, domain] = /^[a-z][a-z0-9+.-]*:\/\/\*\.([^*/:]+)(?::\d+)?$/.exec(entry) ?? [];
  return domain !== undefined && registrableDomain(domain) !== null;
}

/** A list of allowed origins, each with at most one `*`. */
export interface OriginList {
  readonly any: boolean;
  /** The entry that allows `origin`; undefined if none does. The origin is compared literally. */
  find(origin: string): string | undefined;
}

export function originList(entries: readonly string[]): OriginList {
  const lower = entries.map(asBrowsersSend);
  const exact = new Set(lower.filter((entry) => !entry.includes('*')));
  const wildcards = lower
    .filter((entry) => entry !== '*' && entry.includes('*'))
    .map((entry) => ({ entry, matches: compileWildcard(entry, 'any') }));
  return {
    any: lower.includes('*'),
    find(origin) {
      if (exact.has(origin)) return origin;
      const wildcard = wildcards.find(({ matches }) => matches(origin));
      return wildcard?.entry ?? (lower.includes('*') ? '*' : undefined);
    },
  };
}

/** Browsers leave a default port out of an origin, and send a name in ASCII (RFC 6454 §6.2). */
function asBrowsersSend(entry: string): string {
  const origin = parseUrl(entry)?.origin ?? 'null';
  return origin === 'null' ? entry.toLowerCase() : origin;
}

/** Characters of an origin in a log line. */
const MAX_SHOWN = 200;

/**
 * Logs pages that are not allowed to read the hub's responses. Their browser refuses the response (WHATWG
 * Fetch §3.2), and reports that only in the console of the page. The returned function returns whether the
 * page is such a page.
 */
export function createForeignPageCheck(
  corsOrigins: readonly string[],
  publicOrigins: readonly string[],
  refusals: RefusalLog,
): (exchange: Exchange) => boolean {
  const allowed = originList(corsOrigins);
  return (exchange) => {
    const origin = exchange.headers.get('origin')?.toLowerCase();
    if (origin === undefined || allowed.find(origin) !== undefined) return false;
    if (exchange.headers.get('sec-fetch-site') === 'same-origin') return false;
    // With any scheme, because TLS may end before the gateway.
    const isOwn = origin.replace(/^[a-z]+:\/\//, '') === exchange.originalHost.toLowerCase();
    if (isOwn || publicOrigins.includes(origin)) return false;
    const found = origin.slice(0, MAX_SHOWN);
    const diagnosis = {
      check: 'cors_origins',
      expected: 'a page of an origin in cors_origins',
      found,
      fix: `add ${found} to cors_origins, or serve the page from the origin of the hub`,
    };
    refusals.write(exchange, diagnosis, {
      message: 'A page of another origin may not read a response of the hub',
    });
    return true;
  };
}
