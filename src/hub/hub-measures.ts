import { BYTES, Histogram, SECONDS } from '../kernel/measures.ts';
import type { EndReason } from './subscriber.ts';

/** Updates that a replay was about, in steps of ten. */
const REPLAYED = [0, 1, 10, 100, 1000, 10_000, 100_000] as const;

/** What a check of a token or of a request is called; the rest of a longer name is the client's. */
const CHECK = /^[a-z][a-z_]*(?:\d{3})?/;
/** Names of checks beyond which all are `other`. */
const MAX_CHECKS = 40;

/** Numbers for the operator; they only grow, but for `connected`. */
export interface HubCounts {
  connected: number;
  subscribers: number;
  updates: number;
  /** Requests with a token that only a hub of 0.x accepts. */
  legacyTokens: number;
}

/** What is counted of a hub beside its {@link HubCounts}. */
export class HubMeasures {
  /** Events handed to streams, and their bytes. */
  deliveries = 0;
  deliveredBytes = 0;
  failedAppends = 0;
  /** From the append of an update to its being stored. */
  readonly store = new Histogram(SECONDS);
  /** Bytes of data of an update. */
  readonly updateSize = new Histogram(BYTES);
  /** Updates that a stream was given before it went on live. */
  readonly replays = new Histogram(REPLAYED);
  readonly ended: Record<EndReason, number> = {
    client: 0,
    deadline: 0,
    slow: 0,
    overtaken: 0,
    reauthorised: 0,
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

/** More waited than `max_subscriber_buffer`, or nothing was taken for `dispatch_timeout`. */
export type SlowReason = 'buffer' | 'timeout';

/** How far behind the streams of a hub are. */
export interface StreamBacklog {
  /** Bytes that each has not taken, in no order. */
  readonly bytes: Float64Array;
  /** Milliseconds for which what waits has waited; 0 for those that have everything. */
  readonly waitingMs: Float64Array;
  /** Those with the most bytes first, few of them. */
  readonly slowest: readonly SlowStream[];
}

export interface SlowStream {
  readonly id: string;
  readonly bytes: number;
  readonly waitingMs: number;
}
