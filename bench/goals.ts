import type { BenchContext } from './context.ts';
import { cores, downloads, garbage, idle, proxied, twoMinutes } from './goals-proxy.ts';
import { deliveries, idleSubscribers, openings, publishes } from './goals-hub.ts';
import { replayBesideLive } from './hub-work.ts';
import { start } from './start-work.ts';

/**
 * `goals`: every row of the goals of docs/performance.md in one run, medians of `--rounds` rounds in which the
 * programs take turns, each beside what Node alone needs for it. `--parts` takes some of the parts by their names.
 */
export async function goals(context: BenchContext): Promise<void> {
  const proxy = { idle, proxied, twoMinutes, garbage, cores, downloads };
  const hub = { idleSubscribers, openings, deliveries, publishes, replayBesideLive };
  const parts = { ...proxy, ...hub, start };
  for (const [name, part] of Object.entries(parts)) {
    if (context.parts.length > 0 && !context.parts.includes(name)) continue;
    const began = performance.now();
    await part(context);
    console.error(`  (${name} took ${Math.round((performance.now() - began) / 1000)} s)`);
  }
}
