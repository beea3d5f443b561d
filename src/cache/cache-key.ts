import type { Exchange } from '../http/exchange.ts';
import type { HeaderList } from '../http/header-list.ts';
import { parseCacheControl } from './cache-control.ts';

/** Characters of `Accept-Encoding`. No client for pages sends a longer one. */
const MAX_ACCEPT_ENCODING = 256;
/** Characters of a key. A response with a longer key is not stored. */
const MAX_KEY = 8_192;

/** Fields with which some apps read a request differently from its method and URL. */
const OVERRIDES = new Set([
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
]);

/** What a trusted proxy says about the request; apps create links from it. */
const FORWARDED = new Set([
  'x-forwarded-host',
  'x-forwarded-proto',
  'x-forwarded-port',
  'forwarded',
]);

/** What a request looks up in a cache. */
export interface CacheLookup {
  /** Equal for requests for the same resource, whatever the variant. */
  readonly key: string;
  readonly onlyIfCached: boolean;
}

/**
 * What a request looks up in a cache, or the reason why it bypasses the cache. The key contains what
 * the app sees after all rewrites: scheme, host, path and query unchanged, the statements of a trusted proxy,
 * the identity that the gateway has established, and the values that the operator adds.
 */
export function cacheLookup(
  exchange: Exchange,
  varyOn: readonly string[],
): CacheLookup | { readonly bypass: string } {
  const { headers, target } = exchange;
  if (exchange.hasBody) return { bypass: 'body' };
  if (!target.startsWith('/')) return { bypass: 'target' };
  const fields = readFields(headers);
  if (fields.bypass !== null) return { bypass: fields.bypass };
  const key = keyOf(exchange, fields.forwarded, varyOn);
  if (key.length > MAX_KEY) return { bypass: 'key' };
  return {
    key,
    onlyIfCached: fields.onlyIfCached,
  };
}

interface AskingFields {
  bypass: string | null;
  onlyIfCached: boolean;
  /** The statements of a trusted proxy as part of a key. */
  forwarded: string;
}

/** In one pass, because this runs for every request. */
function readFields(headers: HeaderList): AskingFields {
  const found: AskingFields = { bypass: null, onlyIfCached: false, forwarded: '' };
  headers.forEach((name, value) => {
    switch (name) {
      case 'if-match':
      case 'if-unmodified-since':
        found.bypass = 'condition';
        break;
      case 'accept':
        if (value.trim().toLowerCase() === 'text/event-stream') found.bypass = 'stream';
        break;
      case 'accept-encoding':
        if (value.length > MAX_ACCEPT_ENCODING) found.bypass = 'accept-encoding';
        break;
      case 'cache-control': {
        const control = parseCacheControl(value);
        if (control.has('no-store')) found.bypass = 'request-no-store';
        if (control.has('only-if-cached')) found.onlyIfCached = true;
        break;
      }
      default:
        if (OVERRIDES.has(name)) found.bypass = 'override';
        else if (FORWARDED.has(name)) found.forwarded += `\n${name}:${value}`;
    }
  });
  return found;
}

function keyOf(exchange: Exchange, forwarded: string, varyOn: readonly string[]): string {
  const { scheme, host, target, originalTarget, rawTarget, identity } = exchange;
  let key = `${scheme}://${host.toLowerCase()}${target}`;
  // A later handler may look at the target before its rewrite.
  if (originalTarget !== target) key += `\n<${originalTarget}`;
  // The app may receive the path as the client spelled it.
  if (rawTarget !== null && rawTarget !== originalTarget) key += `\n=${rawTarget}`;
  key += forwarded;
  if (!identity.isUnknown) key += `\n@${identity.key}`;
  for (const value of varyOn) key += `\n+${value}`;
  return key;
}
