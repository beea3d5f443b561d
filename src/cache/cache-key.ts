import { hash } from 'node:crypto';
import type { Exchange, ResponseHead } from '../http/exchange.ts';
import { isSafeMethod } from '../http/field-values.ts';
import { fieldText, type HeaderList } from '../http/header-list.ts';
import { parseCacheControl } from '../http/cache-control.ts';
import { requestUrl } from '../http/request-path.ts';
import { errorStatus, outcomeStatus } from '../http/request-variables.ts';
import { parseUrl } from '../kernel/parse.ts';

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
  'x-forwarded-uri',
  'x-forwarded-ssl',
  'x-original-uri',
  'x-override-url',
  'x-envoy-original-path',
  'x-http-path',
  'x-url-scheme',
  'front-end-https',
  // Next.js, in versions that trust what should come from their own servers only (CVE-2024-46982 and others).
  'x-middleware-prefetch',
  'x-middleware-rewrite',
  'x-middleware-subrequest',
  'x-invoke-path',
  'x-invoke-query',
  'x-invoke-status',
  'x-matched-path',
  'x-now-route-matches',
  // React Router (CVE-2025-43864, CVE-2025-43865).
  'x-react-router-spa-mode',
  'x-react-router-prerender-data',
]);

/** What a trusted proxy says about the request; apps create links from it. */
const FORWARDED = new Set([
  'x-forwarded-host',
  'x-forwarded-proto',
  'x-forwarded-port',
  'forwarded',
]);

/** Characters of a text that is remembered as it is. */
const MAX_TEXT = 256;

/** Fields whose values are compared byte for byte. */
const OPAQUE = new Set(['authorization', 'cookie', 'user-agent', 'referer']);
/** Names of languages and codings are case-insensitive (RFC 9110 §8.4.1, §8.5.1). */
const CASELESS = new Set(['accept', 'accept-charset', 'accept-encoding', 'accept-language']);

/** No quotes, in which white space has a meaning, and no characters beyond ASCII that `trim` would remove. */
const PLAIN = /^[\t !#-~]*$/;

/** What a request looks up in a cache. */
export interface CacheLookup {
  /** Equal for requests for the same resource, whatever the variant. */
  readonly key: string;
  readonly onlyIfCached: boolean;
}

/**
 * What a request looks up in a cache, or the reason why it bypasses the cache. The key contains what
 * the app sees after all rewrites: scheme, host, path and query unchanged, the statements of a trusted proxy,
 * the identity that the gateway has established, the root that was chosen for the request, in error routes the status
 * of the error, the names of the fields that handlers have set for the response, which later handlers can see, and the
 * values that the operator adds.
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
  return { key, onlyIfCached: fields.onlyIfCached };
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
  const { scheme, host, originalHost, target, originalTarget, rawTarget, identity, variables } =
    exchange;
  // As the app gets it: apps that know one spelling of their name refuse or redirect all others.
  let key = `${scheme}://${host}${target}`;
  // Updates, live pages and what the app changes name the host that the client has contacted.
  if (originalHost !== host) key += `\n^${originalHost}`;
  // A later handler may look at the target before its rewrite.
  if (originalTarget !== target) key += `\n<${originalTarget}`;
  // The app may receive the path as the client spelled it.
  if (rawTarget !== null && rawTarget !== originalTarget) key += `\n=${rawTarget}`;
  key += forwarded;
  const root = variables.get('root');
  if (root !== undefined) key += `\n/${root}`;
  const error = errorStatus(exchange);
  if (error !== 0) key += `\n!${error}`;
  if (!exchange.preset.isEmpty) key += `\n#${presetNames(exchange.preset)}`;
  if (!identity.isUnknown) key += `\n@${identity.key}`;
  for (const value of varyOn) key += `\n+${value}`;
  return key;
}

function presetNames(preset: HeaderList): string {
  const names = new Set<string>();
  preset.forEach((name) => {
    names.add(name);
  });
  return [...names].sort().join(',');
}

/**
 * Distinguishes the variants of a response (RFC 9111 §4.1): the values of the fields by which it varies. White
 * space around commas does not matter, nor does the case in {@link CASELESS}. Empty members do: an app may reject
 * `https://example.com,` as an origin.
 */
export function variantKey(names: readonly string[], request: HeaderList): string {
  return names.length === 0 ? '' : names.map((name) => valueOf(name, request)).join('\n');
}

/** The text, or the digest of a long one, so that texts that are remembered take little memory. */
export function shortened(text: string): string {
  return text.length > MAX_TEXT ? hash('sha256', text, 'base64url') : text;
}

function valueOf(name: string, request: HeaderList): string {
  const value = request.combined(name);
  // An absent field differs from an empty one.
  if (value === undefined) return '-';
  const normal = OPAQUE.has(name) ? value : normalized(name, value);
  return `=${shortened(normal)}`;
}

function normalized(name: string, value: string): string {
  if (!PLAIN.test(value)) return value;
  const text = CASELESS.has(name) ? value.toLowerCase() : value;
  const members = text.split(',').map((member) => member.trim());
  // Codings without weights are a set, because servers choose in an order of their own.
  if (name === 'accept-encoding' && !value.includes(';')) members.sort();
  return members.join(',');
}

/**
 * The name by which a topic, a URL or a tag purges stored responses. The scheme of a URL is ignored: behind
 * another proxy, the gateway may receive requests over http for what the app publishes as https.
 */
export function purgeName(text: string): string {
  if (/^\/[/\\]/.test(text)) return withCanonicalEscapes(text);
  if (text.startsWith('/')) return withCanonicalEscapes(escapedAsInUrls(text));
  if (!/^https?:/i.test(text)) return text;
  const url = parseUrl(text);
  return url === null ? text : purgeNameOf(url);
}

/** A relative URL, as the URL of a page has it. */
function escapedAsInUrls(relative: string): string {
  const url = parseUrl(relative, 'http://any');
  return url === null ? relative : url.pathname + url.search + url.hash;
}

/** The same for a parsed URL. */
export function purgeNameOf({ host, pathname, search }: URL): string {
  return withCanonicalEscapes(`//${host}${pathname}${search}`);
}

/** `%c3` and `%C3`, `%7E` and `~` name the same page (RFC 3986 §6.2.2). */
function withCanonicalEscapes(text: string): string {
  return text.replaceAll(/%([0-9a-f]{2})/gi, (escape, digits: string) => {
    const character = String.fromCharCode(Number.parseInt(digits, 16));
    return /[\w.~-]/.test(character) ? character : escape.toUpperCase();
  });
}

/**
 * The names of what is no longer current after a request has changed something (RFC 9111 §4.4): its URL, and
 * those of `Location` and `Content-Location` on the same host. Empty if it has changed nothing.
 */
export function changedNames(exchange: Exchange, head: ResponseHead): readonly string[] {
  if (isSafeMethod(exchange.method)) return [];
  const { headers } = head;
  const status = outcomeStatus(exchange, head);
  if (status < 200 || status >= 400) return [];
  const asked = requestUrl(exchange);
  if (asked === null) return [];
  const others = ['location', 'content-location'].map((name) =>
    parseUrl(fieldText(headers.get(name) ?? ''), asked.href),
  );
  const urls = [asked, ...others].filter((url) => url !== null && url.host === asked.host);
  return urls.flatMap((url) => (url === null ? [] : [purgeNameOf(url)]));
}
