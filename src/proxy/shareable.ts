import type { HeaderList } from '../http/header-list.ts';
import { hash } from 'node:crypto';
import { isIP } from 'node:net';
import type { Exchange } from '../http/exchange.ts';

/**
 * Heuristically cacheable (RFC 9110 §15.1), with content that pages show; and 304, which answers
 * only requests with the same conditions.
 */
const STATUSES = new Set([200, 203, 304, 404, 410]);

/**
 * Whether a shared cache may hand an answer to others without asking again (RFC 9111 §3, §4.2). To
 * those with cookies only where the app says so: few say `Vary: Cookie` that should.
 *
 * @param request the fields of the request, as the upstream has seen them
 */
export function isShareable(
  { status, headers }: { readonly status: number; readonly headers: HeaderList },
  request: HeaderList,
  nowMs: number,
): boolean {
  if (!STATUSES.has(status) || headers.has('set-cookie')) return false;
  const directives = directivesOf(headers);
  for (const name of ['private', 'no-store', 'no-cache']) if (directives.has(name)) return false;
  if (listOf(headers.combined('vary')).includes('*')) return false;
  const lifetime = directives.get('s-maxage') ?? directives.get('max-age');
  if (lifetime !== undefined && !(Number(lifetime) > 0)) return false;
  const expires = headers.get('expires');
  if (lifetime === undefined && expires !== undefined && !(Date.parse(expires) > nowMs))
    return false;
  return !request.has('cookie') || directives.has('public') || directives.has('s-maxage');
}

/**
 * Whether an answer is one to this request as well (RFC 9111 §4.1).
 *
 * @param answered the fields of the request that was answered, as the upstream has seen them
 */
export function fits(headers: HeaderList, answered: HeaderList, asked: HeaderList): boolean {
  return listOf(headers.combined('vary')).every((name) => {
    return answered.combined(name) === asked.combined(name);
  });
}

function directivesOf(headers: HeaderList): Map<string, string> {
  return new Map(
    listOf(headers.combined('cache-control')).map((directive) => {
      const [name = '', value = ''] = directive.split('=', 2);
      return [name.trim(), value.trim().replace(/^"|"$/g, '')];
    }),
  );
}

function listOf(value: string | undefined): string[] {
  const members = (value ?? '').split(',').map((member) => member.trim().toLowerCase());
  return members.filter((member) => member !== '');
}

/** What an upstream is asked, as far as it can tell requests apart by it. */
export interface UpstreamQuestion {
  readonly method: string;
  readonly target: string;
  /** As they reach the upstream. */
  readonly headers: HeaderList;
  /** Of FastCGI, beside the fields; else none. */
  readonly parameters: ReadonlyMap<string, string>;
}

/** Of FastCGI: the address that `X-Forwarded-For` has over HTTP. */
const ADDRESS_PARAMETERS = new Set(['REMOTE_ADDR', 'REMOTE_HOST', 'REMOTE_PORT']);

/**
 * The key of all requests that an upstream cannot tell apart: everything that it sees, so that
 * nobody can have an answer made for others by a field that the app forgot in `Vary`, and the
 * identity that the gateway has established. Left out are only
 *
 * - the value of `Cookie`: an answer is given to requests with other cookies only where the app
 *   itself calls it `public`, and does not vary by them;
 * - the client's address, where it is nothing but addresses: every client has another one;
 * - `traceparent`, where the gateway itself has written it.
 *
 * null for a request whose answer is nobody else's: with a body, with `Authorization` (RFC 9111
 * §3.5), for a part of the content, for another protocol.
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
