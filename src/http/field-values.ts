import type { Exchange } from './exchange.ts';
import { HeaderList } from './header-list.ts';

/**
 * The value of the first cookie with that name in a request (RFC 6265 §4.2.1) that `accepts` returns true
 * for; undefined if there is none. There is no space around the `=`, and quotes around a value are not part
 * of it (§4.1.1).
 */
export function cookieValue(
  headers: HeaderList,
  name: string,
  accepts: (value: string) => boolean = () => true,
): string | undefined {
  for (const field of headers.getAll('cookie')) {
    for (const pair of field.split(';')) {
      const equals = pair.indexOf('=');
      if (equals === -1 || pair.slice(0, equals).trimStart() !== name) continue;
      const written = pair.slice(equals + 1).trimEnd();
      if (/^\s/.test(written)) continue;
      const value = /^".*"$/s.test(written) && written.length > 1 ? written.slice(1, -1) : written;
      if (accepts(value)) return value;
    }
  }
  return undefined;
}

/** Whether a response has a field with one of these names, or announces one for its trailers. */
export function hasField(headers: HeaderList, names: readonly string[]): boolean {
  const announced = headers
    .combined('trailer')
    ?.toLowerCase()
    .split(/[\s,]+/);
  return names.some(
    (name) => headers.has(name) || announced?.includes(name.toLowerCase()) === true,
  );
}

/** The members of a list without quoted strings (RFC 9110 §5.6.1), trimmed and without empty ones. */
export function listMembers(value: string | undefined): string[] {
  if (value === undefined) return [];
  return value
    .split(',')
    .map((member) => member.trim())
    .filter((member) => member !== '');
}

/**
 * Whether a list of tokens contains this one (RFC 9110 §5.6.1), whatever its case.
 *
 * @param token in lower case
 */
export function listsToken(list: string | undefined, token: string): boolean {
  if (list === undefined) return false;
  const lower = list.toLowerCase();
  if (!lower.includes(',')) return lower.trim() === token;
  return lower.split(',').some((one) => one.trim() === token);
}

/** A quoted-string (RFC 9110 §5.6.4). Characters beyond ASCII are left to the encoding of the field. */
export function quotedString(text: string): string {
  return `"${text.replace(/["\\]/g, '\\$&')}"`;
}

/** Fields that concern one connection only, in all messages. */
export const CONNECTION_FIELDS = [
  'connection',
  'keep-alive',
  'proxy-connection',
  'transfer-encoding',
  'upgrade',
];

/** All fields that a proxy does not forward (RFC 9110 §7.6.1). */
export const HOP_BY_HOP: ReadonlySet<string> = new Set([
  ...CONNECTION_FIELDS,
  'http2-settings',
  'proxy-authenticate',
  'proxy-authorization',
  'te',
]);

/**
 * Fields that frame, route or upgrade the message, which `Connection` cannot nominate. Those that concern
 * only one connection are never forwarded anyway. Nor can it nominate what a proxy says about the client: many proxies
 * pass on the `Connection` of the client.
 */
const KEPT = new Set([
  'connection',
  'content-length',
  'expect',
  'forwarded',
  'host',
  'te',
  'trailer',
  'transfer-encoding',
  'upgrade',
]);

/**
 * Removes the fields that `Connection` nominates (RFC 9110 §7.6.1). For a request, this happens before any
 * handler runs, so that a client cannot remove fields that the gateway adds.
 */
export function dropNominated(headers: HeaderList): void {
  const value = headers.combined('connection');
  // That of nearly every message.
  if (value === undefined || value === 'keep-alive' || value === 'close') return;
  const nominated = new Set<string>();
  for (const name of value.split(',')) nominated.add(name.trim().toLowerCase());
  nominated.delete('close');
  nominated.delete('keep-alive');
  headers.deleteWhere(
    (key) => nominated.has(key) && !KEPT.has(key) && !key.startsWith('x-forwarded-'),
  );
}

/** Whether the client waits for 100 before it sends its body (RFC 9110 §10.1.1). */
export function expectsContinue(exchange: Exchange): boolean {
  return exchange.headers.get('expect')?.toLowerCase() === '100-continue';
}

/** Sends 100 to a client that waits for it. Called before the first read. */
export function wantBody(exchange: Exchange): void {
  if (exchange.hasBody && expectsContinue(exchange)) exchange.inform(100, new HeaderList());
}

const SAFE_METHODS = new Set(['GET', 'HEAD', 'OPTIONS', 'TRACE', 'QUERY', 'PROPFIND', 'REPORT']);

/** Whether a method changes nothing (RFC 9110 §9.2.1, RFC 4918, RFC 3253, RFC 10008). */
export function isSafeMethod(method: string): boolean {
  return SAFE_METHODS.has(method);
}

/** `rel="self"` for the target of a request; null for a target that is not a path. */
export function selfLink(target: string): string | null {
  return target.startsWith('/') ? `<${selfReference(target)}>; rel="self"` : null;
}

/** The target of a request as a reference in a `Link`; it names the same host. */
export function selfReference(target: string): string {
  // Clients can send anything. A character that ends the reference could begin another link, and two slashes
  // at the beginning would name another host (RFC 3986 §4.2).
  const safe = target.replace(/[^\w\-.~!$&'()*+,;=:@/?%]/g, percentEncoded);
  return safe.startsWith('//') ? `/.${safe}` : safe;
}

function percentEncoded(byte: string): string {
  return `%${byte.charCodeAt(0).toString(16).toUpperCase().padStart(2, '0')}`;
}

/**
 * A name or address with an optional port. Narrower than RFC 3986: no `,` or `%` in a name, and no empty label, so that
 * neither a host nor a label of it is `..` as a name of a directory.
 */
const HOST =
  /^(?:\[[0-9A-Fa-f:]{2,45}(?:\.\d{1,3}){0,3}\]|(?!\.|[^:]*\.\.)[A-Za-z0-9._~-]{1,255})(?::\d{0,5})?$/;

/** Whether a text is a value of `Host`. */
export function isHost(text: string): boolean {
  return HOST.test(text);
}
