// Five measures against memory of V8 that a gateway does not need, and one against a price of the last of them
// (docs/performance.md):
// - While a program is loaded, Node's loader runs some functions thousands of times. V8 takes them for code that
//   matters and optimises them, which brings 8 MB of its compilers into memory, and it lets the young generation grow
//   to 8 MB. A gateway without load would keep both, so V8 does neither until everything is loaded.
// - V8 lets the young generation grow to 128 MB on Node 24, and to 32 MB on Node 20 and 22. More than 16 MB saves a
//   gateway hardly any CPU, and keeps up to 100 MB resident. `--max-semi-space-size` has no effect once V8
//   runs, but the factor by which it grows has.
// - V8 lets a small old generation grow to four times of what is in use before it collects it. Half as much again costs
//   no CPU that can be measured.
// - Maglev, the second optimising compiler, releases its memory on other threads, where it becomes holes between other
//   memory that the process keeps: 15 to 30 MB. On the main thread it does not.
// - V8 collects garbage when something allocates. A gateway whose start or load is over keeps what that left: garbage,
//   sockets and buffers outside of the heap that the garbage holds, and a young generation of full size. So when
//   nothing happens for a while, the whole heap is collected once.
// - Such a collection drops the code that is compiled for objects of which none is left. So the last objects of the
//   busiest classes are kept for a while.

import { executionAsyncResource } from 'node:async_hooks';
import { setFlagsFromString, getHeapSpaceStatistics, getHeapStatistics } from 'node:v8';
import {
  PerformanceObserver,
  constants,
  type NodeGCPerformanceDetail,
  performance,
  type PerformanceEntry,
} from 'node:perf_hooks';
import { runInNewContext } from 'node:vm';

/** V8's own factor for the young generation, and the one with which it stays as it is. */
const GROWS = 2;
const STAYS = 1;

/** From this version of Node on, Maglev is a second optimising compiler that is on. */
const MAGLEV_SINCE = 24;

/** Time in milliseconds in which most gateways start. One that takes longer has something to compute. */
const START_MS = 1_000;

/** Keeps V8 from optimising, and the young generation as small as it begins, until {@link loadingEnds}. */
export function loadingBegins(): void {
  for (const compiler of compilers()) setFlagsFromString(`--no-${compiler}`);
  setGrowth(STAYS);
}

/**
 * Gives V8 its defaults back: the young generation may grow now, and a moment later what runs often is optimised. A
 * gateway imports further parts while it starts.
 */
export function loadingEnds(): void {
  setGrowth(GROWS);
  setTimeout(() => {
    for (const compiler of compilers()) setFlagsFromString(`--${compiler}`);
  }, START_MS).unref();
}

/** The compilers that may be switched off and on again: none if the options of Node mention one. */
function compilers(): readonly string[] {
  if (nodeOptionsMention(/--(?:no-?)?(?:opt|turbofan|maglev)\b|jitless|lite[-_]mode/)) return [];
  const [major = 0] = process.versions.node.split('.').map(Number);
  return major >= MAGLEV_SINCE ? ['opt', 'maglev'] : ['opt'];
}

function setGrowth(factor: number): void {
  if (nodeOptionsMention(/semi[-_]space/)) return;
  setFlagsFromString(`--semi-space-growth-factor=${factor}`);
}

/** Whether an option of Node, on the command line or in `NODE_OPTIONS`, matches `pattern`. */
function nodeOptionsMention(pattern: RegExp): boolean {
  return pattern.test([...process.execArgv, process.env['NODE_OPTIONS'] ?? ''].join(' '));
}

/** Largest size in bytes to which a half of the young generation of V8 may grow. */
export const MAX_SEMI_SPACE_BYTES = 8 * 1024 * 1024;

/** Growth of the old generation in percent between two collections of a small heap. 0 is V8's own choice. */
const OLD_GROWTH = 50;
/** In a larger heap, a collection costs more: 4,000 subscribers that open their streams at once would need a tenth more CPU. */
const SMALL_HEAP_BYTES = 32 * 1024 * 1024;

/**
 * Keeps the heap and the memory of the compilers small from now on, unless the options of Node say how large they may be.
 * Looks after each collection, because V8 also shrinks the young generation when a process is idle.
 */
export function limitHeap(): void {
  if (compilers().includes('maglev')) setFlagsFromString('--no-maglev-destroy-on-background');
  const limits = [youngGrowth, oldGrowth].filter(({ mentioned }) => !nodeOptionsMention(mentioned));
  const current = new Map<string, number>();
  const look = (): void => {
    for (const { option, wanted } of limits) {
      const value = wanted();
      if (value === current.get(option)) continue;
      current.set(option, value);
      setFlagsFromString(`--${option}=${value}`);
    }
  };
  look();
  new PerformanceObserver(look).observe({ entryTypes: ['gc'] });
}

const youngGrowth = {
  option: 'semi-space-growth-factor',
  mentioned: /semi[-_]space/,
  wanted: () => (semiSpaceBytes() * GROWS <= MAX_SEMI_SPACE_BYTES ? GROWS : STAYS),
};

const oldGrowth = {
  option: 'heap-growing-percent',
  mentioned: /heap[-_]growing|optimize[-_]for[-_]size/,
  wanted: () => (getHeapStatistics().used_heap_size <= SMALL_HEAP_BYTES ? OLD_GROWTH : 0),
};

/**
 * The size of one half. Node 26 takes its memory later, piece by piece, so what it may hold counts; elsewhere
 * some of that is lost between objects.
 */
function semiSpaceBytes(): number {
  const space = getHeapSpaceStatistics().find(({ space_name: name }) => name === 'new_space');
  if (space === undefined) return 0;
  return Math.max(space.space_size / 2, space.space_used_size + space.space_available_size);
}

/** How long a process must have been quiet, in milliseconds. */
const QUIET_MS = 5_000;
/**
 * Largest share of that time in which the event loop of a quiet process does not wait. The timers of a gateway without
 * load need up to 0.02 on a virtual machine whose host is busy, because each wake-up takes 2 ms there.
 */
const QUIET_UTILIZATION = 0.03;
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
  process.nextTick(() => ticks.push(executionAsyncResource()));
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

/** Time in milliseconds after which a process without load releases recent objects. V8 has collected its heap by then. */
export const KEPT_MS = 60_000;

/** Those that hold an object. */
const holding = new Set<RecentObjects>();
let wasUsed = false;
let releasing: NodeJS.Timeout | null = null;

/**
 * Keeps the last two objects of a class, and what they refer to, until there was no new one for one to two minutes.
 *
 * V8 compiles functions for the shapes of the objects that they get. It drops that code, and what it knows about a shape,
 * when it collects the heap and no object with the shape is left. Without load there is none, so the first second of
 * a new load would take up to twice the CPU.
 */
export class RecentObjects {
  #last: object | null = null;
  #secondLast: object | null = null;

  keep(object: object): void {
    this.#secondLast = this.#last;
    this.#last = object;
    wasUsed = true;
    if (this.#secondLast !== null) return;
    holding.add(this);
    releasing ??= setInterval(releaseUnused, KEPT_MS).unref();
  }

  release(): void {
    this.#last = null;
    this.#secondLast = null;
  }
}

/**
 * One of the objects that Node makes for each call of `process.nextTick`, kept for ever for the same reason as
 * {@link RecentObjects}. Only the function that is called can get it.
 */
const ticks: object[] = [];

function releaseUnused(): void {
  if (wasUsed) {
    wasUsed = false;
    return;
  }
  for (const recent of holding) recent.release();
  holding.clear();
  if (releasing !== null) clearInterval(releasing);
  releasing = null;
}
