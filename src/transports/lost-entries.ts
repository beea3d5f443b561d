import type { Logger } from '../kernel/log.ts';
import type { DeliveredPosition } from './delivered-position.ts';
import type { EntryMark, HistoryEnd, Range, StoredEntry } from './stored-entry.ts';
import type { ReadBacks } from './read-backs.ts';

/** A stored history that can be compared with what was read of it. Each method is one query on the given session. */
export interface ComparedHistory<Session> {
  end(session: Session): Promise<HistoryEnd>;
  /** Reads from the first of two positions to the second, as far as `limit` and `bytes` allow. */
  page(
    session: Session,
    range: Range,
    limit: number,
    bytes: number,
  ): Promise<readonly StoredEntry[]>;
  /** The newest entries between two positions without their bodies, oldest first, at most `limit`. */
  newest(session: Session, range: Range, limit: number): Promise<readonly EntryMark[]>;
}

export interface ReconciledOptions<Session> {
  /** Name of the store in the log. */
  readonly store: string;
  readonly storedHistory: ComparedHistory<Session>;
  /** Written only by the reader. */
  readonly delivered: DeliveredPosition;
  readonly readBacks: ReadBacks;
  readonly log: Logger;
}

/**
 * Verifies that this is the history that was read. If it has lost its end, goes back to the last common entry and
 * resolves to true.
 *
 * @param confirmLoss called before a loss is believed
 * @throws the errors of the store and of `confirmLoss`; this process then stays where it is
 */
export async function reconcile<Session>(
  session: Session,
  { store, storedHistory, delivered, readBacks, log }: ReconciledOptions<Session>,
  confirmLoss: () => Promise<void> = async () => {},
): Promise<boolean> {
  const found = await findLostEnd(session, storedHistory, delivered);
  if (found === null) return false;
  await confirmLoss();
  const { common, lost, replaced } = found;
  log.warn(`The history in ${store} has lost its end`, { lost, replaced });
  delivered.goBackTo(common);
  readBacks.loseBehind(common);
  return true;
}

/** The difference between a history that has lost its end and what was read. */
interface LostEnd {
  /** The last common stored position. */
  readonly common: number;
  /** Number of entries that were read and are gone. */
  readonly lost: number;
  /** Number of entries that have replaced them. */
  readonly replaced: number;
}

/**
 * Compares the history with what was read. Returns null if it is the same, or if a comparison is neither
 * possible nor necessary.
 */
export async function findLostEnd<Session>(
  session: Session,
  history: ComparedHistory<Session>,
  delivered: DeliveredPosition,
): Promise<LostEnd | null> {
  const { stored, lastKey, recent } = delivered;
  const { position: top, key: topKey } = await history.end(session);
  if (top === stored && topKey === (lastKey ?? null)) return null;
  if (stored === 0) return null;
  if (top >= stored) {
    const [nearest] = await history.newest(session, [recent.oldest, stored], 1);
    // Evicted before this process has read further: a comparison is neither possible nor necessary.
    const known = nearest === undefined ? undefined : recent.keyAt(nearest.position);
    if (known === undefined || nearest?.key === known) return null;
  }
  const common = await commonEnd(session, history, delivered, Math.min(top, stored));
  return { common, lost: stored - common, replaced: top - common };
}

/** The last position, at most `end`, at which the history contains the entry that was read. */
async function commonEnd<Session>(
  session: Session,
  history: ComparedHistory<Session>,
  { recent }: DeliveredPosition,
  end: number,
): Promise<number> {
  let low = Math.min(end, Math.max(0, recent.oldest - 1));
  let high = end;
  // Entries name their predecessors, so the common part of two histories is a beginning of both.
  while (low < high) {
    const middle = Math.ceil((low + high) / 2);
    const [below] = await history.newest(session, [low + 1, middle], 1);
    const [above] =
      below === undefined ? await history.page(session, [middle + 1, high], 1, 1) : [];
    const entry = below ?? above;
    // Nothing before it is delivered any more, so its entries do not matter.
    if (entry === undefined) return high;
    if (entry.key === recent.keyAt(entry.position)) low = entry.position;
    else high = entry.position - 1;
  }
  return low;
}
