import { missedBetween, NO_TAIL, PAGE_BYTES } from '../../hub/transport.ts';
import { messageOf } from '../../kernel/error.ts';
import type { Logger } from '../../kernel/log.ts';
import { ServerSignals } from '../server-signals.ts';
import type { StoredEntry } from '../stored-entry.ts';
import { reconcile, type ReconciledOptions } from '../lost-entries.ts';
import type { ServerReader } from '../server-transport.ts';
import type { HubKeys } from './keys.ts';
import { decodeEntry, listOf, placeOf, type StoredHistory } from './stored-history.ts';
import type { Session } from './session.ts';

/**
 * How long one read waits for the next entry. Afterwards, the reader checks whether the history is still the
 * same.
 */
const BLOCK_MS = 5000;
/** How long it reads only signals before it asks again whether the hub has delivered enough. */
const FULL_MS = 100;
/** Entries of one blocking read, whose reply has no limit in bytes. */
const ENTRIES_OF_READ = 16;
/** Entries of a page, which has a limit in bytes as well. */
const ENTRIES_OF_PAGE = 128;
/** How long one command waits for the replicas. */
const WAIT_MS = 2000;

interface BlockingReaderOptions
  extends Omit<ReconciledOptions<Session>, 'store' | 'storedHistory'> {
  readonly keys: HubKeys;
  /** Replicas that must have an entry before it is delivered, and that must confirm a loss. */
  readonly replicas: number;
  readonly storedHistory: StoredHistory;
  readonly signals: RedisSignals;
}

/**
 * Reads the history with blocking commands, and delivers new entries. After every connection, every few
 * seconds, and if an entry does not follow the previous one, it verifies that this is the history that it has
 * read. Entries that replace a lost end are delivered as well.
 */
export class BlockingReader implements ServerReader<Session> {
  readonly #options: BlockingReaderOptions;
  tail = NO_TAIL;

  constructor(options: BlockingReaderOptions) {
    this.#options = options;
  }

  async follow(session: Session): Promise<string> {
    this.#options.signals.flush();
    try {
      for (let isBehind = true; !session.isLost; ) {
        if (this.tail.isFull()) await this.#takeSignals(session);
        else isBehind = await (isBehind ? this.#takePage(session) : this.#takeNext(session));
      }
      return 'the connection is lost';
    } catch (error) {
      return messageOf(error);
    }
  }

  /** As the function of that name. */
  reconcile(session: Session): Promise<boolean> {
    const options = { store: 'Redis', ...this.#options };
    return reconcile(session, options, () => this.#requireReplicas(session));
  }

  lookAgain(): void {
    // Not needed: the server ends the blocking command when something arrives.
  }

  /** Waits for new entries and signals. Resolves to whether there may be more. */
  async #takeNext(session: Session): Promise<boolean> {
    const { keys, delivered, signals } = this.#options;
    const reply = await session.block(
      BLOCK_MS,
      'XREAD',
      'COUNT',
      String(ENTRIES_OF_READ),
      'BLOCK',
      String(BLOCK_MS),
      'STREAMS',
      keys.log,
      keys.signals,
      placeOf(delivered.stored),
      signals.last,
    );
    const streams = listOf(reply).map((stream) => listOf(stream));
    const signalled = listOf(streams.find(([name]) => name === keys.signals)?.[1]);
    signals.take(signalled);
    // All earlier signals are read first, so that nothing is delivered to streams that a signal has ended.
    if (signalled.length === ENTRIES_OF_READ) await signals.catchUp(session);
    const own = streams.find(([name]) => name === keys.log);
    const entries = listOf(own?.[1]).map(decodeEntry);
    await this.#deliver(session, entries);
    return entries.length === ENTRIES_OF_READ;
  }

  /** Waits a moment for signals alone. */
  async #takeSignals(session: Session): Promise<void> {
    const { keys, signals } = this.#options;
    await session.block(
      FULL_MS,
      'XREAD',
      'COUNT',
      '1',
      'BLOCK',
      String(FULL_MS),
      'STREAMS',
      keys.signals,
      signals.last,
    );
    await signals.catchUp(session);
  }

  /** Reads what has arrived, however much that is, in parts of bounded size. Resolves to whether there may be more. */
  async #takePage(session: Session): Promise<boolean> {
    const { storedHistory, delivered, signals } = this.#options;
    const range = [delivered.stored + 1, Number.MAX_SAFE_INTEGER] as const;
    // The server answers in this order, so it returns the signals before these entries, too.
    const [entries] = await Promise.all([
      storedHistory.page(session, range, ENTRIES_OF_PAGE, PAGE_BYTES),
      signals.catchUp(session),
    ]);
    if (entries.length > 0) await this.#deliver(session, entries);
    return entries.length > 0;
  }

  async #deliver(session: Session, entries: readonly StoredEntry[]): Promise<void> {
    const { replicas, storedHistory, delivered, readBacks, signals } = this.#options;
    const [first] = entries;
    if (first === undefined || !delivered.isFollowedBy(first)) {
      // Nothing arrived, or an entry that does not follow what was read.
      if (await this.reconcile(session)) return;
      if (first === undefined) return signals.flush();
    }
    if (replicas > 0) await this.#untilReplicated(session);
    const missed = delivered.hasGapBefore(entries)
      ? missedBetween(delivered.stored, first.position, await storedHistory.evicted(session))
      : null;
    const seen = delivered.advance(entries);
    if (missed !== null) this.tail.overtaken(missed);
    this.tail.deliver(seen);
    readBacks.settle(delivered);
  }

  /** Waits for the replicas: an entry that is delivered must not be lost with the primary. */
  async #untilReplicated(session: Session): Promise<void> {
    const { replicas } = this.#options;
    while ((await this.#countReplicas(session)) < replicas) {
      if (session.isLost) throw new Error('the connection is lost');
    }
  }

  /**
   * A loss that the replicas do not have may be that of an old primary: it has restarted without its data, and
   * Sentinel is about to name another one.
   *
   * @throws if too few replicas follow the primary of this session
   */
  async #requireReplicas(session: Session): Promise<void> {
    const { replicas } = this.#options;
    if (replicas === 0) return;
    const count = await this.#countReplicas(session);
    if (count >= replicas) return;
    throw new Error(
      `the end of the history is gone, and ${count} of ${replicas} replicas confirm it`,
    );
  }

  /** How many replicas have everything that the primary has now; waits until it is enough, for a limited time. */
  async #countReplicas(session: Session): Promise<number> {
    const { keys, replicas } = this.#options;
    // WAIT waits for the writes of its own connection.
    const fence = session.block(WAIT_MS, 'INCR', keys.probe);
    const count = session.block(WAIT_MS, 'WAIT', String(replicas), String(WAIT_MS));
    const [, reached] = await Promise.all([fence, count]);
    return Number(reached);
  }
}

/** Signals that the store keeps for nodes that are unavailable for a while. */
const KEPT = 10_000;
/** Signals that are read in one step. */
const AT_ONCE = 1_000;

export interface RedisSignalsOptions {
  readonly keys: HubKeys;
  readonly process: string;
  /** @throws while Redis is unavailable */
  readonly session: () => Session;
  readonly log: Logger;
}

/**
 * Signals to the hubs of all nodes, in a stream next to the history. Nodes that were unavailable read them
 * later.
 */
export class RedisSignals extends ServerSignals<Session> {
  readonly #options: RedisSignalsOptions;
  /** Stream id of the last signal that was read. */
  last = '0';

  constructor(options: RedisSignalsOptions) {
    super(options.log);
    this.#options = options;
  }

  async begin(session: Session): Promise<void> {
    const { signals } = this.#options.keys;
    const newest = await session.command('XREVRANGE', signals, '+', '-', 'COUNT', '1');
    const [entry] = Array.isArray(newest) ? newest : [];
    this.last = Array.isArray(entry) ? String(entry[0]) : '0';
  }

  /** Only after it may entries of the history be delivered. */
  async catchUp(session: Session): Promise<void> {
    const { signals } = this.#options.keys;
    for (let count = AT_ONCE; count === AT_ONCE; ) {
      const from = `(${this.last}`;
      const reply = await session.command('XRANGE', signals, from, '+', 'COUNT', String(AT_ONCE));
      const entries = listOf(reply);
      this.take(entries);
      count = entries.length;
    }
  }

  /** Delivers entries of the stream, except those of this process and those that another read has delivered. */
  take(entries: readonly unknown[]): void {
    for (const entry of entries) {
      if (!Array.isArray(entry)) continue;
      const [place, fields] = entry;
      if (!isAfter(String(place), this.last)) continue;
      this.last = String(place);
      if (!Array.isArray(fields)) continue;
      const [, process, , message] = fields;
      if (process !== this.#options.process) this.listener(String(message));
    }
  }

  protected async store(message: string): Promise<void> {
    const { keys, process, session } = this.#options;
    const bound = ['MAXLEN', '~', String(KEPT)];
    await session().command('XADD', keys.signals, ...bound, '*', 'p', process, 'm', message);
  }
}

/** Whether an id of a stream, `<milliseconds>-<number>`, comes after another one. */
function isAfter(id: string, other: string): boolean {
  const [ms = 0, number = 0] = id.split('-').map(Number);
  const [otherMs = 0, otherNumber = 0] = other.split('-').map(Number);
  return ms === otherMs ? number > otherNumber : ms > otherMs;
}
