import type { Exchange, ResponseHead } from '../http/exchange.ts';
import type { HeaderList } from '../http/header-list.ts';

/** An answer that others may be given too. */
export interface SharedAnswer {
  readonly status: number;
  readonly headers: HeaderList;
  /** The fields of the request that it answers. */
  readonly request: HeaderList;
  readonly body: Buffer;
}

/** Heuristically cacheable (RFC 9110 §15.1), with content that pages show. */
const STATUSES = new Set([200, 203, 404, 410]);

/** What tells clients and connections apart, and by which apps do not choose what to show. */
const OF_THE_CLIENT =
  /^(?:user-agent|sec-ch-.*|dnt|sec-gpc|priority|cookie|cf-.*|forwarded|true-client-ip|via|x-forwarded-for|x-real-ip|x-request-id|traceparent|tracestate)$/;

/** Characters of a key. */
const MAX_KEY = 8192;

/**
 * What equal requests have in common: everything that they say, so that nobody can have a page made
 * for others by a field that the app forgot in `Vary`. null for what is nobody else's.
 */
export function shareKey(
  { scheme, host, originalTarget, headers }: Exchange,
  cause: string,
): string | null {
  if (headers.has('authorization') || headers.has('range')) return null;
  const fields: string[] = [];
  headers.forEach((key, value) => {
    if (!OF_THE_CLIENT.test(key)) fields.push(`${key}:${value}`);
  });
  const who = headers.has('cookie') ? 'cookie' : 'anybody';
  const key = [cause, who, scheme, host, originalTarget, ...fields.sort()].join('\n');
  return key.length > MAX_KEY ? null : key;
}

/**
 * Whether a shared cache may hand an answer to others without asking again (RFC 9111 §3, §4.2). To
 * those with cookies only where the app says so: few say `Vary: Cookie` that should.
 */
export function isShareable(
  { status, headers }: ResponseHead,
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

/** Whether an answer is one to this request as well (RFC 9111 §4.1). */
export function fits({ headers, request }: SharedAnswer, asked: HeaderList): boolean {
  return listOf(headers.combined('vary')).every((name) => {
    return request.combined(name) === asked.combined(name);
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
