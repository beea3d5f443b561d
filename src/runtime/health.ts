import { type Clock, systemClock, within } from '../kernel/clock.ts';
import { codeOf, HubgateError } from '../kernel/error.ts';
import type { GatewayStatus } from './gateway.ts';
import type { RunningHub, SlowSubscriber } from './hub-families.ts';
import type { Family } from '../kernel/measures.ts';
import type { LoadCounts } from './metrics.ts';

/** How long a history may take to prove that it works before it counts as unreachable. */
export const CHECK_TIMEOUT_MS = 2_000;

/** The questions of an orchestrator: can the process receive requests, and is it worth keeping it running? */
export type HealthQuestion = 'ready' | 'live';

export interface HealthState extends Pick<GatewayStatus, 'late' | 'serving'> {
  /** The hubs to check. */
  readonly hubs: readonly RunningHub[];
  /** Whether the process is stopping. */
  readonly draining: boolean;
}

/**
 * Describes what is wrong, without details; null if nothing is. A process is ready if it serves, is not
 * stopping, keeps time and reaches its histories. A process is live if a restart could not help: an
 * unavailable store may return, but a history that was closed while the gateway is not stopping stays closed.
 */
export async function healthFault(
  question: HealthQuestion,
  { hubs, draining, serving, late }: HealthState,
  clock: Clock = systemClock,
): Promise<string | null> {
  if (question === 'ready') {
    if (draining) return 'the gateway is stopping';
    if (!serving) return 'no process serves';
    if (late) return 'the event loop is late';
  } else if (draining) return null;
  try {
    const message = `The history did not answer within ${CHECK_TIMEOUT_MS} ms`;
    const tooLate = (): Error => new HubgateError('transport-failed', message);
    await Promise.all(hubs.map((hub) => within(CHECK_TIMEOUT_MS, clock, hub.check(), tooLate)));
    return null;
  } catch (error) {
    // The log of the transport contains the cause.
    if (question === 'live' && codeOf(error) !== 'transport-closed') return null;
    if (codeOf(error) === 'outbox-failed') return 'an outbox cannot be read';
    return 'transport health check failed';
  }
}

/** The response to `GET /status` of the admin API: the report for a person that watches the gateway. */
export interface StatusReport {
  readonly version: string;
  /** Milliseconds since the Unix epoch. */
  readonly time: number;
  readonly ready: boolean;
  /** The reason why it is not ready; null if it is. */
  readonly fault: string | null;
  readonly loads: LoadCounts;
  /** The contents of `GET /metrics`, as data. */
  readonly metrics: readonly Family[];
  /** The streams with the most waiting data, of all hubs. */
  readonly slowest: readonly SlowSubscriber[];
}
