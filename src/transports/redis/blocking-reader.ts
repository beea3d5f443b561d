import { type LogEntry, type Missed, missedBetween } from '../../hub/transport.ts';
import { messageOf } from '../../kernel/error.ts';
import type { Logger } from '../../kernel/log.ts';
import type { HandedOut } from './handed-out.ts';
import type { HubKeys } from './keys.ts';
import type { ReadBacks } from './read-backs.ts';
import type { RedisSignals } from './redis-signals.ts';
import { decodeEntry, listOf, placeOf, type StoredEntry } from './stored-entry.ts';
import type { Session } from './session.ts';
import type { StoredLog } from './stored-log.ts';

/** How long one read waits for the next entry; then the log is looked at whether it is still the same. */
const BLOCK_MS = 5000;
/** Entries handed out at once. */
const ENTRIES_AT_ONCE = 128;
/** Read when a process begins, so that it knows what it would have to go back to. */
const REMEMBERED = 1000;
/** How long one question waits for the replicas. */
const WAIT_MS = 2000;

interface BlockingReaderOptions {
  readonly keys: HubKeys;
  /** Replicas that must have an entry before it is handed out. */
  readonly replicas: number;
  readonly storedLog: StoredLog;
  /** Written by this reader alone. */
  readonly handedOut: HandedOut;
  readonly readBacks: ReadBacks;
  readonly signals: RedisSignals;
  readonly log: Logger;
}

/**
 * Reads the log, blocking, and hands out what comes. After every connection, every few seconds and
 * where an entry does not follow the one before it, it is made sure that the log is the one that
 * was read; what replaces a lost end is handed out in its place.
 */
export class BlockingReader {
  readonly #options: BlockingReaderOptions;
  /** Is given what comes, in the order of the log. */
  deliver: (entries: readonly LogEntry[]) => void = () => {};
  /** Is told what was evicted before it could be handed out. */
  overtaken: (missed: Missed) => void = () => {};

  constructor(options: BlockingReaderOptions) {
    this.#options = options;
  }

  /**
   * Takes the log as it is: its end is where this process begins.
   *
   * @throws HubgateError `history-too-new`
   */
  async begin(session: Session): Promise<void> {
    const { storedLog, handedOut, signals } = this.#options;
    const end = await storedLog.end(session);
    await signals.begin(session);
    handedOut.beginAt(end);
    const from = Math.max(1, end.position - handedOut.recent.capacity + 1);
    const range = [from, end.position] as const;
    handedOut.remember(await storedLog.newest(session, range, REMEMBERED));
  }

  /** Hands out what comes until the session is lost; resolves to why. */
  async follow(session: Session): Promise<string> {
    const { keys, handedOut, signals } = this.#options;
    signals.flush();
    try {
      while (!session.isLost) {
        const reply = await session.block(
          BLOCK_MS,
          'XREAD',
          'COUNT',
          String(ENTRIES_AT_ONCE),
          'BLOCK',
          String(BLOCK_MS),
          'STREAMS',
          keys.log,
          keys.signals,
          placeOf(handedOut.stored),
          signals.last,
        );
        await this.#take(session, reply);
      }
      return 'the connection is lost';
    } catch (error) {
      return messageOf(error);
    }
  }

  /**
   * Makes sure that the log is the one that was read. Where it has lost its end, goes back to the
   * last entry that both have; true when it had to.
   */
  async reconcile(session: Session): Promise<boolean> {
    const { storedLog, handedOut, readBacks, log } = this.#options;
    const found = await findLostEnd(session, storedLog, handedOut);
    if (found === null) return false;
    const { common, lost, replaced } = found;
    log.warn('The history in Redis has lost its end', { lost, replaced });
    handedOut.goBackTo(common);
    readBacks.loseBehind(common);
    return true;
  }

  async #take(session: Session, reply: unknown): Promise<void> {
    const { keys, replicas, handedOut, readBacks, signals } = this.#options;
    const streams = listOf(reply).map((stream) => listOf(stream));
    const told = listOf(streams.find(([name]) => name === keys.signals)?.[1]);
    signals.take(told);
    // Nothing is handed out to those whose end has been told of before it.
    if (told.length === ENTRIES_AT_ONCE) await signals.catchUp(session);
    const own = streams.find(([name]) => name === keys.log);
    const entries = listOf(own?.[1]).map(decodeEntry);
    const [first] = entries;
    if (first === undefined || !handedOut.isFollowedBy(first)) {
      // Nothing came, or something that does not follow what was read.
      if (await this.reconcile(session)) return;
      if (first === undefined) {
        signals.flush();
        return;
      }
    }
    if (replicas > 0) await this.#untilReplicated(session);
    const missed = await this.#missed(session, entries);
    const seen = handedOut.advance(entries);
    if (missed !== null) this.overtaken(missed);
    this.deliver(seen);
    readBacks.settle(handedOut);
  }

  /** What was evicted in front of these entries or between them, since others are further than this process. */
  async #missed(session: Session, entries: readonly StoredEntry[]): Promise<Missed | null> {
    const { storedLog, handedOut } = this.#options;
    const [first, last] = [entries.at(0), entries.at(-1)];
    if (first === undefined || last === undefined) return null;
    const { stored } = handedOut;
    if (last.position - stored === entries.length) return null;
    return missedBetween(stored, first.position, await storedLog.evicted(session));
  }

  /** An entry that is handed out must not be lost with the primary. */
  async #untilReplicated(session: Session): Promise<void> {
    const { keys, replicas } = this.#options;
    for (;;) {
      const fence = session.block(WAIT_MS, 'INCR', keys.probe);
      const count = session.block(WAIT_MS, 'WAIT', String(replicas), String(WAIT_MS));
      const [, reached] = await Promise.all([fence, count]);
      if (Number(reached) >= replicas) return;
      if (session.isLost) throw new Error('the connection is lost');
    }
  }
}

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
