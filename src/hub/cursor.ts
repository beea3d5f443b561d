import type { HistoryReader } from './history-reader.ts';
import { EARLIEST, isPossibleId } from './update.ts';
import type { Scheduler } from '../kernel/scheduler.ts';
import type { StreamBacklog } from './hub-measures.ts';
import type { Subscriber } from './subscriber.ts';

/** Whether there is no cursor, or one that cannot be the id of an update. */
export function knowsNothing(lastEventId: string | null): boolean {
  return lastEventId === null || lastEventId === '' || !isPossibleId(lastEventId);
}

/**
 * The position after which to replay; null if the history does not contain the cursor.
 *
 * @throws HubgateError `transport-closed` or `transport-failed`
 */
export async function locate(
  reader: HistoryReader,
  lastEventId: string | null,
): Promise<number | null> {
  if (lastEventId === null || knowsNothing(lastEventId)) return null;
  const found = await reader.find(lastEventId);
  // Asks the history nevertheless: one that cannot be read must not look like an empty one.
  return lastEventId === EARLIEST ? 0 : found;
}

/** Where the replay begins: at the requested cursor if the history contains it, otherwise at `earliest`. */
export function cursorAnswer(asked: string | null, found: number | null): string | null {
  if (asked === null) return null;
  return found === null ? EARLIEST : asked;
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
