import { type Missed, missedBetween, NO_TAIL } from '../../hub/transport.ts';
import type { Clock } from '../../kernel/clock.ts';
import { messageOf } from '../../kernel/error.ts';
import type { StoredEntry } from '../stored-entry.ts';
import { reconcile, type ReconciledOptions } from '../lost-entries.ts';
import type { ServerReader } from '../server-transport.ts';
import type { PostgresSignals } from './postgres-signals.ts';
import type { Session } from './session.ts';
import type { StoredHistory } from './stored-history.ts';

/**
 * How long the reader waits for a notification. Afterwards it looks without one, because a notification may be missed,
 * and checks whether the history is still the same.
 */
const LOOK_MS = 5000;
/** How long it reads only signals before it asks again whether the hub has delivered enough. */
const FULL_MS = 100;
/** Entries that are delivered at once, and their bytes. */
const ENTRIES_AT_ONCE = 128;
const BYTES_AT_ONCE = 1024 * 1024;

interface NotifiedReaderOptions
  extends Omit<ReconciledOptions<Session>, 'store' | 'storedHistory'> {
  readonly storedHistory: StoredHistory;
  readonly signals: PostgresSignals;
  readonly clock: Clock;
}

/**
 * Reads the history when the server notifies it, and delivers new entries. After every connection, every few seconds,
 * and if an entry does not follow the previous one, it verifies that this is the history that it has read. Entries that
 * replace a lost end are delivered as well.
 */
export class NotifiedReader implements ServerReader<Session> {
  readonly #options: NotifiedReaderOptions;
  #isDue = false;
  #wake: () => void = () => {};
  tail = NO_TAIL;

  constructor(options: NotifiedReaderOptions) {
    this.#options = options;
  }

  /**
   * A notification: the position of the last entry, or nothing for a signal. What this process has delivered itself
   * needs no look.
   */
  notified(payload: string): void {
    if (payload !== '' && Number(payload) <= this.#options.delivered.stored) return;
    this.lookAgain();
  }

  lookAgain(): void {
    this.#isDue = true;
    this.#wake();
  }

  async follow(session: Session): Promise<string> {
    const { signals, clock } = this.#options;
    let reason = 'the connection is lost';
    session.onEnd((why) => {
      reason = why;
      this.#wake();
    });
    signals.flush();
    try {
      while (!session.isLost) {
        if (this.tail.isFull()) {
          await signals.catchUp(session);
          // Not until the next notification, because there may be very many of them now.
          await new Promise<void>((resolve) => clock.after(FULL_MS, resolve));
          continue;
        }
        this.#isDue = false;
        if (!(await this.#look(session)) && !session.isLost) await this.#nextNotification();
      }
      return reason;
    } catch (error) {
      return session.isLost ? reason : messageOf(error);
    }
  }

  /** As the function of that name. */
  reconcile({ reader }: Session): Promise<boolean> {
    return reconcile(reader, { store: 'PostgreSQL', ...this.#options });
  }

  /**
   * Delivers entries that this process has just stored, if they are the next ones and no signal precedes them. Otherwise
   * they are read.
   */
  deliverOwn = (entries: readonly StoredEntry[], signalEnd: number): void => {
    const { delivered, signals } = this.#options;
    const [first] = entries;
    if (first === undefined || !delivered.isFollowedBy(first) || signals.last !== signalEnd) {
      this.lookAgain();
    } else this.#deliver(entries, null);
  };

  /** Resolves to whether there may be more to read at once. */
  async #look(session: Session): Promise<boolean> {
    const { storedHistory, delivered, signals } = this.#options;
    const { reader } = session;
    const from = delivered.stored;
    const view = await storedHistory.view(reader, from, ENTRIES_AT_ONCE, BYTES_AT_ONCE);
    // All earlier signals are passed on first, so that nothing is delivered to streams that a signal has ended.
    if (view.signals !== signals.last) await signals.catchUp(session);
    // Meanwhile, this process may have delivered entries of its own.
    if (delivered.stored !== from) return true;
    const [first] = view.entries;
    if (first === undefined || !delivered.isFollowedBy(first)) {
      const isSame = view.position === from && view.key === (delivered.lastKey ?? null);
      if (!isSame && (await this.reconcile(session))) return true;
      if (delivered.stored !== from) return true;
      if (first === undefined) {
        signals.flush();
        return this.#isDue;
      }
    }
    const missed = delivered.hasGapBefore(view.entries)
      ? missedBetween(from, first.position, view.evicted)
      : null;
    this.#deliver(view.entries, missed);
    return true;
  }

  #deliver(entries: readonly StoredEntry[], missed: Missed | null): void {
    const { delivered, readBacks } = this.#options;
    const seen = delivered.advance(entries);
    if (missed !== null) this.tail.overtaken(missed);
    this.tail.deliver(seen);
    readBacks.settle(delivered);
  }

  #nextNotification(): Promise<void> {
    const { clock } = this.#options;
    return new Promise((resolve) => {
      const stop = clock.after(LOOK_MS, () => this.#wake());
      this.#wake = () => {
        stop();
        this.#wake = () => {};
        resolve();
      };
      if (this.#isDue) this.#wake();
    });
  }
}
