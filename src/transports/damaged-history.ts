import type { PresenceBoard, PresenceChange } from '../hub/presence-board.ts';
import {
  type Evicted,
  type HistoryEntry,
  NO_TAIL,
  ONCE_UPDATES,
  type Tail,
  type Transport,
} from '../hub/transport.ts';
import type { Clock } from '../kernel/clock.ts';
import { codeOf, HubgateError, messageOf } from '../kernel/error.ts';
import type { Logger } from '../kernel/log.ts';

/** Shortest time between two attempts to open a damaged history. */
const LOOK_AGAIN_MS = 5_000;
/**
 * The pause is also this many times as long as the last attempt took, because a large history is read for
 * minutes.
 */
const REST = 10;

/** Errors of opening after which the hub runs without its history. */
const MENDABLE = new Set(['history-damaged', 'history-unavailable']);

export interface DamagedHistoryOptions {
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
  { clock, log }: Pick<DamagedHistoryOptions, 'clock' | 'log'>,
): Promise<Transport> {
  try {
    return await open();
  } catch (error) {
    if (!(error instanceof HubgateError) || !MENDABLE.has(error.code)) throw error;
    return new DamagedHistory({ open, cause: error, clock, log });
  }
}

/** Stands in for a history until it can be opened, then delegates to it. */
class DamagedHistory implements Transport {
  readonly presence: PresenceBoard;
  readonly #open: () => Promise<Transport>;
  readonly #clock: Clock;
  readonly #log: Logger;
  #cause: HubgateError;
  #opened: Transport | null = null;
  #isClosed = false;
  #looking: Promise<void> = Promise.resolve();
  #stopLooking: () => void = () => {};
  #tail = NO_TAIL;
  #changed: (change: PresenceChange) => Promise<void> = async () => {};

  constructor({ open, cause, clock, log }: DamagedHistoryOptions) {
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

  get maxPublishOnce(): number {
    return this.#opened?.maxPublishOnce ?? ONCE_UPDATES;
  }

  async appendOnce(...given: Parameters<Transport['appendOnce']>): Promise<void> {
    await this.#now().appendOnce(...given);
  }

  async find(eventId: string): Promise<number | null> {
    return this.#now().find(eventId);
  }

  async read(...given: Parameters<Transport['read']>): Promise<readonly HistoryEntry[]> {
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
    this.#isClosed = true;
    this.#stopLooking();
    await this.#looking;
    await this.#opened?.close();
  }

  /** @throws HubgateError `transport-failed`, `transport-closed` */
  #now(): Transport {
    if (this.#opened !== null) return this.#opened;
    if (this.#isClosed) throw new HubgateError('transport-closed', 'The history is closed');
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
      if (this.#isClosed) return;
      const took = this.#clock.monotonic() - began;
      this.#lookLater(Math.max(LOOK_AGAIN_MS, took * REST));
    }
  }

  #reportCause(): void {
    const { code, message } = this.#cause;
    this.#log.error(message, { code });
  }
}
