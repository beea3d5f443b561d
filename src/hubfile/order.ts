import type { RequestMatcher, RouteConfig } from '../config/config.ts';
import { directives } from '../directives/syntaxes.ts';
import { directiveOrder } from './running-order.ts';

/** What one directive of a block gave. */
export interface OrderedStep {
  readonly directive: string;
  readonly routes: readonly RouteConfig[];
}

const ORDER = directiveOrder(directives);
const POSITIONS = new Map(
  ORDER.map((names, index) => names.map((name) => [name, index] as const)).flat(),
);

/**
 * Brings the directives of a block into the order in which they run: by directive, then the longer
 * single path first, an exact path before the same as a prefix, and without matcher last. Some, such
 * as `root`, are the other way round, so that the most specific one has the last word.
 */
export function inDocumentedOrder(steps: readonly OrderedStep[]): RouteConfig[] {
  const groups = new Map<number, OrderedStep[]>();
  for (const step of steps) {
    const position = POSITIONS.get(step.directive) ?? 0;
    const group = groups.get(position);
    if (group === undefined) groups.set(position, [step]);
    else group.push(step);
  }
  return [...groups.keys()]
    .sort((a, b) => a - b)
    .flatMap((position) => sorted(groups.get(position) ?? []))
    .flatMap((step) => step.routes);
}

function sorted(steps: readonly OrderedStep[]): OrderedStep[] {
  const last = directives[steps[0]?.directive ?? '']?.specificLast;
  if (last === undefined) return bySpecificity(steps);
  return bySpecificity(last === 'first-written' ? steps : [...steps].reverse()).reverse();
}

/** Paths are compared only with paths; other matchers keep their places among them. */
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
  return rightBare.length - leftBare.length;
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
