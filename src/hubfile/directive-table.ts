import type { BindAddress } from '../config/config.ts';
import { didYouMean } from '../config/problem.ts';
import type {
  ConditionData,
  ConfigRegistry,
  HandlerConfig,
  HandlerData,
  MatchCondition,
  RequestMatcher,
  RouteConfig,
} from '../config/routes.ts';
import type { ConditionSyntax, DirectiveSyntax } from './scope.ts';
import { unsupportedDirectives } from './unsupported.ts';
import type { Cursor } from './cursor.ts';
import { oneOf } from './values.ts';

/** The parts of the registry of directives and matchers that the reader of a Hubfile needs. */
export interface SyntaxRegistry extends ConfigRegistry {
  readonly directives: Readonly<
    Record<string, { readonly syntax: DirectiveSyntax; readonly data?: HandlerData<HandlerConfig> }>
  >;
  readonly matchers: Readonly<
    Record<
      string,
      {
        readonly syntax: ConditionSyntax<MatchCondition>;
        readonly data: ConditionData<MatchCondition>;
      }
    >
  >;
}

/** Directives in the order of execution; names with the same position are grouped. */
export type DirectivePlaces = readonly (readonly string[])[];

/** What the options say of how sites are read; it is in the sites then, not in the configuration. */
export interface SiteDefaults {
  /** In which order directives run. */
  readonly places: DirectivePlaces;
  /** Where a site listens that has no `bind`. */
  readonly bind: readonly BindAddress[];
}

/** The directives of a Hubfile, by name and in the order of execution. */
export class DirectiveTable {
  readonly registry: SyntaxRegistry;
  /** The order of directives, unless the global option `order` changes it. */
  readonly places: DirectivePlaces;
  readonly #syntaxes: ReadonlyMap<string, DirectiveSyntax>;
  readonly #oldNames: ReadonlyMap<string, string>;

  constructor(registry: SyntaxRegistry) {
    const syntaxes = Object.entries(registry.directives).map(
      ([name, { syntax }]) => [name, syntax] as const,
    );
    this.registry = registry;
    this.places = directiveOrder(Object.fromEntries(syntaxes));
    this.#syntaxes = new Map(syntaxes);
    this.#oldNames = new Map(
      syntaxes.flatMap(([name, { oldNames = [] }]) => oldNames.map((old) => [old, name] as const)),
    );
  }

  /** The present name of a directive. */
  currentName(name: string): string {
    return this.#oldNames.get(name) ?? name;
  }

  /** The directive with this present or old name. */
  find(name: string): DirectiveSyntax | undefined {
    return this.#syntaxes.get(name);
  }

  /** Whether this is the present or an old name of a directive, or one of Caddy's that is not supported. */
  isDirective(name: string): boolean {
    return this.#syntaxes.has(this.currentName(name)) || Object.hasOwn(unsupportedDirectives, name);
  }

  /** The hint that names the directive closest to an unknown word; undefined if none is close. */
  didYouMean(word: string): string | undefined {
    return didYouMean(word, [...this.#syntaxes.keys()]);
  }
}

/**
 * The order in which directives run, whatever their order in the file. First come those that describe the
 * site and add no step; the others follow Caddy's order. The list includes directives that hubgate does not
 * have, so that a new one has its position. A directive that Caddy does not have declares after which one it
 * runs.
 */
const RUNNING_ORDER: readonly string[] = [
  'bind',
  'tls',
  'log',
  'discovery',
  'handle_errors',

  'tracing',
  'map',
  'vars',
  'root',
  'log_append',
  'log_skip',
  'log_name',
  'header',
  'copy_response_headers',
  'request_body',
  'redir',
  'method',
  'rewrite',
  'uri',
  'try_files',
  'basic_auth',
  'forward_auth',
  'request_header',
  'encode',
  'push',
  'intercept',
  'templates',
  'invoke',
  'handle',
  'route',
  'abort',
  'error',
  'copy_response',
  'respond',
  'metrics',
  'reverse_proxy',
  'php_fastcgi',
  'file_server',
  'acme_server',
];

/** The directives of a table in the order of execution; those with the same position are grouped. */
export function directiveOrder(
  directives: Readonly<Record<string, DirectiveSyntax>>,
): DirectivePlaces {
  const places = RUNNING_ORDER.map((name) => [name]);
  let waiting = Object.entries(directives).filter(([name]) => !RUNNING_ORDER.includes(name));
  // A directive may run after another one that has no position in Caddy's order either.
  for (let left = -1; waiting.length !== left; ) {
    left = waiting.length;
    waiting = waiting.filter(([name, { after, besides }]) => {
      const at = places.findIndex((place) => place.includes(besides ?? after ?? ''));
      if (at === -1) return true;
      if (besides === undefined) places.splice(at + 1, 0, [name]);
      else places[at]?.push(name);
      return false;
    });
  }
  return places
    .map((place) => place.filter((name) => Object.hasOwn(directives, name)))
    .filter((place) => place.length > 0);
}

/** The result of one directive in a block. */
export interface OrderedStep {
  readonly directive: string;
  readonly routes: readonly RouteConfig[];
}

/**
 * `order <directive> first|last|before|after [<directive>]` of the global options. As in Caddy, a directive that runs
 * beside another one keeps a place of its own, which only serves to place others before or after it.
 */
export function reordered(
  cursor: Cursor,
  places: DirectivePlaces,
  table: DirectiveTable,
): DirectivePlaces {
  const moved = directiveName(cursor, table, 'a directive');
  const position = oneOf(cursor, ['first', 'last', 'before', 'after']);
  const others = places
    .flat()
    .filter((name) => name !== moved)
    .map((name) => [name]);
  if (position === 'first') return [[moved], ...others];
  if (position === 'last') return [...others, [moved]];
  const word = cursor.peek();
  const anchor = directiveName(cursor, table, 'the other directive');
  const at = others.findIndex((place) => place.includes(anchor));
  if (at === -1) {
    const span = word?.span ?? cursor.span;
    cursor.fail(span, 'bad-value', 'a directive cannot be placed relative to itself');
  }
  return others.toSpliced(position === 'before' ? at : at + 1, 0, [moved]);
}

function directiveName(cursor: Cursor, table: DirectiveTable, expected: string): string {
  const word = cursor.argument(expected);
  const name = table.currentName(word.text);
  if (table.find(name) !== undefined) return name;
  const hint =
    table.didYouMean(word.text) ?? 'hubgate does not have this directive: remove the line';
  const message = `expected a directive of hubgate, not ${cursor.quote(word)}`;
  return cursor.fail(word.span, 'unknown-directive', message, hint);
}

/**
 * Brings the directives of a block into the order in which they run: by directive, then the longer single path
 * first, an exact path before the same as a prefix, and without matcher last. Some, such as `vars`, are the other way
 * round, so that the most specific one has the last word.
 *
 * Other matchers are neither before nor after a path, so the result depends on how a list is sorted: `/a*`, `@named`,
 * `/a/b*` stay as they are. It is the same as Caddy's, which sorts with Go's `sort.SliceStable`.
 */
export function inDocumentedOrder(
  steps: readonly OrderedStep[],
  places: DirectivePlaces,
  table: DirectiveTable,
): RouteConfig[] {
  const positions = new Map(
    places.flatMap((names, index) => names.map((name) => [name, index] as const)),
  );
  const ranked = steps
    .filter(({ routes }) => routes.length > 0)
    .map((step): RankedStep => {
      const path = pathOf(step);
      return {
        step,
        position: positions.get(table.find(step.directive)?.besides ?? step.directive) ?? 0,
        isSpecificLast: table.find(step.directive)?.specificLast === true,
        hasMatcher: matcherOf(step) !== null,
        path,
        bare: path?.replace(/\*$/, '') ?? '',
      };
    });
  return stableSorted(ranked, runsBefore).flatMap(({ step }) => step.routes);
}

/** A step with what decides about its place. */
interface RankedStep {
  readonly step: OrderedStep;
  readonly position: number;
  readonly isSpecificLast: boolean;
  readonly hasMatcher: boolean;
  /** Its single path, and that without a star at its end. */
  readonly path: string | null;
  readonly bare: string;
}

function runsBefore(a: RankedStep, b: RankedStep): boolean {
  if (a.position !== b.position) return a.position < b.position;
  return isMoreSpecific(a, b) !== a.isSpecificLast;
}

function isMoreSpecific(a: RankedStep, b: RankedStep): boolean {
  if (a.path === null || b.path === null) return a.hasMatcher && !b.hasMatcher;
  if (a.bare === b.bare) return a.path.length < b.path.length;
  // Equally long ones alphabetically, so that the same paths are neighbours.
  return a.bare.length === b.bare.length ? a.bare < b.bare : a.bare.length > b.bare.length;
}

/** Elements that Go sorts by insertion before it merges them. */
const INSERTED = 20;

/** A stable sort with the steps of Go's: insertion, then SymMerge (Kim and Kutzner, 2004). */
function stableSorted<T>(given: readonly T[], less: (a: T, b: T) => boolean): T[] {
  const list = [...given];
  const isLess = (i: number, j: number): boolean => less(list[i] as T, list[j] as T);
  /** Exchanges two neighbouring ranges. Only what lies between their ends is moved. */
  const exchange = (start: number, middle: number, end: number): void => {
    const left = list.slice(start, middle);
    list.copyWithin(start, middle, end);
    for (const [i, element] of left.entries()) list[end - left.length + i] = element;
  };
  /** The first index from which on `isBefore` does not hold. */
  const search = (from: number, end: number, isBefore: (index: number) => boolean): number => {
    let [low, high] = [from, end];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (isBefore(middle)) low = middle + 1;
      else high = middle;
    }
    return low;
  };
  const insert = (start: number, end: number): void => {
    for (let i = start + 1; i < end; i += 1) {
      let to = i;
      while (to > start && isLess(i, to - 1)) to -= 1;
      exchange(to, i, i + 1);
    }
  };
  const merge = (start: number, middle: number, end: number): void => {
    if (middle - start === 1) {
      exchange(
        start,
        middle,
        search(middle, end, (i) => isLess(i, start)),
      );
      return;
    }
    if (end - middle === 1) {
      const to = search(start, middle, (i) => !isLess(middle, i));
      exchange(to, middle, end);
      return;
    }
    const half = (start + end) >> 1;
    const sum = half + middle;
    const [low, high] = middle > half ? [sum - end, half] : [start, middle];
    const from = search(low, high, (i) => !isLess(sum - 1 - i, i));
    const to = sum - from;
    if (from < middle && middle < to) exchange(from, middle, to);
    if (start < from && from < half) merge(start, from, half);
    if (half < to && to < end) merge(half, to, end);
  };
  for (let at = 0; at < list.length; at += INSERTED) {
    insert(at, Math.min(at + INSERTED, list.length));
  }
  for (let size = INSERTED; size < list.length; size *= 2) {
    for (let at = 0; at + size < list.length; at += 2 * size) {
      merge(at, at + size, Math.min(at + 2 * size, list.length));
    }
  }
  return list;
}

function matcherOf(step: OrderedStep): RequestMatcher | null {
  return step.routes[0]?.matcher ?? null;
}

/** The path that a matcher requires, whatever else it does; null if it allows several. */
function pathOf(step: OrderedStep): string | null {
  const paths = (matcherOf(step) ?? []).flatMap((one) => (one.kind === 'path' ? one.paths : []));
  return paths.length === 1 ? (paths[0] ?? null) : null;
}
