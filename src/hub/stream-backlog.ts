import type { Scheduler } from '../kernel/scheduler.ts';
import type { StreamBacklog } from './hub-measures.ts';
import type { Subscriber } from './subscriber.ts';

/** What looking at a stream costs, in steps. */
const LOOK_STEPS = 20;
/** Slowest streams that are told by name. */
const SLOWEST = 10;

/** Looks at each stream, a slice at a time: some may come and go meanwhile. */
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
