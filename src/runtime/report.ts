import type { Family } from '../kernel/measures.ts';
import type { LoadCounts } from './metrics.ts';
import type { SlowSubscriber } from './running-hub.ts';

/** What `GET /status` of the admin API answers: what a person who watches wants to see together. */
export interface StatusReport {
  readonly version: string;
  /** Milliseconds since the Unix epoch. */
  readonly time: number;
  readonly ready: boolean;
  /** Why it is not; null when it is. */
  readonly fault: string | null;
  readonly loads: LoadCounts;
  /** What `GET /metrics` tells, as data. */
  readonly metrics: readonly Family[];
  /** The streams of which most waits, of all hubs. */
  readonly slowest: readonly SlowSubscriber[];
}
