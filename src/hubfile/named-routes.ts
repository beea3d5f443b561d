// A named route is read once and becomes a `route` wherever it is invoked, so neither YAML nor the
// running gateway has named routes.

import { type ConfigRegistry, everyRoute, type RouteConfig } from '../config/routes.ts';
import { placeText, didYouMean } from '../config/problem.ts';
import type { Cursor } from './cursor.ts';
import type { Line, Word } from './parser.ts';
import { placeOf, type Problems } from './place.ts';

/** Most steps of a named route, including those of the routes that it invokes. */
const MAX_STEPS = 10_000;
/** Longest chain of routes that invoke each other. */
const MAX_DEPTH = 100;

interface NamedRoute {
  readonly name: string;
  readonly line: Line;
  /** null before they have been read. */
  routes: readonly RouteConfig[] | null;
  /** Number of routes, including nested ones. */
  steps: number;
}

export type ReadRoutes = (lines: readonly Line[], named: NamedRoutes) => readonly RouteConfig[];

/** The routes `&(name) { … }` of a file, which sites and other named routes can `invoke`. */
export class NamedRoutes {
  readonly #routes = new Map<string, NamedRoute>();
  /** The routes that are being read, each invoked by the previous one. */
  readonly #open: NamedRoute[] = [];
  readonly #read: ReadRoutes;
  readonly #mayLack: boolean;
  readonly #registry: ConfigRegistry;

  constructor(
    lines: readonly Line[],
    {
      mayLack,
      problems,
      registry,
    }: {
      /** Whether a part of the file could not be read: an unknown route may be defined there. */
      readonly mayLack: boolean;
      readonly problems: Problems;
      readonly registry: ConfigRegistry;
    },
    read: ReadRoutes,
  ) {
    this.#registry = registry;
    this.#read = read;
    this.#mayLack = mayLack;
    for (const line of lines) this.#define(line, problems);
    for (const route of this.#routes.values()) this.#routesOf(route);
  }

  /** The steps of the route with this name. */
  find(cursor: Cursor, word: Word): readonly RouteConfig[] {
    const route = this.#routes.get(word.text);
    if (route === undefined) return this.#mayLack ? [] : this.#failUnknown(cursor, word);
    if (this.#open.includes(route)) {
      const chain = this.#open.map(({ name }) => `&(${name})`).join(', ');
      const hint = 'a route must not invoke itself, directly or through others';
      cursor.fail(word.span, 'route-cycle', `this is a cycle: ${chain}`, hint);
    }
    if (this.#open.length > MAX_DEPTH) {
      const message = `more than ${MAX_DEPTH} routes are nested`;
      cursor.fail(word.span, 'too-large', message);
    }
    const routes = this.#routesOf(route);
    if (route.steps <= MAX_STEPS) return routes;
    const message = `the route &(${word.text}) expands to more than ${MAX_STEPS} steps`;
    return cursor.fail(word.span, 'too-large', message);
  }

  #routesOf(route: NamedRoute): readonly RouteConfig[] {
    if (route.routes !== null) return route.routes;
    this.#open.push(route);
    const routes = this.#read(route.line.block ?? [], this);
    this.#open.pop();
    route.routes = routes;
    route.steps = everyRoute(routes, this.#registry).length;
    return routes;
  }

  #define(line: Line, problems: Problems): void {
    const name = namedRoute(line) ?? '';
    const known = this.#routes.get(name);
    if (known !== undefined) {
      const first = placeText(placeOf(known.line.span));
      const message = `the route &(${name}) is defined already, at ${first}`;
      problems.error(line.span, 'duplicate-route', message);
      return;
    }
    if (line.block === null) {
      const hint = 'write { at the end of this line';
      problems.error(line.span, 'expected-block', `the route &(${name}) has no block`, hint);
    }
    this.#routes.set(name, { name, line, routes: null, steps: 0 });
  }

  #failUnknown(cursor: Cursor, word: Word): never {
    const hint =
      didYouMean(word.text, [...this.#routes.keys()]) ??
      `define it outside of the sites: &(${word.text.slice(0, 40)}) { … }`;
    return cursor.fail(word.span, 'unknown-route', `unknown route ${cursor.quote(word)}`, hint);
  }
}

/** The name in `&(name)` at the beginning of a top-level line; null for any other line. */
export function namedRoute({ words: [first, second] }: Line): string | null {
  if (first === undefined || !first.plain || second !== undefined) return null;
  return /^&\(([^()]+)\)$/.exec(first.text)?.[1] ?? null;
}
