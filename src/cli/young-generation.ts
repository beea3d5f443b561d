// V8 lets the young generation grow to 128 MB on Node 24, and to 32 MB on Node 20 and 22. More than 32 MB saves a
// gateway no CPU that can be measured, and keeps 85 MB resident (docs/performance.md). `--max-semi-space-size`
// has no effect once V8 runs, but the factor by which it grows has.

import { PerformanceObserver } from 'node:perf_hooks';
import { getHeapSpaceStatistics, setFlagsFromString } from 'node:v8';
import { nodeOptionsMention } from './loading-phase.ts';

/** Largest size in bytes to which a half of the young generation of V8 may double. */
export const MAX_SEMI_SPACE_BYTES = 16 * 1024 * 1024;
/** V8's own factor, and the one with which a generation stays as it is. */
const GROWS = 2;
const STAYS = 1;

/**
 * Keeps the young generation small from now on, unless the options of Node say how large it may be. Looks after
 * each collection, because V8 also shrinks it when a process is idle.
 */
export function limitYoungGeneration(): void {
  if (nodeOptionsMention(/semi[-_]space/)) return;
  let current = GROWS;
  const observer = new PerformanceObserver(() => {
    const wanted = 2 * semiSpaceBytes() <= MAX_SEMI_SPACE_BYTES ? GROWS : STAYS;
    if (wanted === current) return;
    current = wanted;
    setFlagsFromString(`--semi-space-growth-factor=${wanted}`);
  });
  observer.observe({ entryTypes: ['gc'] });
}

/**
 * The size of one half. Node 26 takes its memory later, piece by piece, so what it may hold counts; elsewhere
 * some of that is lost between objects.
 */
function semiSpaceBytes(): number {
  const space = getHeapSpaceStatistics().find(({ space_name: name }) => name === 'new_space');
  if (space === undefined) return 0;
  return Math.max(space.space_size / 2, space.space_used_size + space.space_available_size);
}
