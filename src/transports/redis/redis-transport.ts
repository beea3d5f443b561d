import { createHash, randomUUID } from 'node:crypto';
import {
  type Evicted,
  type LogEntry,
  type Missed,
  ONCE_UPDATES,
  type Transport,
  type TransportCounts,
} from '../../hub/transport.ts';
import { isPossibleId, type Update } from '../../hub/update.ts';
import type { Clock } from '../../kernel/clock.ts';
import { HubgateError } from '../../kernel/error.ts';
import type { Logger } from '../../kernel/log.ts';
import { Sessions } from '../../kernel/sessions.ts';
import { GroupCommit } from '../group-commit.ts';
import { BlockingReader } from './blocking-reader.ts';
import { GroupAppend } from './group-append.ts';
import { HandedOut } from '../handed-out.ts';
import { hubKeys, type HubKeys } from './keys.ts';
import type { RedisPlace } from './primary.ts';
import { ReadBacks } from '../read-backs.ts';
import { RedisPresence } from './redis-presence.ts';
import { RedisSignals } from './redis-signals.ts';
import { listOf } from './stored-entry.ts';
import { COUNT } from './scripts.ts';
import { refusalOf, Session } from './session.ts';
import { StoredLog } from './stored-log.ts';

export interface RedisTransportOptions extends RedisPlace {
  /** Prefix of the hub's keys. */
  readonly stream: string;
  /** Updates to keep; 0 keeps all. */
  readonly maxLength: number;
  /** Milliseconds to keep an update; 0 keeps it forever. */
  readonly maxAgeMs: number;
  /** Replicas that must have an update before it is delivered and acknowledged. */
  readonly replicas: number;
  readonly random: () => number;
  readonly clock: Clock;
  /** Clock for the heartbeat of presence; defaults to the other clock. */
  readonly presenceClock?: Clock;
  readonly log: Logger;
}

/** How long a client waits if another node has already delivered the entry of its cursor. */
const CATCH_UP_MS = 5000;

/**
 * A history in Redis or Valkey that the hubs of many machines share. One connection reads, with blocking
 * commands, for this process, and the entries that it reads are delivered. After every connection, and every
 * few seconds, the reader verifies that this is the history that was read: each entry has a random key and
 * contains that of its predecessor. If not, the history has lost its end, and the entries that replace it are
 * delivered.
 *
 * @throws HubgateError `transport-failed`, `history-too-new`
 */
export async function openRedisTransport(options: RedisTransportOptions): Promise<Transport> {
  const transport = new RedisTransport(options);
  await transport.open();
  return transport;
}

class RedisTransport implements Transport {
  readonly presence: RedisPresence;
  readonly signals: RedisSignals;
  readonly #keys: HubKeys;
  readonly #sessions: Sessions<Session>;
  readonly #storedLog: StoredLog;
  readonly #handedOut = new HandedOut();
  readonly #readBacks: ReadBacks;
  readonly #reader: BlockingReader;
  readonly #commits: GroupCommit;
  #closing: Promise<void> | undefined;
  #isClosed = false;
  /** The last request for the end of the history, and the next one, which several callers share. */
  #look: Promise<void> = Promise.resolve();
  #nextLook: Promise<void> | null = null;
  /** Announces the arrivals and departures that happened while Redis was unavailable. */
  #announce: () => void = () => {};

  constructor(options: RedisTransportOptions) {
    const { clock, random, log, replicas, maxLength, maxAgeMs } = options;
    const keys = hubKeys(options.stream);
    const sessions = new Sessions({
      store: 'Redis',
      meanwhile: 'the hub refuses publications',
      connect: () => Session.open(options, keys.log, clock),
      isElsewhere: (error) => refusalOf(error).isElsewhere,
      ...{ clock, random, log },
    });
    const process = randomUUID();
    const session = () => sessions.live();
    const beat = options.presenceClock ?? clock;
    this.presence = new RedisPresence({ keys, process, session, clock: beat, log });
    const signals = new RedisSignals({ keys, process, session });
    const storedLog = new StoredLog(keys);
    const handedOut = this.#handedOut;
    const readBacks = new ReadBacks(clock);
    const read = { keys, replicas, handedOut, readBacks };
    this.#reader = new BlockingReader({ ...read, storedLog, signals, log });
    const append = new GroupAppend({ ...read, signals, maxLength, maxAgeMs, sessions, clock });
    // A group must not evict its own entries before the reader has seen them.
    const most = maxLength === 0 ? Infinity : maxLength;
    this.#commits = new GroupCommit((group) => append.store(group), clock, most);
    this.mostOnce = Math.min(most, ONCE_UPDATES);
    this.signals = signals;
    this.#keys = keys;
    this.#sessions = sessions;
    this.#storedLog = storedLog;
    this.#readBacks = readBacks;
  }

  /** Connects for the first time. Entries that exist by then are not delivered. */
  open(): Promise<void> {
    return this.#sessions.open({
      begin: (session) => this.#reader.begin(session),
      resume: async (session) => {
        // Must be first: replays continue as soon as the session is in use.
        await this.signals.catchUp(session);
        await this.#reader.reconcile(session);
        this.#announce = await this.presence.restore(session);
      },
      follow: (session) => {
        this.#announce();
        this.#announce = () => {};
        return this.#reader.follow(session);
      },
      ended: () => this.#readBacks.end(),
    });
  }

  get position(): number {
    return this.#handedOut.position;
  }

  get lastEventId(): string | null {
    return this.#handedOut.lastEventId;
  }

  get lastUpdateId(): string | null {
    return this.#handedOut.lastUpdateId;
  }

  async evicted(): Promise<Evicted> {
    this.#refuseClosed();
    const { positions } = this.#handedOut;
    const stored = await this.#sessions.ask((session) => this.#storedLog.evicted(session));
    return { updates: positions.seen(stored.updates), events: positions.seen(stored.events) };
  }

  tail(
    listener: (entries: readonly LogEntry[]) => void,
    overtaken: (missed: Missed) => void = () => {},
  ): void {
    this.#reader.deliver = listener;
    this.#reader.overtaken = overtaken;
  }

  async append(update: Update): Promise<void> {
    this.#refuseClosed();
    await this.#commits.append(update);
  }

  readonly mostOnce: number;

  async appendOnce(updates: readonly Update[]): Promise<void> {
    this.#refuseClosed();
    await this.#commits.appendOnce(updates);
  }

  async find(eventId: string): Promise<number | null> {
    this.#refuseClosed();
    if (!isPossibleId(eventId)) return null;
    const stored = await this.#sessions.ask((session) => this.#storedLog.find(session, eventId));
    if (stored === null) return null;
    // Another node has already delivered it. A client that continues after it must not get it again.
    if (stored > this.#handedOut.stored) await this.#reached(stored);
    return this.#handedOut.positions.seen(stored);
  }

  async read(after: number, limit: number, bytes = Infinity): Promise<readonly LogEntry[]> {
    this.#refuseClosed();
    const range = [this.#handedOut.positions.after(after), this.#handedOut.stored] as const;
    if (range[0] > range[1]) return [];
    const entries = await this.#sessions.ask((session) =>
      this.#storedLog.page(session, range, limit, bytes),
    );
    return entries.map((entry) => this.#handedOut.seen(entry));
  }

  readonly counts: TransportCounts = {
    count: async (key, events, windowMs) => {
      const digest = createHash('sha256').update(key).digest('base64url');
      const place = `${this.#keys.counts}:${digest}`;
      const args = [String(windowMs), String(events)];
      const reply = await this.#sessions.ask((session) => session.run(COUNT, [place], args));
      const [current = 0, previous = 0, elapsedMs = 0] = listOf(reply).map(Number);
      return { current, previous, elapsedMs };
    },
  };

  caughtUp(): Promise<void> {
    this.#refuseClosed();
    // What was asked before this call may not know of what somebody has heard since; what is asked next does.
    this.#nextLook ??= (async () => {
      await this.#look.catch(() => {});
      this.#nextLook = null;
      this.#look = this.#catchUp();
      await this.#look;
    })();
    return this.#nextLook;
  }

  async #catchUp(): Promise<void> {
    const { position } = await this.#sessions.ask((session) => this.#storedLog.end(session));
    if (position > this.#handedOut.stored) await this.#reached(position);
  }

  wake(): void {
    // Not needed: the server notifies the reader.
  }

  async check(): Promise<void> {
    this.#refuseClosed();
    await this.#sessions.ask((session) => session.command('INCR', this.#keys.probe));
  }

  close(): Promise<void> {
    this.#closing ??= this.#finish();
    return this.#closing;
  }

  async #finish(): Promise<void> {
    // An active session completes pending appends; a lost one is not replaced any more.
    this.#sessions.openNoMore();
    // Departures are announced in the history.
    await this.presence.close();
    this.#isClosed = true;
    await this.#commits.drained();
    await this.#sessions.close();
  }

  /** @throws HubgateError `transport-failed` if the reader does not reach it in time */
  async #reached(position: number): Promise<void> {
    const behind = new HubgateError('transport-failed', 'This node is behind the history in Redis');
    await this.#readBacks.wait({ position, key: null }, CATCH_UP_MS, behind);
  }

  #refuseClosed(): void {
    if (this.#isClosed) {
      throw new HubgateError('transport-closed', 'The connection to Redis is closed');
    }
  }
}
