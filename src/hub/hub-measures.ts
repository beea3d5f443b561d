import { BYTES, Histogram, SECONDS } from '../kernel/measures.ts';
import type { Scheduler } from '../kernel/scheduler.ts';
import type { EndReason, Subscriber } from './subscriber.ts';

/** Updates in a replay, in powers of ten. */
const REPLAYED = [0, 1, 10, 100, 1000, 10_000, 100_000] as const;

/** The name of a check of a token or a request. The rest of a longer name comes from the client. */
const CHECK = /^[a-z][a-z_]*(?:\d{3})?/;
/** The number of distinct check names. Further names count as `other`. */
const MAX_CHECKS = 40;

/** Counters for the operator. They only grow, except for `connected`. */
export interface HubCounts {
  connected: number;
  subscribers: number;
  updates: number;
  /** Requests with a token that is valid only with 0.x compatibility. */
  legacyTokens: number;
}

/** Measures of a hub in addition to its {@link HubCounts}. */
export class HubMeasures {
  /** Events queued for streams, and their bytes. */
  deliveries = 0;
  deliveredBytes = 0;
  failedAppends = 0;
  /** Time from the append of an update until it is stored. */
  readonly store = new Histogram(SECONDS);
  /** Bytes of data of an update. */
  readonly updateSize = new Histogram(BYTES);
  /** Updates that a stream received from the history before it continued live. */
  readonly replays = new Histogram(REPLAYED);
  readonly ended: Record<EndReason, number> = {
    client: 0,
    deadline: 0,
    slow: 0,
    overtaken: 0,
    unauthorized: 0,
    revoked: 0,
    closed: 0,
    failed: 0,
  };
  readonly slow: Record<SlowReason, number> = { buffer: 0, timeout: 0 };
  readonly refusals = new Map<string, number>();

  /** @param check the `check` of a diagnosis */
  refused(check: string): void {
    const name = CHECK.exec(check)?.[0] ?? 'other';
    const known = this.refusals.has(name) || this.refusals.size < MAX_CHECKS;
    const label = known ? name : 'other';
    this.refusals.set(label, (this.refusals.get(label) ?? 0) + 1);
  }
}

/** More than `max_subscriber_buffer` waited, or the client read nothing for `dispatch_timeout`. */
export type SlowReason = 'buffer' | 'timeout';

/** How far the streams of a hub are behind. */
export interface StreamBacklog {
  /** Bytes that wait for each stream, unordered. */
  readonly bytes: Float64Array;
  /** Milliseconds for which data has waited; 0 for streams without waiting data. */
  readonly waitingMs: Float64Array;
  /** The few streams with the most waiting bytes, in descending order. */
  readonly slowest: readonly SlowStream[];
}

export interface SlowStream {
  readonly id: string;
  readonly bytes: number;
  readonly waitingMs: number;
}

/** Cost of visiting a stream, in steps. */
const LOOK_STEPS = 20;
/** Number of the slowest streams that are listed individually. */
const SLOWEST = 10;

/** Visits each stream, in slices. Streams may begin and end in the meantime. */
export async function streamBacklog(
  all: ReadonlySet<Subscriber>,
  nowMs: () => number,
  scheduler: Scheduler,
): Promise<StreamBacklog> {
  const bytes: number[] = [];
  const waitingMs: number[] = [];
  let slowest: { subscriber: Subscriber; bytes: number; waitingMs: number }[] = [];
  await scheduler.compute(function* (budget) {
    for (const subscriber of all) {
      if (budget.isSpent) yield;
      budget.spend(LOOK_STEPS);
      const { bufferedBytes, isIdle, lastWriteMs } = subscriber.sendBuffer;
      const waiting = isIdle ? 0 : Math.max(0, nowMs() - lastWriteMs);
      bytes.push(bufferedBytes);
      waitingMs.push(waiting);
      const last = slowest.at(-1);
      if (
        bufferedBytes === 0 ||
        (slowest.length === SLOWEST && bufferedBytes <= (last?.bytes ?? 0))
      )
        continue;
      slowest.push({ subscriber, bytes: bufferedBytes, waitingMs: waiting });
      slowest = slowest.toSorted((a, b) => b.bytes - a.bytes).slice(0, SLOWEST);
    }
    return null;
  });
  return {
    bytes: Float64Array.from(bytes),
    waitingMs: Float64Array.from(waitingMs),
    slowest: slowest.map(({ subscriber, ...rest }) => ({ id: subscriber.id, ...rest })),
  };
}
