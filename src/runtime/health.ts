import { type Clock, systemClock } from '../kernel/clock.ts';
import { codeOf, HubgateError } from '../kernel/error.ts';
import type { GatewayStatus } from './gateway.ts';
import type { RunningHub, SlowSubscriber } from './running-hub.ts';
import type { Family } from '../kernel/measures.ts';
import type { LoadCounts } from './metrics.ts';

/** How long a log may take to prove that it works, before it counts as out of reach. */
export const CHECK_PATIENCE_MS = 2_000;

/** What an orchestrator asks: may it be sent requests; is there any use in keeping it. */
export type HealthQuestion = 'ready' | 'live';

export interface HealthState extends Pick<GatewayStatus, 'late' | 'serving'> {
  /** The hubs that are asked about. */
  readonly hubs: readonly RunningHub[];
  /** Whether it is stopping. */
  readonly draining: boolean;
}

/**
 * What is wrong, in words without detail; null when nothing is. Ready is who serves, does not stop,
 * keeps time and reaches its logs. Live is whom a new start could not help: what is away may come
 * back, but a log that has been closed under a gateway which does not stop stays closed.
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
    await Promise.all(hubs.map((hub) => within(CHECK_PATIENCE_MS, hub.check(), clock)));
    return null;
  } catch (error) {
    // The log of the transport has the cause.
    if (question === 'live' && codeOf(error) !== 'transport-closed') return null;
    return 'transport health check failed';
  }
}

async function within(patienceMs: number, check: Promise<void>, clock: Clock): Promise<void> {
  let cancel = (): void => {};
  const late = new Promise<never>((_, reject) => {
    const message = `The history did not answer within ${patienceMs} ms`;
    cancel = clock.after(patienceMs, () => reject(new HubgateError('transport-failed', message)));
  });
  try {
    await Promise.race([check, late]);
  } finally {
    cancel();
  }
}

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
