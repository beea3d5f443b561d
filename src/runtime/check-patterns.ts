import type {
  HandlerConfig,
  HeaderOperation,
  MatchCondition,
  RequestMatcher,
  SiteConfig,
} from '../config/config.ts';
import type { Report } from '../config/problem.ts';
import { everyRoute } from '../config/routes.ts';
import { compilePattern } from '../http/linear-regexp.ts';
import { HubgateError } from '../kernel/error.ts';

/** A part of the configuration that has a regular expression. */
type Patterned = MatchCondition | HeaderOperation;

/** Whether every regular expression of a site is one of RE2. */
export function checkPatterns(site: SiteConfig, report: Report): void {
  const routes = everyRoute([...site.routes, ...site.errorRoutes]);
  const matchers = [...routes.map(({ matcher }) => matcher), site.discovery?.matcher ?? null];
  // A named matcher is one object wherever it is used.
  const parts = new Set<Patterned>([
    ...matchers.flatMap(conditionsOf),
    ...routes.flatMap(({ handler }) => operationsOf(handler)),
  ]);
  for (const part of parts) checkPattern(part, report);
}

function conditionsOf(matcher: RequestMatcher | null): MatchCondition[] {
  return (matcher ?? []).flatMap((condition) =>
    condition.kind === 'not' ? condition.matchers.flatMap(conditionsOf) : [condition],
  );
}

function operationsOf(handler: HandlerConfig): readonly HeaderOperation[] {
  switch (handler.kind) {
    case 'header':
    case 'request_header':
      return handler.operations;
    case 'reverse_proxy':
      return [...handler.headerUp, ...handler.headerDown];
    case 'forward_auth':
      return [...handler.proxy.headerUp, ...handler.proxy.headerDown];
    default:
      return [];
  }
}

function checkPattern(part: Patterned, report: Report): void {
  if (!('pattern' in part)) return;
  try {
    compilePattern(part.pattern);
  } catch (thrown) {
    if (!(thrown instanceof HubgateError)) throw thrown;
    const { code, message } = thrown;
    const hint = 'patterns are in RE2 syntax: without lookaround and backreferences';
    report(part, { severity: 'error', code, message, hint }, { field: 'pattern' });
  }
}
