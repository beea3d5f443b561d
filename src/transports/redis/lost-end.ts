import type { HandedOut } from './handed-out.ts';
import type { Session } from './session.ts';
import type { StoredLog } from './stored-log.ts';

/** Where a log that has lost its end differs from what was read. */
export interface LostEnd {
  /** The last stored position that both have. */
  readonly common: number;
  /** Entries that were read and are gone. */
  readonly lost: number;
  /** Entries that are there instead. */
  readonly replaced: number;
}

/**
 * Looks whether the log is still the one that was read; null when it is, or when that cannot be
 * told any more and need not be.
 */
export async function findLostEnd(
  session: Session,
  log: StoredLog,
  handedOut: HandedOut,
): Promise<LostEnd | null> {
  const { stored, lastKey, recent } = handedOut;
  const { position: top, key: topKey } = await log.end(session);
  if (top === stored && topKey === (lastKey ?? null)) return null;
  if (stored === 0) return null;
  if (top >= stored) {
    const [nearest] = await log.newest(session, [recent.oldest, stored], 1);
    // Evicted before this process had read on: then it cannot be compared, and need not be.
    const known = nearest === undefined ? undefined : recent.keyAt(nearest.position);
    if (known === undefined || nearest?.key === known) return null;
  }
  const common = await commonEnd(session, log, handedOut, Math.min(top, stored));
  return { common, lost: stored - common, replaced: top - common };
}

/** The last position, at most `end`, at which the log has what was read from it. */
async function commonEnd(
  session: Session,
  log: StoredLog,
  { recent }: HandedOut,
  end: number,
): Promise<number> {
  let low = Math.min(end, Math.max(0, recent.oldest - 1));
  let high = end;
  // Entries name their predecessors, so what two logs have in common is a beginning of both.
  while (low < high) {
    const middle = Math.ceil((low + high) / 2);
    const [below] = await log.newest(session, [low + 1, middle], 1);
    const [above] = below === undefined ? await log.page(session, [middle + 1, high], 1, 1) : [];
    const entry = below ?? above;
    // Nobody gets anything from there any more, so it does not matter what it was.
    if (entry === undefined) return high;
    if (entry.key === recent.keyAt(entry.position)) low = entry.position;
    else high = entry.position - 1;
  }
  return low;
}
