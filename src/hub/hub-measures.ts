import { BYTES, Histogram, SECONDS } from '../kernel/measures.ts';
import type { EndReason } from './subscriber.ts';

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
