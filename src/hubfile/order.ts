import type { RequestMatcher, RouteConfig } from '../config/routes.ts';
import type { Cursor } from './cursor.ts';
import { oneOf } from './values.ts';
import type { DirectivePlaces, DirectiveTable } from './directive-table.ts';

/** The result of one directive in a block. */
export interface OrderedStep {
  readonly directive: string;
  readonly routes: readonly RouteConfig[];
}

/** `order <directive> first|last|before|after [<directive>]` of the global options. */
export function reordered(
  cursor: Cursor,
  places: DirectivePlaces,
  table: DirectiveTable,
): DirectivePlaces {
  const moved = directiveName(cursor, table, 'a directive');
  const position = oneOf(cursor, ['first', 'last', 'before', 'after']);
  const others = places
    .map((place) => place.filter((name) => name !== moved))
    .filter((place) => place.length > 0);
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
  const near = table.nearest(word.text);
  const hint =
    near === undefined
      ? 'hubgate does not have this directive: remove the line'
      : `did you mean \`${near}\`?`;
  const message = `expected a directive of hubgate, not ${cursor.quote(word)}`;
  return cursor.fail(word.span, 'unknown-directive', message, hint);
}

/**
 * Brings the directives of a block into the order in which they run: by directive, then the longer
 * single path first, an exact path before the same as a prefix, and without matcher last. Some, such
 * as `vars`, are the other way round, so that the most specific one has the last word.
 */
export function inDocumentedOrder(
  steps: readonly OrderedStep[],
  places: DirectivePlaces,
  table: DirectiveTable,
): RouteConfig[] {
  const positions = new Map(
    places.flatMap((names, index) => names.map((name) => [name, index] as const)),
  );
  const groups = new Map<number, OrderedStep[]>();
  for (const step of steps) {
    const position = positions.get(step.directive) ?? 0;
    const group = groups.get(position);
    if (group === undefined) groups.set(position, [step]);
    else group.push(step);
  }
  return [...groups.keys()]
    .sort((a, b) => a - b)
    .flatMap((position) => sorted(groups.get(position) ?? [], table))
    .flatMap((step) => step.routes);
}

function sorted(steps: readonly OrderedStep[], table: DirectiveTable): OrderedStep[] {
  const isLast = table.find(steps[0]?.directive ?? '')?.specificLast === true;
  return isLast ? bySpecificity(steps).reverse() : bySpecificity(steps);
}

/** Paths are compared only with paths; other matchers keep their positions among them. */
function bySpecificity(steps: readonly OrderedStep[]): OrderedStep[] {
  const matched = steps.filter((step) => matcherOf(step) !== null);
  const unmatched = steps.filter((step) => matcherOf(step) === null);
  const paths = matched.filter((step) => pathOf(step) !== null).sort(longerPathFirst);
  let next = 0;
  const ordered = matched.map((step) => (pathOf(step) === null ? step : (paths[next++] ?? step)));
  return [...ordered, ...unmatched];
}

function longerPathFirst(a: OrderedStep, b: OrderedStep): number {
  const [left, right] = [pathOf(a) ?? '', pathOf(b) ?? ''];
  const [leftBare, rightBare] = [left.replace(/\*$/, ''), right.replace(/\*$/, '')];
  if (leftBare === rightBare) return left.length - right.length;
  const longer = rightBare.length - leftBare.length;
  // So that the same paths are neighbours.
  return longer === 0 && leftBare !== rightBare ? (leftBare < rightBare ? -1 : 1) : longer;
}

function matcherOf(step: OrderedStep): RequestMatcher | null {
  return step.routes[0]?.matcher ?? null;
}

function pathOf(step: OrderedStep): string | null {
  const matcher = matcherOf(step);
  const [condition] = matcher ?? [];
  if (matcher?.length !== 1 || condition?.kind !== 'path') return null;
  return condition.paths.length === 1 ? (condition.paths[0] ?? null) : null;
}
