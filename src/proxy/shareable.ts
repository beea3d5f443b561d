import type { HeaderList } from '../http/header-list.ts';

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
