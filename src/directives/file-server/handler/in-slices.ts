import type { Meter } from '../../../kernel/slices.ts';

/** Entries that are sorted in one go. */
const RUN = 500;
/** About what a comparison of two names costs, in steps, and how many of them an entry of a run needs. */
const COMPARISON_STEPS = 15;
const RUN_COMPARISONS = 9;
/** About what the text of an entry costs, in steps. */
const TEXT_STEPS = 300;

/** Sorts as `Array.prototype.sort` does; yields when nothing is left of the meter. */
export function* sorted<T>(
  items: readonly T[],
  compare: (a: T, b: T) => number,
  meter: Meter,
): Generator<void, readonly T[], void> {
  let runs: (readonly T[])[] = [];
  for (let at = 0; at < items.length; at += RUN) {
    if (meter.left <= 0) yield;
    const run = items.slice(at, at + RUN).sort(compare);
    meter.left -= run.length * RUN_COMPARISONS * COMPARISON_STEPS;
    runs.push(run);
  }
  while (runs.length > 1) {
    const merged: (readonly T[])[] = [];
    for (let at = 0; at < runs.length; at += 2) {
      merged.push(yield* merge(runs[at] ?? [], runs[at + 1] ?? [], compare, meter));
    }
    runs = merged;
  }
  return runs[0] ?? [];
}

function* merge<T>(
  some: readonly T[],
  others: readonly T[],
  compare: (a: T, b: T) => number,
  meter: Meter,
): Generator<void, readonly T[], void> {
  const merged: T[] = [];
  let other = 0;
  for (const one of some) {
    for (let next = others[other]; next !== undefined; next = others[other]) {
      if (meter.left <= 0) yield;
      meter.left -= COMPARISON_STEPS;
      if (compare(one, next) <= 0) break;
      merged.push(next);
      other += 1;
    }
    merged.push(one);
  }
  return merged.concat(others.slice(other));
}

/** The texts of all items; yields when nothing is left of the meter. */
export function* texts<T>(
  items: readonly T[],
  textOf: (item: T) => string,
  meter: Meter,
): Generator<void, string[], void> {
  const all: string[] = [];
  for (const item of items) {
    if (meter.left <= 0) yield;
    meter.left -= TEXT_STEPS;
    all.push(textOf(item));
  }
  return all;
}
