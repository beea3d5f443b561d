import { hash } from 'node:crypto';
import { isIP } from 'node:net';
import { expiresAfter, initialAge, maxAgeMs, parseCacheControl } from '../http/cache-control.ts';
import type { Exchange } from '../http/exchange.ts';
import { listMembers } from '../http/field-values.ts';
import type { HeaderList } from '../http/header-list.ts';

/**
 * Heuristically cacheable statuses (RFC 9110 §15.1) with content for pages; and 304, which is only used for
 * requests with the same conditions.
 */
const STATUSES = new Set([200, 203, 304, 404, 410]);

/**
 * Whether a shared cache may use a response for others without validation (RFC 9111 §3, §4.2). For clients
 * with cookies, only if the app permits it, because few apps send the `Vary: Cookie` that they should.
 *
 * @param request the fields of the request, as the upstream has seen them
 */
export function isShareable(
  { status, headers }: { readonly status: number; readonly headers: HeaderList },
  request: HeaderList,
  nowMs: number,
): boolean {
  if (!STATUSES.has(status) || headers.has('set-cookie')) return false;
  const directives = parseCacheControl(headers.combined('cache-control'));
  for (const name of ['private', 'no-store', 'no-cache']) if (directives.has(name)) return false;
  if (listMembers(headers.combined('vary')).includes('*')) return false;
  const lifetimeMs = maxAgeMs(directives) ?? expiresAfter(headers, nowMs);
  if (lifetimeMs !== null && lifetimeMs <= initialAge(headers, nowMs, 0)) return false;
  return !request.has('cookie') || directives.has('public') || directives.has('s-maxage');
}

/**
 * Whether a response is valid for this request as well (RFC 9111 §4.1).
 *
 * @param answered the fields of the request that was answered, as the upstream has seen them
 */
export function fits(headers: HeaderList, answered: HeaderList, asked: HeaderList): boolean {
  return listMembers(headers.combined('vary')?.toLowerCase()).every((name) => {
    return answered.combined(name) === asked.combined(name);
  });
}

/** A request to an upstream, as far as the upstream can distinguish requests by it. */
export interface UpstreamQuestion {
  readonly method: string;
  readonly target: string;
  /** In the form in which they reach the upstream. */
  readonly headers: HeaderList;
  /** For FastCGI, in addition to the fields; otherwise empty. */
  readonly parameters: ReadonlyMap<string, string>;
}

/** For FastCGI: the address that `X-Forwarded-For` contains over HTTP. */
const ADDRESS_PARAMETERS = new Set(['REMOTE_ADDR', 'REMOTE_HOST', 'REMOTE_PORT']);

/**
 * The key of all requests that an upstream cannot distinguish: everything that it sees, and the identity that
 * the gateway has established. So no client can get a response that depends on a field that the app forgot in
 * `Vary`. Only these are left out:
 *
 * - the value of `Cookie`: a response is used for requests with other cookies only if the app itself calls it
 *   `public`, and it does not vary by them;
 * - the client's address, if it consists only of addresses, because it differs for every client;
 * - `traceparent`, if the gateway itself has written it.
 *
 * null for a request whose response cannot be shared: with a body, with `Authorization` (RFC 9111 §3.5), for
 * a part of the content, for another protocol.
 */
export function requestKey(exchange: Exchange, question: UpstreamQuestion): string | null {
  const { method, target, headers, parameters } = question;
  if (method !== 'GET' || exchange.method !== 'GET') return null;
  if (exchange.hasBody || exchange.upgrade !== null) return null;
  if (headers.has('authorization') || headers.has('range')) return null;
  const fields: string[] = [];
  headers.forEach((key, value) => {
    fields.push(isLeftOut(key, value, exchange) ? key : `${key}:${value}`);
  });
  const script = [...parameters].filter(
    ([name]) => !name.startsWith('HTTP_') && !ADDRESS_PARAMETERS.has(name),
  );
  const seen = [method, target, exchange.scheme, exchange.host, fields.sort(), script];
  return hash('sha256', JSON.stringify([...seen, exchange.identity.key]), 'base64url');
}

function isLeftOut(key: string, value: string, exchange: Exchange): boolean {
  switch (key) {
    case 'cookie':
      return true;
    case 'x-forwarded-for':
      return value.split(',').every((entry) => isIP(entry.trim()) !== 0);
    case 'x-real-ip':
      return value === exchange.clientAddress || value === exchange.remoteAddress;
    case 'traceparent':
      return exchange.trace !== null;
    default:
      return false;
  }
}
