import { registry } from '../directives/registry.ts';
import { matchersOf } from '../config/sites.ts';
import type { SiteConfig } from '../config/config.ts';
import type { Report } from '../config/problem.ts';
import { dataOf, everyCondition, everyRoute } from '../config/routes.ts';
import { compilePattern } from '../http/linear-regexp.ts';
import { HubgateError } from '../kernel/error.ts';

/** Whether every regular expression of a site is one of RE2. */
export function checkPatterns(site: SiteConfig, report: Report): void {
  const routes = everyRoute([...site.routes, ...site.errorRoutes], registry);
  const matchers = [
    ...routes.map(({ matcher }) => matcher),
    ...(site.discovery === null ? [] : matchersOf(site.discovery)),
  ];
  // A named matcher is one object wherever it is used.
  const parts = new Set<object>([
    ...matchers.flatMap((matcher) => everyCondition(matcher, registry)),
    ...routes.flatMap(({ handler }) => dataOf(handler, registry).patterns?.(handler) ?? []),
  ]);
  for (const part of parts) checkPattern(part, report);
}

function checkPattern(part: object, report: Report): void {
  if (!('pattern' in part) || typeof part.pattern !== 'string') return;
  try {
    compilePattern(part.pattern);
  } catch (thrown) {
    if (!(thrown instanceof HubgateError)) throw thrown;
    const { code, message } = thrown;
    const hint = 'patterns are in RE2 syntax: without lookaround and backreferences';
    report(part, { severity: 'error', code, message, hint }, { field: 'pattern' });
  }
}
