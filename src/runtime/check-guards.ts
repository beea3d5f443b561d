import type { HubConfig } from '../config/config.ts';
import type { RouteConfig } from '../config/routes.ts';
import type { Report } from '../config/problem.ts';
import { hubPath } from './hub-place.ts';

/**
 * Whether a `forward_auth` for every request stands before the hub. The hub has tokens of its own:
 * a publisher with a good one, and a browser whose session the service no longer knows, would be
 * turned away before the hub has seen it.
 *
 * @param name that of a further hub of the site; null for the first
 */
export function checkGuards(
  hub: HubConfig,
  name: string | null,
  routes: readonly RouteConfig[],
  report: Report,
): void {
  const before = guardsBeforeHub(routes, name);
  if (before === null) return;
  const path = hubPath(hub);
  for (const guard of before) {
    report(guard, {
      severity: 'warning',
      code: 'guarded-hub',
      message: `this forward_auth has no matcher, so it guards the hub at ${path} as well: who has a token and no session is refused`,
      hint:
        `write @app not path ${path} ${path}/* /.well-known/oauth-protected-resource${path}, and ` +
        'forward_auth @app …',
    });
  }
}

/** Those that every request to the hub passes; null where the hub is not among these routes. */
function guardsBeforeHub(
  routes: readonly RouteConfig[],
  name: string | null,
): readonly object[] | null {
  const guards: object[] = [];
  for (const { matcher, handler } of routes) {
    if (handler.kind === 'hub' && handler.name === name) return guards;
    if (handler.kind === 'forward_auth' && matcher === null) guards.push(handler);
    if (handler.kind !== 'handle' && handler.kind !== 'route') continue;
    const inside = guardsBeforeHub(handler.routes, name);
    if (inside !== null) return [...guards, ...inside];
  }
  return null;
}
