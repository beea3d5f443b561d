// V8 collects garbage when something allocates. A gateway whose start or load is over keeps what that left: garbage,
// sockets and buffers outside of the heap that the garbage holds, and a young generation of full size. So when
// nothing happens for a while, the whole heap is collected once (docs/performance.md).

import {
  constants,
  type NodeGCPerformanceDetail,
  performance,
  type PerformanceEntry,
  PerformanceObserver,
} from 'node:perf_hooks';
import { getHeapStatistics, setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';

/** How long a process must have been quiet, in milliseconds. */
const QUIET_MS = 5_000;
/** Largest share of that time in which a quiet process runs JavaScript. */
const QUIET_UTILIZATION = 0.005;
/** Shortest time between two collections, in milliseconds. */
const PAUSE_MS = 60_000;
/** Growth in bytes from which on a further collection is worth it. */
const GROWTH_BYTES = 8 * 1024 * 1024;
/** In a larger heap, a collection in one piece takes too long for what it gives back. */
const MAX_USED_BYTES = 64 * 1024 * 1024;

/** What a process has done since it was looked at last. */
export interface Activity {
  /** Share of the time in which the event loop was not waiting. */
  readonly utilization: number;
  /** Time of a clock that never goes back, in milliseconds. */
  readonly now: number;
  readonly totalBytes: number;
  readonly usedBytes: number;
}

/** Decides when the heap is collected. */
export class IdlePolicy {
  #collectedAt = Number.NEGATIVE_INFINITY;
  /** Size of the heap after the last collection. */
  #bytes = 0;

  /** `collect`: now. `wait`: look again after {@link QUIET_MS}. `rest`: look again after V8's next collection. */
  next({ utilization, now, totalBytes, usedBytes }: Activity): 'collect' | 'wait' | 'rest' {
    if (totalBytes < this.#bytes + GROWTH_BYTES || usedBytes > MAX_USED_BYTES) return 'rest';
    if (utilization > QUIET_UTILIZATION || now < this.#collectedAt + PAUSE_MS) return 'wait';
    return 'collect';
  }

  collected({ now, totalBytes }: Pick<Activity, 'now' | 'totalBytes'>): void {
    this.#collectedAt = now;
    this.#bytes = totalBytes;
  }
}

/**
 * Collects the whole heap when this process has become quiet. Only a collection of V8 in the young generation starts
 * the timer, and each further one starts it again: so there is no timer without garbage, and none ends during load.
 */
export function collectWhenIdle(): void {
  const policy = new IdlePolicy();
  let before = performance.eventLoopUtilization();
  const timer = setTimeout(() => {
    const since = before;
    before = performance.eventLoopUtilization();
    const { utilization } = performance.eventLoopUtilization(before, since);
    const activity = { utilization, now: performance.now(), ...heapSize() };
    const step = policy.next(activity);
    if (step === 'wait') timer.refresh();
    if (step !== 'collect') return;
    collect();
    policy.collected({ now: activity.now, totalBytes: heapSize().totalBytes });
  }, QUIET_MS).unref();
  new PerformanceObserver((list) => {
    if (list.getEntries().some(isOfYoungGeneration)) timer.refresh();
  }).observe({ entryTypes: ['gc'] });
}

function heapSize(): Pick<Activity, 'totalBytes' | 'usedBytes'> {
  const { total_heap_size: totalBytes, used_heap_size: usedBytes } = getHeapStatistics();
  return { totalBytes, usedBytes };
}

function isOfYoungGeneration(entry: PerformanceEntry): boolean {
  // The type of entries in general does not have what those of collections have.
  const { detail } = entry as PerformanceEntry & { readonly detail: NodeGCPerformanceDetail };
  return detail.kind === constants.NODE_PERFORMANCE_GC_MINOR;
}

/** V8 has this function only in contexts that are created while its option is on. */
type GarbageCollection = (options: {
  readonly type: 'major';
  readonly execution: 'sync';
  readonly flavor: 'last-resort';
}) => void;

/** Collects as if memory were short, which also moves objects together. Node 20 does not know that flavour. */
function collect(): void {
  setFlagsFromString('--expose-gc');
  const collectGarbage = runInNewContext('gc') as GarbageCollection;
  setFlagsFromString('--no-expose-gc');
  collectGarbage({ type: 'major', execution: 'sync', flavor: 'last-resort' });
}
