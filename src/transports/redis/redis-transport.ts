import { createHash, randomBytes, randomUUID } from 'node:crypto';
import type { LogEntry, Transport, TransportCounts } from '../../hub/transport.ts';
import { isPossibleId, type Update } from '../../hub/update.ts';
import type { Clock } from '../../kernel/clock.ts';
import { HubgateError, messageOf } from '../../kernel/error.ts';
import type { Logger } from '../../kernel/log.ts';
import { GroupCommit } from '../group-commit.ts';
import { hubKeys, type HubKeys } from './keys.ts';
import { Positions } from './positions.ts';
import type { RedisPlace } from './primary.ts';
import { RecentEntries } from './recent-entries.ts';
import { RedisPresence } from './redis-presence.ts';
import { RedisSignals } from './redis-signals.ts';
import { APPEND, COUNT, FORMAT, READ } from './scripts.ts';
import { Session } from './session.ts';
import { decodeEntry, encodeRest, placeOf, type StoredEntry } from './stored-entry.ts';

export interface RedisTransportOptions extends RedisPlace {
  /** Prefix of the hub's keys. */
  readonly stream: string;
  /** Updates kept; 0 keeps all. */
  readonly maxLength: number;
  /** Milliseconds that an update is kept; 0 keeps it for ever. */
  readonly maxAgeMs: number;
  /** Replicas that must have an update before it is handed out and acknowledged. */
  readonly replicas: number;
  readonly random: () => number;
  readonly clock: Clock;
  /** Turns the heartbeat of presence; the other clock when it is left out. */
  readonly presenceClock?: Clock;
  readonly log: Logger;
}

/** How long one read waits for the next entry; then the log is looked at whether it is still the same. */
const BLOCK_MS = 5000;
/** Entries handed out at once. */
const ENTRIES_AT_ONCE = 128;
/** How long a group waits for its replicas. */
const WAIT_MS = 2000;
/** How long a group whose answer was lost is tried again. */
const RETRY_MS = 8000;
/** How long a client waits whose cursor another node has given out already. */
const CATCH_UP_MS = 5000;
const MIN_BACKOFF_MS = 50;
const MAX_BACKOFF_MS = 2000;
/** Evicted beyond what is appended, so that a lowered limit never blocks the server. */
const EVICTED_EXTRA = 64;

/** What a server says of a command that it has not carried out. */
const NOT_DONE =
  /^(?:READONLY|MOVED|ASK|CLUSTERDOWN|TRYAGAIN|LOADING|MASTERDOWN|NOREPLICAS|NOSCRIPT|UNBLOCKED|BUSY|OOM|MISCONF|NOPERM|NOAUTH|WRONGTYPE|TOONEW)/;
/** Of these, those that another server, or this one a little later, would carry out. */
const ELSEWHERE =
  /^(?:READONLY|MOVED|ASK|CLUSTERDOWN|TRYAGAIN|LOADING|MASTERDOWN|NOSCRIPT|UNBLOCKED)/;

/**
 * What a server says. Redis 6 wraps what a command in a script was refused with; it refuses only the
 * first that writes, so nothing has been carried out then either.
 */
function saidOf(error: unknown): string {
  const message = messageOf(error);
  return /^ERR Error running script .*@user_script: ?\d+: -(.+)$/s.exec(message)?.[1] ?? message;
}

/**
 * A log in Redis or Valkey that the hubs of many machines share. One connection reads, blocking,
 * for this process; what it has read is handed out. After every connection, and every few seconds,
 * it is made sure that the log is the one that was read: each entry has a random key and names the
 * one before it. Where it is not, the log has lost its end, and what replaced that is handed out.
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
  readonly #options: RedisTransportOptions;
  readonly #keys: HubKeys;
  readonly #commits: GroupCommit;
  readonly #positions = new Positions();
  readonly #recent = new RecentEntries();
  readonly #awaited: Awaited[] = [];
  #session: Session | null = null;
  #sessionWaiters: (() => void)[] = [];
  /** The last entry that was handed out, as it is stored. */
  #stored = 0;
  #position = 0;
  #lastEventId: string | null = null;
  #deliver: (entries: readonly LogEntry[]) => void = () => {};
  #closing = false;
  #closed: Promise<void> | undefined;
  #living: Promise<void> | undefined;
  #stopBackoff: () => void = () => {};

  constructor(options: RedisTransportOptions) {
    this.#options = options;
    this.#keys = hubKeys(options.stream);
    const { clock, log, maxLength } = options;
    // A group must not evict what it has added before the reader has seen it.
    const most = maxLength === 0 ? Infinity : maxLength;
    this.#commits = new GroupCommit((group) => this.#commit(group), clock, most);
    const process = randomUUID();
    const session = (): Session => this.#live();
    const beat = options.presenceClock ?? clock;
    this.presence = new RedisPresence({ keys: this.#keys, process, session, clock: beat, log });
    this.signals = new RedisSignals({ keys: this.#keys, process, session });
  }

  /** Connects for the first time; what the log holds by then is the past. */
  async open(): Promise<void> {
    const { clock } = this.#options;
    const session = await Session.open(this.#options, this.#keys.log, clock);
    try {
      await this.#begin(session);
    } catch (error) {
      session.close();
      throw error;
    }
    this.#living = this.#liveOn(session);
  }

  get position(): number {
    return this.#position;
  }

  get lastEventId(): string | null {
    return this.#lastEventId;
  }

  tail(listener: (entries: readonly LogEntry[]) => void): void {
    this.#deliver = listener;
  }

  async append(update: Update): Promise<void> {
    this.#refuseClosed();
    await this.#commits.append(update);
  }

  async find(eventId: string): Promise<number | null> {
    this.#refuseClosed();
    if (!isPossibleId(eventId)) return null;
    const found = await this.#asked(this.#live().command('HGET', this.#keys.ids, eventId));
    if (typeof found !== 'string') return null;
    const stored = Number(found);
    // Another node has handed it out already; who goes on behind it must not be given it again.
    if (stored > this.#stored) await this.#reached(stored);
    return this.#positions.seen(stored);
  }

  async read(after: number, limit: number, bytes = Infinity): Promise<readonly LogEntry[]> {
    this.#refuseClosed();
    const first = this.#positions.after(after);
    const last = this.#stored;
    if (first > last) return [];
    const range = [placeOf(first), placeOf(last), String(limit), finite(bytes)];
    const reply = await this.#asked(this.#live().run(READ, [this.#keys.log], range));
    const entries = listOf(reply).map(decodeEntry);
    return entries.map((entry) => this.#seen(entry));
  }

  readonly counts: TransportCounts = {
    count: async (key, events, windowMs) => {
      const digest = createHash('sha256').update(key).digest('base64url');
      const place = `${this.#keys.counts}:${digest}`;
      const args = [String(windowMs), String(events)];
      const reply = await this.#asked(this.#live().run(COUNT, [place], args));
      const [current = 0, previous = 0, elapsedMs = 0] = listOf(reply).map(Number);
      return { current, previous, elapsedMs };
    },
  };

  wake(): void {
    // Nobody has to: the reader is told by the server.
  }

  async check(): Promise<void> {
    this.#refuseClosed();
    await this.#asked(this.#live().command('INCR', this.#keys.probe));
  }

  close(): Promise<void> {
    this.#closed ??= this.#finish();
    return this.#closed;
  }

  async #finish(): Promise<void> {
    // A session that lives finishes what was appended; a lost one is not followed by another.
    this.#closing = true;
    this.#stopBackoff();
    for (const waiter of this.#sessionWaiters.splice(0)) waiter();
    await this.#commits.drained();
    await this.presence.close();
    this.#session?.close();
    await this.#living;
  }

  /** @throws HubgateError `transport-failed` while Redis is away */
  #live(): Session {
    if (this.#session !== null && !this.#session.isLost) return this.#session;
    throw new HubgateError('transport-failed', 'Redis is away');
  }

  async #asked<Reply>(reply: Promise<Reply>): Promise<Reply> {
    try {
      return await reply;
    } catch (cause) {
      if (ELSEWHERE.test(saidOf(cause))) this.#session?.close();
      const message = `Redis has refused or not answered (${messageOf(cause)})`;
      throw new HubgateError('transport-failed', message, { cause });
    }
  }

  /** Follows the log on one session after the other until it is closed. */
  async #liveOn(first: Session): Promise<void> {
    let session: Session | null = first;
    let failures = 0;
    for (;;) {
      if (session !== null) {
        failures = 0;
        const reason = await this.#follow(session);
        session.close();
        this.#session = null;
        if (!this.#closing) {
          const message = 'Redis is away; publishes are refused until it is back';
          this.#options.log.warn(message, { reason });
        }
      }
      // It may have been closed while it was opened anew.
      if (this.#closing) break;
      await this.#backOff(failures);
      if (this.#closing) break;
      failures += 1;
      session = await this.#reopen(failures);
    }
    const why = uncertain('it was not read back before the end');
    for (const { reject } of this.#awaited.splice(0)) reject(why);
  }

  async #reopen(attempt: number): Promise<Session | null> {
    const { clock, log } = this.#options;
    let session: Session | null = null;
    try {
      session = await Session.open(this.#options, this.#keys.log, clock);
      await this.#reconcile(session);
      await this.presence.restore(session);
      log.info('Redis is back', { attempt });
      return session;
    } catch (error) {
      session?.close();
      const cause = error instanceof Error && error.cause !== undefined ? error.cause : error;
      log.debug('Redis is still away', { attempt, error: messageOf(cause) });
      return null;
    }
  }

  /** Longer each time, and at random, so that the nodes of a hub do not come at once. */
  async #backOff(failures: number): Promise<void> {
    const { clock, random } = this.#options;
    const longest = Math.min(MAX_BACKOFF_MS, MIN_BACKOFF_MS * 2 ** failures);
    await new Promise<void>((resolve) => {
      const cancel = clock.after(longest * (0.5 + random() / 2), resolve);
      this.#stopBackoff = () => {
        cancel();
        resolve();
      };
    });
  }

  /** Hands out what comes until the session is lost; resolves to why. */
  async #follow(session: Session): Promise<string> {
    this.#session = session;
    for (const waiter of this.#sessionWaiters.splice(0)) waiter();
    this.signals.flush();
    try {
      while (!session.isLost) {
        const reply = await session.block(
          BLOCK_MS,
          ...['XREAD', 'COUNT', String(ENTRIES_AT_ONCE), 'BLOCK', String(BLOCK_MS), 'STREAMS'],
          ...[this.#keys.log, this.#keys.signals, placeOf(this.#stored), this.signals.last],
        );
        await this.#take(session, reply);
      }
      return 'the connection is lost';
    } catch (error) {
      return messageOf(error);
    }
  }

  async #take(session: Session, reply: unknown): Promise<void> {
    const streams = listOf(reply).map((stream) => listOf(stream));
    for (const [name, entries] of streams) {
      if (name === this.#keys.signals) this.signals.take(listOf(entries));
    }
    const own = streams.find(([name]) => name === this.#keys.log);
    const entries = listOf(own?.[1]).map(decodeEntry);
    const [first] = entries;
    const follows =
      first !== undefined &&
      first.position === this.#stored + 1 &&
      first.previous === (this.#recent.keyAt(this.#stored) ?? '');
    if (!follows) {
      // Nothing came, or something that does not follow what was read.
      if (await this.#reconcile(session)) return;
      if (first === undefined) return;
    }
    if (this.#options.replicas > 0) await this.#untilReplicated(session);
    this.#give(entries);
  }

  /** An entry that is handed out must not be lost with the primary. */
  async #untilReplicated(session: Session): Promise<void> {
    const { replicas } = this.#options;
    for (;;) {
      const fence = session.block(WAIT_MS, 'INCR', this.#keys.probe);
      const count = session.block(WAIT_MS, 'WAIT', String(replicas), String(WAIT_MS));
      const [, reached] = await Promise.all([fence, count]);
      if (Number(reached) >= replicas) return;
      if (session.isLost) throw new Error('the connection is lost');
    }
  }

  #give(entries: readonly StoredEntry[]): void {
    const last = entries.at(-1);
    if (last === undefined) return;
    const seen = entries.map((entry) => this.#seen(entry));
    for (const { position, key, update } of entries) this.#recent.add(position, key, update.id);
    this.#stored = last.position;
    this.#position = this.#positions.seen(last.position);
    this.#lastEventId = last.update.id;
    this.#deliver(seen);
    const arrived = this.#awaited.filter(({ position }) => position <= this.#stored);
    for (const awaited of arrived) {
      this.#awaited.splice(this.#awaited.indexOf(awaited), 1);
      const isOwn = this.#recent.keyAt(awaited.position) === awaited.key;
      if (awaited.key === null || isOwn) awaited.resolve();
      else awaited.reject(uncertain('the log has lost it'));
    }
  }

  #seen({ position, update }: StoredEntry): LogEntry {
    return { position: this.#positions.seen(position), update };
  }

  /** Takes the log as it is: its end is where this process begins. */
  async #begin(session: Session): Promise<void> {
    const [position, key, id] = await this.#head(session);
    await this.signals.begin(session);
    this.#stored = position;
    this.#position = position;
    this.#lastEventId = id;
    if (key !== null && id !== null) this.#recent.add(position, key, id);
    const from = Math.max(1, position - this.#recent.capacity + 1);
    await this.#remember(session, from, position);
  }

  async #remember(session: Session, from: number, to: number): Promise<void> {
    if (from > to) return;
    const reply = await session.command(
      ...['XREVRANGE', this.#keys.log, placeOf(to), placeOf(from)],
      ...['COUNT', String(REMEMBERED)],
    );
    for (const entry of listOf(reply).toReversed()) {
      const { position, key, update } = decodeEntry(entry);
      this.#recent.add(position, key, update.id);
    }
  }

  /**
   * Makes sure that the log is the one that was read. Where it has lost its end, goes back to the
   * last entry that both have; true when it had to.
   */
  async #reconcile(session: Session): Promise<boolean> {
    const [top, topKey] = await this.#head(session);
    const known = this.#recent.keyAt(this.#stored);
    if (top === this.#stored && topKey === (known ?? null)) return false;
    if (this.#stored === 0) return false;
    if (top >= this.#stored) {
      const key = await this.#keyOf(session, this.#stored);
      // Evicted before this process had read on: then it cannot be compared, and need not be.
      if (key === null || key === known) return false;
    }
    const common = await this.#common(session, Math.min(top, this.#stored));
    this.#options.log.warn('The log in Redis has lost its end', {
      lost: this.#stored - common,
      replaced: top - common,
    });
    this.#positions.rewind(common, this.#position);
    this.#recent.forgetAfter(common);
    this.#stored = common;
    this.#lastEventId = this.#recent.idAt(common);
    const lost = this.#awaited.filter(({ position }) => position > common);
    for (const awaited of lost) {
      this.#awaited.splice(this.#awaited.indexOf(awaited), 1);
      awaited.reject(uncertain('the log has lost it'));
    }
    return true;
  }

  /** The last position, at most `end`, at which the log has what was read from it. */
  async #common(session: Session, end: number): Promise<number> {
    let low = Math.max(0, this.#recent.oldest - 1);
    let high = end;
    // Entries name their predecessors, so what two logs have in common is a beginning of both.
    while (low < high) {
      const middle = Math.ceil((low + high) / 2);
      const key = await this.#keyOf(session, middle);
      if (key !== null && key === this.#recent.keyAt(middle)) low = middle;
      else high = middle - 1;
    }
    return low;
  }

  async #keyOf(session: Session, position: number): Promise<string | null> {
    const place = placeOf(position);
    const [entry] = listOf(await session.command('XRANGE', this.#keys.log, place, place));
    return entry === undefined ? null : decodeEntry(entry).key;
  }

  async #head(
    session: Session,
  ): Promise<readonly [position: number, key: string | null, id: string | null]> {
    const fields = ['version', 'position', 'key', 'id'];
    const reply = await session.command('HMGET', this.#keys.meta, ...fields);
    const [version, position, key, id] = listOf(reply);
    if (version !== null && Number(version) > FORMAT) {
      throw new HubgateError(
        'history-too-new',
        'The log in Redis was written by a later version of hubgate; run that one',
      );
    }
    return [Number(position ?? 0), stringOr(key), stringOr(id)];
  }

  async #commit(group: readonly Update[]): Promise<void> {
    const { clock, replicas, maxLength, maxAgeMs } = this.#options;
    const name = randomBytes(12).toString('base64url');
    const since = placeOf(this.#stored);
    const updates = group.flatMap((update) => [update.id, encodeRest(update)]);
    const most = String(group.length + EVICTED_EXTRA);
    const limits = [String(maxLength), String(maxAgeMs), most];
    const keys = [this.#keys.log, this.#keys.ids, this.#keys.repeated, this.#keys.meta];
    const end = clock.monotonic() + RETRY_MS;
    let mayBeStored = false;
    for (;;) {
      const session = mayBeStored ? await this.#nextSession(end) : this.#live();
      if (session === null) throw uncertain('Redis went away before it could answer');
      try {
        const args = [name, mayBeStored ? since : '', ...limits, ...updates];
        const [place, count] = await session.append(APPEND, keys, args, replicas, WAIT_MS);
        if (count < replicas) throw uncertain(`only ${count} of ${replicas} replicas have it`);
        const position = Number.parseInt(String(place), 10);
        await this.#handedOut(position, `${name}:${group.length}`, end);
        return;
      } catch (error) {
        if (error instanceof HubgateError) throw error;
        const message = saidOf(error);
        if (ELSEWHERE.test(message)) session.close();
        if (NOT_DONE.test(message) && !mayBeStored) {
          const why = `The update could not be stored: Redis says ${message}`;
          throw new HubgateError('transport-failed', why, { cause: error });
        }
        // The answer is lost: the next attempt looks whether it was stored.
        mayBeStored = true;
        if (!NOT_DONE.test(message)) session.close();
        else if (!session.isLost) throw uncertain(`Redis says ${message}`);
      }
    }
  }

  /** The session that follows a lost one; null when none comes in time. */
  async #nextSession(end: number): Promise<Session | null> {
    const { clock } = this.#options;
    while (this.#session === null || this.#session.isLost) {
      const left = end - clock.monotonic();
      if (left <= 0 || this.#closing) return null;
      await new Promise<void>((resolve) => {
        const stop = clock.after(left, resolve);
        this.#sessionWaiters.push(() => {
          stop();
          resolve();
        });
      });
    }
    return this.#session;
  }

  /** @throws HubgateError `transport-failed` when the reader does not get there in time */
  async #reached(stored: number): Promise<void> {
    const behind = new HubgateError('transport-failed', 'This node is behind the log in Redis');
    await this.#readBack(stored, null, CATCH_UP_MS, behind);
  }

  /**
   * Resolves when the reader has handed out what was appended.
   *
   * @throws HubgateError `transport-uncertain` when it does not in time: others wait for their turn
   */
  async #handedOut(position: number, key: string, end: number): Promise<void> {
    if (this.#stored >= position && this.#recent.keyAt(position) === key) return;
    const left = Math.max(0, end - this.#options.clock.monotonic());
    await this.#readBack(position, key, left, uncertain('it was not read back in time'));
  }

  #readBack(
    position: number,
    key: string | null,
    limitMs: number,
    tooLate: HubgateError,
  ): Promise<void> {
    return new Promise((resolve, reject) => {
      const stop = this.#options.clock.after(limitMs, () => {
        this.#awaited.splice(this.#awaited.indexOf(awaited), 1);
        reject(tooLate);
      });
      const awaited: Awaited = {
        position,
        key,
        resolve() {
          stop();
          resolve();
        },
        reject(error) {
          stop();
          reject(error);
        },
      };
      this.#awaited.push(awaited);
    });
  }

  #refuseClosed(): void {
    if (this.#closed !== undefined) {
      throw new HubgateError('transport-closed', 'The connection to Redis is closed');
    }
  }
}

interface Awaited {
  readonly position: number;
  /** Of the entry that has to be there; null for any. */
  readonly key: string | null;
  readonly resolve: () => void;
  readonly reject: (error: unknown) => void;
}

/** Read when a process begins, so that it knows what it would have to go back to. */
const REMEMBERED = 1000;

function uncertain(why: string): HubgateError {
  return new HubgateError(
    'transport-uncertain',
    `Whether the update is stored is not known: ${why}`,
  );
}

/** Lua reads no Infinity. */
function finite(bytes: number): string {
  return String(Math.min(bytes, Number.MAX_SAFE_INTEGER));
}

function listOf(reply: unknown): readonly unknown[] {
  return Array.isArray(reply) ? reply : [];
}

function stringOr(reply: unknown): string | null {
  return typeof reply === 'string' ? reply : null;
}
