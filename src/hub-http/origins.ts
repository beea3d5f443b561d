import { compileWildcard } from '../http/linear-regexp.ts';
import type { Exchange } from '../http/exchange.ts';
import type { RefusalLog } from './refusal.ts';

/** A list of allowed origins, of which each may hold one `*`. */
export interface OriginList {
  readonly any: boolean;
  /** The entry that allows `origin`; undefined when none does. The origin is compared as given. */
  find(origin: string): string | undefined;
}

export function originList(entries: readonly string[]): OriginList {
  const lower = entries.map((entry) => entry.toLowerCase());
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

/** Characters of an origin that a line of the log repeats. */
const MAX_SHOWN = 200;

/**
 * Tells the operator of pages that may not read what the hub answers: their browser refuses them
 * (WHATWG Fetch §3.2), and says so to nobody but the page's own console. Says whether it is one.
 */
export function createForeignOrigin(
  corsOrigins: readonly string[],
  publicOrigins: readonly string[],
  refusals: RefusalLog,
): (exchange: Exchange) => boolean {
  const allowed = originList(corsOrigins);
  return (exchange) => {
    const origin = exchange.headers.get('origin')?.toLowerCase();
    if (origin === undefined || allowed.find(origin) !== undefined) return false;
    if (exchange.headers.get('sec-fetch-site') === 'same-origin') return false;
    // Whatever its scheme: TLS may end before the gateway.
    const isOwn = origin.replace(/^[a-z]+:\/\//, '') === exchange.host.toLowerCase();
    if (isOwn || publicOrigins.includes(origin)) return false;
    const found = origin.slice(0, MAX_SHOWN);
    refusals.write(exchange, {
      check: 'cors_origins',
      expected: 'a page of an origin that cors_origins lists',
      found,
      cure: `add ${found} to cors_origins, or serve the page from the origin of the hub`,
    });
    return true;
  };
}
