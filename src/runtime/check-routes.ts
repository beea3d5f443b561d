import { registry } from '../directives/registry.ts';
import { resolve } from 'node:path';
import type { Machine } from '../config/check.ts';
import type { SiteConfig } from '../config/config.ts';
import { dataOf, everyRoute, type HandlerConfig, type RouteConfig } from '../config/routes.ts';
import type { Report } from '../config/problem.ts';

/** Handlers that answer every request that reaches them. */
const ANSWERING: readonly HandlerConfig['kind'][] = [
  'reverse_proxy',
  'file_server',
  'respond',
  'error',
  'abort',
  'redir',
];

/** Whether the routes of a site do what they look like: nothing here keeps a gateway from starting. */
export function checkRoutes(
  { routes, errorRoutes }: SiteConfig,
  machine: Machine | undefined,
  report: Report,
): void {
  for (const list of [routes, errorRoutes]) checkReach(list, report);
  if (machine === undefined) return;
  for (const { handler } of everyRoute([...routes, ...errorRoutes], registry)) {
    if (handler.kind === 'root') checkRoot(handler, machine, report);
    if (handler.kind === 'encode') checkCodings(handler, machine, report);
  }
}

/** A route behind one that answers everything never runs. */
function checkReach(routes: readonly RouteConfig[], report: Report): void {
  const last = routes.findIndex(({ matcher, handler }) => matcher === null && answers(handler));
  const first = routes[last]?.handler.kind;
  const behind = routes.slice(last + 1).find(({ handler }) => ANSWERING.includes(handler.kind));
  if (first !== undefined && behind !== undefined) {
    const { handler } = behind;
    report(handler, {
      severity: 'warning',
      code: 'unreachable-route',
      message: `this ${handler.kind} never runs: the ${first} before it answers every request`,
      hint:
        handler.kind === first && first === 'reverse_proxy'
          ? 'write both upstreams behind one reverse_proxy, or give one of the two a matcher'
          : `give the ${first} a matcher`,
    });
  }
  for (const { handler } of routes)
    checkReach(dataOf(handler, registry).nested?.(handler) ?? [], report);
}

function answers(handler: HandlerConfig): boolean {
  if (handler.kind === 'file_server') return !handler.passThru;
  return ANSWERING.includes(handler.kind);
}

function checkRoot(
  root: Extract<HandlerConfig, { kind: 'root' }>,
  machine: Machine,
  report: Report,
): void {
  if (root.path.includes('{') || machine.exists(resolve(root.path))) return;
  report(root, {
    severity: 'warning',
    code: 'missing-root',
    message: `the directory ${root.path} does not exist`,
    hint: 'every file below it is 404 until it does',
  });
}

function checkCodings(
  encode: Extract<HandlerConfig, { kind: 'encode' }>,
  { hasZstd }: Machine,
  report: Report,
): void {
  if (!encode.encodings.includes('zstd') || hasZstd) return;
  report(encode, {
    severity: 'warning',
    code: 'no-zstd',
    message: `Node ${process.versions.node} has no zstd: this coding is not offered`,
    hint: 'use Node 22.15 or later',
  });
}
