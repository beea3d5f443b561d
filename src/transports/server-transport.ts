import {
  type Evicted,
  type HistoryDatabase,
  type HistoryEntry,
  ONCE_UPDATES,
  type Tail,
  type Transport,
  type TransportCounts,
  type TransportSignals,
} from '../hub/transport.ts';
import type { PresenceBoard } from '../hub/presence-board.ts';
import { isPossibleId, type Update } from '../hub/update.ts';
import { HubgateError, ignore } from '../kernel/error.ts';
import type { StoreSession } from '../kernel/sessions.ts';
import { GroupCommit } from './group-commit.ts';
import type { ServerSignals } from './server-signals.ts';
import type { ComparedHistory } from './lost-entries.ts';
import type { GroupStoreOptions } from './read-backs.ts';

/** How long a client waits if another node has already delivered the entry of its cursor. */
const CATCH_UP_MS = 5000;
/** Entries whose keys a starting process reads, so that it knows its way back if the end is lost. */
const REMEMBERED = 1000;

/** A history that a server stores. Each method is one query on the given session. */
export interface QueriedHistory<Session> extends ComparedHistory<Session> {
  /** The earliest kept position of an id; null if there is none. */
  find(session: Session, eventId: string): Promise<number | null>;
  /** Positions of the newest evicted entries. */
  evicted(session: Session): Promise<Evicted>;
}

/** Reads the history for this process, and delivers what it reads. */
export interface ServerReader<Session> {
  /** Receives what it reads. While the tail is full, it reads only signals. */
  tail: Tail;
  /** Resolves to whether the history has lost its end. */
  reconcile(session: Session): Promise<boolean>;
  /** Delivers new entries until the session is lost; resolves to the reason. */
  follow(session: Session): Promise<string>;
  /** Looks for new entries without waiting for the server. */
  lookAgain(): void;
}

export interface ServerTransportParts<Session extends StoreSession>
  extends Pick<
    GroupStoreOptions<Session>,
    'store' | 'clock' | 'sessions' | 'delivered' | 'readBacks'
  > {
  /** Updates to keep; 0 keeps all. */
  readonly maxLength: number;
  readonly storedHistory: QueriedHistory<Session>;
  readonly reader: ServerReader<Session>;
  readonly presence: PresenceBoard & {
    /** Updates the board through a new session; the returned function announces the changes. */
    restore(session: Session): Promise<() => void>;
    close(): Promise<void>;
  };
  readonly signals: ServerSignals<Session>;
  readonly counts: TransportCounts;
  readonly database?: HistoryDatabase;
  /** Stores a group of updates. */
  readonly append: (group: readonly Update[]) => Promise<void>;
  /** The first use of each session. */
  readonly prepare: (session: Session) => Promise<void>;
  /** Checks that the history can be written. */
  readonly check: (session: Session) => Promise<void>;
}

/**
 * A history on a server that the hubs of many machines share, whatever the server is. It survives the loss of its
 * connections: publications are refused until the server is back, and streams stay open.
 */
export class ServerTransport<Session extends StoreSession> implements Transport {
  readonly presence: PresenceBoard;
  readonly signals: TransportSignals;
  readonly counts: TransportCounts;
  readonly database?: HistoryDatabase;
  readonly maxPublishOnce: number;
  readonly #parts: ServerTransportParts<Session>;
  readonly #commits: GroupCommit;
  #closing: Promise<void> | undefined;
  #isClosed = false;
  /** The last request for the end of the history, and the next one, which several callers share. */
  #look: Promise<void> = Promise.resolve();
  #nextLook: Promise<void> | null = null;
  /** Announces the arrivals and departures that happened while the server was unavailable. */
  #announce: () => void = () => {};

  constructor(parts: ServerTransportParts<Session>) {
    this.#parts = parts;
    this.presence = parts.presence;
    this.signals = parts.signals;
    this.counts = parts.counts;
    if (parts.database !== undefined) this.database = parts.database;
    // A group must not evict its own entries before the reader has seen them.
    const most = parts.maxLength === 0 ? Infinity : parts.maxLength;
    this.#commits = new GroupCommit(parts.append, parts.clock, most);
    this.maxPublishOnce = Math.min(most, ONCE_UPDATES);
  }

  /** Connects for the first time. Entries that exist by then are not delivered. */
  open(): Promise<void> {
    const { sessions, reader, presence, signals, readBacks, prepare } = this.#parts;
    return sessions.open({
      begin: async (session) => {
        await prepare(session);
        await this.#begin(session);
      },
      resume: async (session) => {
        await prepare(session);
        // Must be before the rest: replays continue as soon as the session is in use.
        await signals.resume(session);
        await reader.reconcile(session);
        this.#announce = await presence.restore(session);
      },
      follow: (session) => {
        this.#announce();
        this.#announce = () => {};
        return reader.follow(session);
      },
      ended: () => readBacks.end(),
    });
  }

  get position(): number {
    return this.#parts.delivered.position;
  }

  get lastEventId(): string | null {
    return this.#parts.delivered.lastEventId;
  }

  get lastUpdateId(): string | null {
    return this.#parts.delivered.lastUpdateId;
  }

  async evicted(): Promise<Evicted> {
    this.#refuseClosed();
    const { sessions, storedHistory, delivered } = this.#parts;
    const stored = await sessions.ask((session) => storedHistory.evicted(session));
    const { positions } = delivered;
    return { updates: positions.seen(stored.updates), events: positions.seen(stored.events) };
  }

  tail(tail: Tail): void {
    this.#parts.reader.tail = tail;
  }

  async append(update: Update): Promise<void> {
    this.#refuseClosed();
    await this.#commits.append(update);
  }

  async appendOnce(updates: readonly Update[]): Promise<void> {
    this.#refuseClosed();
    await this.#commits.appendOnce(updates);
  }

  async find(eventId: string): Promise<number | null> {
    this.#refuseClosed();
    if (!isPossibleId(eventId)) return null;
    const { sessions, storedHistory, delivered } = this.#parts;
    const stored = await sessions.ask((session) => storedHistory.find(session, eventId));
    if (stored === null) return null;
    // Another node has already delivered it. A client that continues after it must not get it again.
    if (stored > delivered.stored) await this.#reached(stored);
    return delivered.positions.seen(stored);
  }

  async read(after: number, limit: number, bytes = Infinity): Promise<readonly HistoryEntry[]> {
    this.#refuseClosed();
    const { sessions, storedHistory, delivered } = this.#parts;
    const range = [delivered.positions.after(after), delivered.stored] as const;
    if (range[0] > range[1]) return [];
    const entries = await sessions.ask((session) =>
      storedHistory.page(session, range, limit, bytes),
    );
    return entries.map((entry) => delivered.seen(entry));
  }

  caughtUp(): Promise<void> {
    this.#refuseClosed();
    // What was asked before this call may not know of what somebody has heard since; what is asked next does.
    this.#nextLook ??= (async () => {
      await this.#look.catch(ignore);
      this.#nextLook = null;
      this.#look = this.#catchUp();
      await this.#look;
    })();
    return this.#nextLook;
  }

  wake(): void {
    this.#parts.reader.lookAgain();
  }

  async check(): Promise<void> {
    this.#refuseClosed();
    await this.#parts.sessions.ask((session) => this.#parts.check(session));
  }

  close(): Promise<void> {
    this.#closing ??= this.#finish();
    return this.#closing;
  }

  /**
   * This process begins at the end of the current history.
   *
   * @throws HubgateError `history-too-new`
   */
  async #begin(session: Session): Promise<void> {
    const { storedHistory, delivered, signals } = this.#parts;
    const end = await storedHistory.end(session);
    await signals.begin(session);
    delivered.beginAt(end);
    const from = Math.max(1, end.position - delivered.recent.capacity + 1);
    delivered.remember(await storedHistory.newest(session, [from, end.position], REMEMBERED));
  }

  async #finish(): Promise<void> {
    const { sessions, presence, signals } = this.#parts;
    // An active session completes pending appends; a lost one is not replaced any more.
    sessions.openNoMore();
    // Departures are announced in the history.
    await presence.close();
    this.#isClosed = true;
    await this.#commits.drained();
    await sessions.close();
    signals.end();
  }

  async #catchUp(): Promise<void> {
    const { sessions, storedHistory, delivered, signals } = this.#parts;
    const [{ position }] = await sessions.ask((session) =>
      Promise.all([storedHistory.end(session), signals.catchUp(session)]),
    );
    if (position > delivered.stored) await this.#reached(position);
  }

  /** @throws HubgateError `transport-failed` if the reader does not reach it in time */
  async #reached(position: number): Promise<void> {
    const { store, reader, readBacks } = this.#parts;
    reader.lookAgain();
    const message = `This node is behind the history in ${store}`;
    const behind = new HubgateError('transport-failed', message);
    await readBacks.wait({ position, key: null }, CATCH_UP_MS, behind);
  }

  #refuseClosed(): void {
    if (!this.#isClosed) return;
    const message = `The connection to ${this.#parts.store} is closed`;
    throw new HubgateError('transport-closed', message);
  }
}
