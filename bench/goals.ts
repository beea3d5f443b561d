import type { BenchContext } from './context.ts';
import { cores, garbage, idle, proxied, twoMinutes } from './goals-proxy.ts';
import { idleSubscribers, openings } from './goals-hub.ts';
import { replayBesideLive } from './hub-work.ts';

/**
 * `goals`: every row of the goals of docs/performance.md in one run, medians of `--rounds` rounds in which the
 * programs take turns, each beside what Node alone needs for it.
 */
export async function goals(context: BenchContext): Promise<void> {
  const parts = { idle, proxied, twoMinutes, garbage, cores, idleSubscribers, openings };
  for (const [name, part] of Object.entries({ ...parts, replayBesideLive })) {
    const began = performance.now();
    await part(context);
    console.error(`  (${name} took ${Math.round((performance.now() - began) / 1000)} s)`);
  }
}
