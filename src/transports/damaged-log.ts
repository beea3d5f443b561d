import type { PresenceBoard, PresenceChange } from '../hub/presence-board.ts';
import {
  type Evicted,
  type LogEntry,
  NO_TAIL,
  ONCE_UPDATES,
  type Tail,
  type Transport,
} from '../hub/transport.ts';
import type { Clock } from '../kernel/clock.ts';
import { codeOf, HubgateError, messageOf } from '../kernel/error.ts';
import type { Logger } from '../kernel/log.ts';
import type { EntryMark, HandedOut, LogEnd, Range, StoredEntry } from './handed-out.ts';
import type { ReadBacks } from './read-backs.ts';

/** Shortest time between two attempts to open a damaged history. */
const LOOK_AGAIN_MS = 5_000;
/**
 * The pause is also this many times as long as the last attempt took, because a large history is read for
 * minutes.
 */
const REST = 10;

/** Errors of opening after which the hub runs without its history. */
const MENDABLE = new Set(['history-damaged', 'history-unavailable']);

export interface DamagedLogOptions {
  /** Opens the current history. */
  readonly open: () => Promise<Transport>;
  /** Why it could not be opened. */
  readonly cause: HubgateError;
  readonly clock: Clock;
  readonly log: Logger;
}

/**
 * Opens a history. If it is damaged, or on a disk that is full, read-only or broken, the hub runs without it:
 * requests that need the history are refused, other streams stay open, and the hub continues as soon as a
 * sound history is in its place.
 *
 * @throws as `open`, except for `history-damaged` and `history-unavailable`
 */
export async function openDespiteDamage(
  open: () => Promise<Transport>,
  { clock, log }: Pick<DamagedLogOptions, 'clock' | 'log'>,
): Promise<Transport> {
  try {
    return await open();
  } catch (error) {
    if (!(error instanceof HubgateError) || !MENDABLE.has(error.code)) throw error;
    return new DamagedLog({ open, cause: error, clock, log });
  }
}

/** Stands in for a history until it can be opened, then delegates to it. */
class DamagedLog implements Transport {
  readonly presence: PresenceBoard;
  readonly #open: () => Promise<Transport>;
  readonly #clock: Clock;
  readonly #log: Logger;
  #cause: HubgateError;
  #opened: Transport | null = null;
  #closed = false;
  #looking: Promise<void> = Promise.resolve();
  #stopLooking: () => void = () => {};
  #tail = NO_TAIL;
  #changed: (change: PresenceChange) => Promise<void> = async () => {};

  constructor({ open, cause, clock, log }: DamagedLogOptions) {
    this.#open = open;
    this.#cause = cause;
    this.#clock = clock;
    this.#log = log;
    this.presence = {
      enter: async (subscriber, records) => this.#now().presence.enter(subscriber, records),
      leave: async (subscriber) => this.#opened?.presence.leave(subscriber),
      page: async (after, limit, matcher) => this.#now().presence.page(after, limit, matcher),
      of: async (subscriber) => this.#now().presence.of(subscriber),
      watch: (listener) => {
        this.#changed = listener;
      },
    };
    this.#reportCause();
    this.#lookLater(LOOK_AGAIN_MS);
  }

  get position(): number {
    return this.#opened?.position ?? 0;
  }

  get lastEventId(): string | null {
    return this.#opened?.lastEventId ?? null;
  }

  get lastUpdateId(): string | null {
    return this.#opened?.lastUpdateId ?? null;
  }

  async evicted(): Promise<Evicted> {
    return this.#now().evicted();
  }

  tail(tail: Tail): void {
    this.#tail = tail;
    this.#opened?.tail(tail);
  }

  async append(...given: Parameters<Transport['append']>): Promise<void> {
    await this.#now().append(...given);
  }

  get mostOnce(): number {
    return this.#opened?.mostOnce ?? ONCE_UPDATES;
  }

  async appendOnce(...given: Parameters<Transport['appendOnce']>): Promise<void> {
    await this.#now().appendOnce(...given);
  }

  async find(eventId: string): Promise<number | null> {
    return this.#now().find(eventId);
  }

  async read(...given: Parameters<Transport['read']>): Promise<readonly LogEntry[]> {
    return this.#now().read(...given);
  }

  /** Other processes may have opened the history earlier, so without it nothing is known to be current. */
  caughtUp(): Promise<void> | null {
    return this.#now().caughtUp?.() ?? null;
  }

  wake(): void {
    this.#opened?.wake();
  }

  async check(): Promise<void> {
    await this.#now().check();
  }

  async close(): Promise<void> {
    this.#closed = true;
    this.#stopLooking();
    await this.#looking;
    await this.#opened?.close();
  }

  /** @throws HubgateError `transport-failed`, `transport-closed` */
  #now(): Transport {
    if (this.#opened !== null) return this.#opened;
    if (this.#closed) throw new HubgateError('transport-closed', 'The history is closed');
    throw new HubgateError('transport-failed', this.#cause.message, { cause: this.#cause });
  }

  #lookLater(delayMs: number): void {
    this.#stopLooking = this.#clock.after(delayMs, () => {
      this.#looking = this.#look();
    });
  }

  async #look(): Promise<void> {
    const began = this.#clock.monotonic();
    try {
      const opened = await this.#open();
      opened.presence.watch(async (change) => this.#changed(change));
      opened.tail(this.#tail);
      this.#opened = opened;
      this.#log.info('The history can be used again');
    } catch (error) {
      const before = this.#cause.message;
      if (error instanceof HubgateError) this.#cause = error;
      else this.#cause = new HubgateError(codeOf(error) ?? 'transport-failed', messageOf(error));
      if (this.#cause.message !== before) this.#reportCause();
      if (this.#closed) return;
      const took = this.#clock.monotonic() - began;
      this.#lookLater(Math.max(LOOK_AGAIN_MS, took * REST));
    }
  }

  #reportCause(): void {
    const { code, message } = this.#cause;
    this.#log.error(message, { code });
  }
}

/** A stored history that can be compared with what was read of it. Each method is one query on the given session. */
export interface ComparedLog<Session> {
  end(session: Session): Promise<LogEnd>;
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
  readonly storedLog: ComparedLog<Session>;
  /** Written only by the reader. */
  readonly handedOut: HandedOut;
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
  { store, storedLog, handedOut, readBacks, log }: ReconciledOptions<Session>,
  confirmLoss: () => Promise<void> = async () => {},
): Promise<boolean> {
  const found = await findLostEnd(session, storedLog, handedOut);
  if (found === null) return false;
  await confirmLoss();
  const { common, lost, replaced } = found;
  log.warn(`The history in ${store} has lost its end`, { lost, replaced });
  handedOut.goBackTo(common);
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
  log: ComparedLog<Session>,
  handedOut: HandedOut,
): Promise<LostEnd | null> {
  const { stored, lastKey, recent } = handedOut;
  const { position: top, key: topKey } = await log.end(session);
  if (top === stored && topKey === (lastKey ?? null)) return null;
  if (stored === 0) return null;
  if (top >= stored) {
    const [nearest] = await log.newest(session, [recent.oldest, stored], 1);
    // Evicted before this process has read further: a comparison is neither possible nor necessary.
    const known = nearest === undefined ? undefined : recent.keyAt(nearest.position);
    if (known === undefined || nearest?.key === known) return null;
  }
  const common = await commonEnd(session, log, handedOut, Math.min(top, stored));
  return { common, lost: stored - common, replaced: top - common };
}

/** The last position, at most `end`, at which the history contains the entry that was read. */
async function commonEnd<Session>(
  session: Session,
  log: ComparedLog<Session>,
  { recent }: HandedOut,
  end: number,
): Promise<number> {
  let low = Math.min(end, Math.max(0, recent.oldest - 1));
  let high = end;
  // Entries name their predecessors, so the common part of two histories is a beginning of both.
  while (low < high) {
    const middle = Math.ceil((low + high) / 2);
    const [below] = await log.newest(session, [low + 1, middle], 1);
    const [above] = below === undefined ? await log.page(session, [middle + 1, high], 1, 1) : [];
    const entry = below ?? above;
    // Nothing before it is delivered any more, so its entries do not matter.
    if (entry === undefined) return high;
    if (entry.key === recent.keyAt(entry.position)) low = entry.position;
    else high = entry.position - 1;
  }
  return low;
}
