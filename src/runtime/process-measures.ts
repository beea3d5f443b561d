import { readdirSync, readFileSync } from 'node:fs';
import { constants, type PerformanceEntry, PerformanceObserver } from 'node:perf_hooks';
import type { Clock } from '../kernel/clock.ts';
import {
  counter,
  distribution,
  type Family,
  gauge,
  Histogram,
  SECONDS,
} from '../kernel/measures.ts';

const GC_KINDS: Readonly<Record<number, string>> = {
  [constants.NODE_PERFORMANCE_GC_MAJOR]: 'major',
  [constants.NODE_PERFORMANCE_GC_MINOR]: 'minor',
  [constants.NODE_PERFORMANCE_GC_INCREMENTAL]: 'incremental',
  [constants.NODE_PERFORMANCE_GC_WEAKCB]: 'weakcb',
};

/** The metrics of this process: processor, memory, event loop, garbage collection. */
export class ProcessMeasures {
  readonly loop: LoopWatch;
  readonly #collections = new Map(
    Object.values(GC_KINDS).map((kind) => [kind, new Histogram(SECONDS)]),
  );
  readonly #observer: PerformanceObserver;
  readonly #maxDescriptors = maxDescriptors();

  constructor(clock: Clock) {
    this.loop = new LoopWatch(clock);
    this.#observer = new PerformanceObserver((list) => {
      for (const entry of list.getEntries()) this.#collected(entry);
    });
    this.#observer.observe({ entryTypes: ['gc'] });
  }

  families(): readonly Family[] {
    const { user, system } = process.cpuUsage();
    const { rss, heapUsed } = process.memoryUsage();
    const started = Math.round(Date.now() / 1000 - process.uptime());
    const descriptors = openDescriptors();
    return [
      counter(
        'process_cpu_seconds_total',
        'CPU time, user and system.',
        (user + system) / 1_000_000,
      ),
      gauge('process_resident_memory_bytes', 'Resident memory.', rss),
      gauge('nodejs_heap_used_bytes', 'JavaScript heap in use.', heapUsed),
      gauge(
        'process_start_time_seconds',
        'When the process started, in seconds since 1970.',
        started,
        'min',
      ),
      ...(descriptors === null
        ? []
        : [gauge('process_open_fds', 'Open file descriptors.', descriptors)]),
      ...(this.#maxDescriptors === null
        ? []
        : [gauge('process_max_fds', 'Limit of open file descriptors.', this.#maxDescriptors)]),
      distribution('nodejs_eventloop_delay_seconds', 'Delay of the event loop.', [
        [{}, this.loop.delay],
      ]),
      distribution(
        'nodejs_gc_duration_seconds',
        'Time of garbage collections, by kind.',
        [...this.#collections].map(([kind, durations]) => [{ kind }, durations]),
      ),
    ];
  }

  close(): void {
    this.loop.close();
    this.#observer.disconnect();
  }

  #collected(entry: PerformanceEntry): void {
    // Node provides the kind of garbage collection, but its types do not declare it.
    const { detail } = entry as { detail?: { kind?: number } };
    const kind = GC_KINDS[detail?.kind ?? 0] ?? '';
    this.#collections.get(kind)?.observe(entry.duration / 1000);
  }
}

/** null if there is no limit, or if the system does not report one. */
function maxDescriptors(): number | null {
  try {
    const limits = readFileSync('/proc/self/limits', 'utf8');
    return Number(/^Max open files +(\d+)/m.exec(limits)?.[1] ?? Number.NaN) || null;
  } catch {
    // Only Linux reports it.
    return null;
  }
}

function openDescriptors(): number | null {
  try {
    return readdirSync('/proc/self/fd').length;
  } catch {
    // Only Linux reports it.
    return null;
  }
}

/** How often the delay of the event loop is measured. */
const TICK_MS = 100;
/** A turn that begins this much too late makes the process late… */
export const MAX_DELAY_MS = 1000;
/** …for this long afterwards. */
export const LATE_FOR_MS = 5000;

/**
 * Measures how late the turns of the event loop begin. Reading Node's own histogram resets it, so two readers
 * cannot share it.
 */
export class LoopWatch {
  readonly delay = new Histogram(SECONDS);
  readonly #clock: Clock;
  #dueMs: number;
  #lateUntilMs = Number.NEGATIVE_INFINITY;
  #cancel: () => void;

  constructor(clock: Clock) {
    this.#clock = clock;
    this.#dueMs = clock.monotonic() + TICK_MS;
    this.#cancel = clock.after(TICK_MS, () => this.#tick());
  }

  /** Whether the loop is late now, or was a moment ago. */
  get isLate(): boolean {
    const now = this.#clock.monotonic();
    return now < this.#lateUntilMs || now - this.#dueMs > MAX_DELAY_MS;
  }

  close(): void {
    this.#cancel();
  }

  #tick(): void {
    const now = this.#clock.monotonic();
    const delayMs = Math.max(0, now - this.#dueMs);
    this.delay.observe(delayMs / 1000);
    if (delayMs > MAX_DELAY_MS) this.#lateUntilMs = now + LATE_FOR_MS;
    this.#dueMs = now + TICK_MS;
    this.#cancel = this.#clock.after(TICK_MS, () => this.#tick());
  }
}
