import type {
  DiscoveryConfig,
  HandlerConfig,
  HeaderOperation,
  RequestMatcher,
  RouteConfig,
  SiteConfig,
} from '../config/config.ts';
import type { Report } from '../config/problem.ts';
import { dataOf } from '../config/routes.ts';
import { grantTemplates } from '../discovery/grant-template.ts';
import { requestFieldsIn, responseFieldsIn } from '../discovery/token-source.ts';

type Source = NonNullable<DiscoveryConfig['tokenSource']>;

/**
 * Whether every field of the request that names a user in a token was written by the gateway. Who
 * may send `X-User-Id` is whoever he says he is: the field counts only where a `forward_auth` or a
 * `request_header` has replaced it on each request that a token can be had with.
 */
export function checkVouching(site: SiteConfig, discovery: DiscoveryConfig, report: Report): void {
  const { tokenSource: source } = discovery;
  if (source === null) return;
  for (const field of requestFieldsIn(grantTemplates(source))) {
    const asked = { field: field.toLowerCase(), matcher: discovery.matcher };
    if (walk(site.routes, asked) !== 'vouched') report(source, unvouched(field));
  }
  for (const field of responseFieldsIn(grantTemplates(source))) {
    for (const operation of strippedBefore(site.routes, field.toLowerCase())) {
      report(operation, blind(field, source));
    }
  }
}

function unvouched(field: string) {
  return {
    severity: 'error',
    code: 'unvouched-field',
    message: `any client may send ${field} and have a token in the name of somebody else`,
    hint:
      `let forward_auth { … copy_headers ${field} } replace it on the same requests: without a matcher, ` +
      'or with that of discovery; or take the name from what the app answers: ' +
      `{http.response.header.${field}}`,
  } as const;
}

function blind(field: string, { kind }: Source) {
  return {
    severity: 'warning',
    code: 'field-taken-away',
    message: `this takes ${field} away before token ${kind} can read it, so that there is no token`,
    hint: `remove this line: what token ${kind} has read goes no further (unless keep_fields)`,
  } as const;
}

interface Asked {
  /** Lower case. */
  readonly field: string;
  /** The requests that are in question; null for all. */
  readonly matcher: RequestMatcher | null;
}

/**
 * What becomes of the requests in question on their way through some routes: somebody vouches for
 * the field, or somebody answers before, or they come out at the end as they were.
 */
function walk(routes: readonly RouteConfig[], asked: Asked): 'vouched' | 'answered' | 'passed' {
  const branches = new Map<number, ('vouched' | 'answered' | 'passed')[]>();
  for (const { matcher, handler } of routes) {
    const concernsAll = matcher === null || same(matcher, asked.matcher);
    const outcome = step(handler, asked);
    const group = dataOf(handler).group?.(handler);
    if (group !== undefined) {
      const others = branches.get(group) ?? [];
      branches.set(group, [...others, outcome]);
      // Only the first branch that matches runs, so all up to one for every request must agree.
      if (!concernsAll) {
        if (outcome === 'answered') return 'answered';
        continue;
      }
      if ([...others, outcome].every((one) => one === 'vouched')) return 'vouched';
      if (outcome !== 'passed') return 'answered';
    } else if (outcome === 'answered' || (outcome === 'vouched' && concernsAll)) {
      return outcome;
    }
  }
  return 'passed';
}

function step(handler: HandlerConfig, asked: Asked): 'vouched' | 'answered' | 'passed' {
  const data = dataOf(handler);
  if (data.vouchesFor?.(handler, asked.field) === true) return 'vouched';
  // Pages come from these; what the gateway says itself carries no token.
  if (data.answersPages === true) return 'answered';
  return walk(data.nested?.(handler) ?? [], asked);
}

/** Operations on responses that delete a field. They run before discovery sees the head. */
function strippedBefore(routes: readonly RouteConfig[], field: string): HeaderOperation[] {
  return routes.flatMap(({ handler }) => {
    const data = dataOf(handler);
    const operations = data.responseFields?.(handler) ?? [];
    return [
      ...operations.filter((one) => one.kind === 'delete' && one.name.toLowerCase() === field),
      ...strippedBefore(data.nested?.(handler) ?? [], field),
    ];
  });
}

function same(one: RequestMatcher, other: RequestMatcher | null): boolean {
  return JSON.stringify(one) === JSON.stringify(other);
}
