import type { Exchange } from '../http/exchange.ts';
import type { HeaderList } from '../http/header-list.ts';
import { Identity } from '../http/identity.ts';
import { parseCacheControl } from './cache-control.ts';

/** Characters of `Accept-Encoding`; a longer one is asked by nobody who wants a page. */
const MAX_ACCEPT_ENCODING = 256;
/** Characters of a key; a longer one is not stored. */
const MAX_KEY = 8_192;

/** By these a request can be another one to some apps than its method and URL say. */
const OVERRIDES = [
  'x-original-url',
  'x-rewrite-url',
  'x-original-host',
  'x-host',
  'x-http-host-override',
  'x-http-method',
  'x-http-method-override',
  'x-method-override',
  'x-forwarded-prefix',
  'x-forwarded-scheme',
  'x-forwarded-path',
  'x-forwarded-server',
];

/** What a trusted proxy says of the request: the app makes links of it. */
const FORWARDED = ['x-forwarded-host', 'x-forwarded-proto', 'x-forwarded-port', 'forwarded'];

/** The identity of those whom the gateway does not know. */
const NOBODY = new Identity().key;

/** What a request asks a cache. */
export interface CacheQuestion {
  /** Equal for requests for the same thing, whatever its variant. */
  readonly key: string;
  readonly onlyIfCached: boolean;
}

/**
 * What a request asks a cache, or why none is asked. The key is what the app sees after all rewriting:
 * scheme, host, path and query as they are, what a trusted proxy says, the identity that the gateway
 * has established, and what the operator adds.
 */
export function cacheQuestion(
  exchange: Exchange,
  varyOn: readonly string[],
): CacheQuestion | { readonly bypass: string } {
  const { headers, target } = exchange;
  if (exchange.hasBody) return { bypass: 'body' };
  if (!target.startsWith('/')) return { bypass: 'target' };
  for (const name of OVERRIDES) if (headers.has(name)) return { bypass: 'override' };
  for (const name of ['if-match', 'if-unmodified-since']) {
    if (headers.has(name)) return { bypass: 'condition' };
  }
  if (isStreamAsked(headers)) return { bypass: 'stream' };
  if ((headers.combined('accept-encoding')?.length ?? 0) > MAX_ACCEPT_ENCODING) {
    return { bypass: 'accept-encoding' };
  }
  const control = headers.has('cache-control')
    ? parseCacheControl(headers.combined('cache-control'))
    : null;
  if (control?.has('no-store') === true) return { bypass: 'request-no-store' };
  const key = keyOf(exchange, varyOn);
  if (key.length > MAX_KEY) return { bypass: 'key' };
  return {
    key,
    onlyIfCached: control?.has('only-if-cached') === true,
  };
}

function isStreamAsked(headers: HeaderList): boolean {
  return headers.get('accept')?.trim().toLowerCase() === 'text/event-stream';
}

function keyOf(exchange: Exchange, varyOn: readonly string[]): string {
  const { scheme, host, target, originalTarget, headers, identity } = exchange;
  let key = `${scheme}://${host.toLowerCase()}${target}`;
  // A handler behind may look at what was asked for before it was rewritten.
  if (originalTarget !== target) key += `\n<${originalTarget}`;
  for (const name of FORWARDED) {
    const value = headers.combined(name);
    if (value !== undefined) key += `\n${name}:${value}`;
  }
  const who = identity.key;
  if (who !== NOBODY) key += `\n@${who}`;
  for (const value of varyOn) key += `\n+${value}`;
  return key;
}
