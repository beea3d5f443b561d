import { randomUUID } from 'node:crypto';
import type { Clock } from '../kernel/clock.ts';
import { HubgateError, messageOf } from '../kernel/error.ts';
import type { Logger } from '../kernel/log.ts';
import { TimerWheel, type WheelTimer } from '../kernel/timer-wheel.ts';
import { encodeEvent, HEARTBEAT } from './event-stream.ts';
import { mayReceive, type Grants } from './grants.ts';
import { LogReader } from './log-reader.ts';
import { matches } from './matcher.ts';
import {
  type PresenceNames,
  subscriptionEvent,
  type SubscriptionRecord,
  subscriptionRecords,
} from './presence.ts';
import {
  type EndReason,
  type EventSink,
  Subscriber,
  type SubscriberOptions,
} from './subscriber.ts';
import { SubscriptionIndex } from './subscription-index.ts';
import { parseTopic, type Topic } from './topic.ts';
import type { LogEntry, Transport } from './transport.ts';
import { EARLIEST, type Update } from './update.ts';

/** Precision of heartbeats and deadlines. */
const WHEEL_TICK_MS = 50;
/** What a replay writes before it waits for the client to take it; one event may exceed it. */
const REPLAY_BYTES = 64 * 1024;

export interface HubOptions {
  readonly transport: Transport;
  readonly names: PresenceNames;
  readonly clock: Clock;
  readonly log: Logger;
}

export interface SubscribeOptions extends Omit<SubscriberOptions, 'id'> {
  /** Where the client wants to go on; null when it did not say. */
  readonly lastEventId: string | null;
}

/** What a subscribe request has become. */
export interface Subscription {
  readonly subscriber: Subscriber;
  /** What the cursor header says; null when the client named no cursor. */
  readonly cursor: string | null;
  /** Gives the stream its connection. Call it once, after the head has been sent. */
  open(sink: EventSink): void;
  /** Ends the stream. */
  end(reason: EndReason): void;
}

/** Numbers for the operator; they only grow, but for `connected`. */
export interface HubCounts {
  connected: number;
  subscribers: number;
  updates: number;
}

/**
 * The publish/subscribe core. Updates go into the transport's log and come back by its tail; what
 * comes back is delivered, so that live delivery and replay cannot disagree. A subscriber with a
 * cursor reads the log until it has reached the tail and, in that same turn, joins the live ones.
 */
export class Hub {
  readonly counts: HubCounts = { connected: 0, subscribers: 0, updates: 0 };
  readonly #transport: Transport;
  readonly #names: PresenceNames;
  readonly #clock: Clock;
  readonly #log: Logger;
  readonly #wheel: TimerWheel;
  readonly #index = new SubscriptionIndex();
  readonly #subscribers = new Map<Subscriber, WheelTimer[]>();
  readonly #reader: LogReader;
  #dirty: Subscriber[] = [];
  #flushScheduled = false;
  #dispatches = 0;
  #emptied: () => void = () => {};
  /** Draining or closed: nobody may come any more. */
  #leaving = false;

  constructor(options: HubOptions) {
    this.#transport = options.transport;
    this.#names = options.names;
    this.#clock = options.clock;
    this.#log = options.log;
    this.#wheel = new TimerWheel(options.clock, WHEEL_TICK_MS);
    this.#reader = new LogReader(options.transport);
    this.#transport.tail((entries) => {
      for (const entry of entries) this.#dispatch(entry);
    });
    this.#transport.presence.watch((records, active) => {
      const changed = records.map((record) => ({ ...record, active }));
      this.#tell(changed).catch((error: unknown) => this.#untold(error));
    });
  }

  /** The hub-wide cursor: id of the last update dispatched here, or `earliest` before the first. */
  get lastEventId(): string {
    return this.#transport.lastEventId ?? EARLIEST;
  }

  /**
   * Stores an update; it is delivered from the log.
   *
   * @throws HubgateError `transport-closed` or `transport-failed`; nobody has received it then
   */
  async publish(update: Update): Promise<void> {
    await this.#transport.append(update);
    this.counts.updates += 1;
  }

  /**
   * Registers a subscriber. Every update that is published after this has resolved reaches it, if
   * its matchers and grants select it.
   *
   * @throws HubgateError `transport-closed` or `transport-failed`
   */
  async subscribe(options: SubscribeOptions): Promise<Subscription> {
    const found = await this.#locate(options.lastEventId);
    const cursor = cursorAnswer(options.lastEventId, found);
    if (this.#leaving) throw new HubgateError('transport-closed', 'The hub is closed');
    const start = found ?? this.#transport.position;
    const id = `urn:uuid:${randomUUID()}`;
    const subscriber = new Subscriber({ ...options, id }, start, this.#clock.monotonic());
    const behind = start < this.#transport.position;
    if (!behind) this.#index.add(subscriber);
    this.#register(subscriber);
    try {
      await this.#announce(subscriber, true);
    } catch (error) {
      this.#end(subscriber, 'failed');
      throw error;
    }
    return {
      subscriber,
      cursor,
      open: (sink) => {
        subscriber.open(sink);
        this.#armHeartbeat(subscriber);
        if (behind) void this.#catchUp(subscriber);
        else this.#flush(subscriber);
      },
      end: (reason) => this.#end(subscriber, reason),
    };
  }

  /**
   * What the cursor header would say, without subscribing.
   *
   * @throws HubgateError `transport-closed` or `transport-failed`
   */
  async cursor(lastEventId: string | null): Promise<string | null> {
    return cursorAnswer(lastEventId, await this.#locate(lastEventId));
  }

  /**
   * The active subscriptions of all who are announced, on every process that shares the log, in
   * the order in which they connected.
   *
   * @throws HubgateError `transport-closed`
   */
  subscriptions(): Promise<readonly SubscriptionRecord[]> {
    return this.#transport.presence.list();
  }

  /**
   * Ends the streams that `keep` refuses, spread evenly at random over `spreadMs`, and says how many.
   */
  reauthorise(keep: (subscriber: SubscriberOptions) => boolean, spreadMs: number): number {
    let ending = 0;
    for (const subscriber of this.#subscribers.keys()) {
      if (keep(subscriber.options)) continue;
      ending += 1;
      const delay = Math.floor(Math.random() * spreadMs);
      this.#timer(subscriber, delay, () => this.#end(subscriber, 'reauthorised'));
    }
    return ending;
  }

  /** Ends at once the streams that were opened with the token of this `jti`, and says how many. */
  revoke(tokenId: string): number {
    return this.#revoke((options) => options.tokenId === tokenId);
  }

  /** Ends at once the streams of a browser session that is over, and says how many. */
  signOut(session: string): number {
    return this.#revoke((options) => options.session === session);
  }

  /** @throws HubgateError when the transport does not work */
  check(): Promise<void> {
    return this.#transport.check();
  }

  /** Ends every stream, spread over `spreadMs`, and resolves when the last has ended. */
  async drain(spreadMs: number): Promise<void> {
    this.#leaving = true;
    if (spreadMs === 0) this.#endAll();
    else this.reauthorise(() => false, spreadMs);
    if (this.#subscribers.size === 0) return;
    await new Promise<void>((resolve) => {
      this.#emptied = resolve;
    });
  }

  /** Ends every stream at once and closes nothing else: the transport belongs to who opened it. */
  close(): void {
    this.#leaving = true;
    this.#endAll();
    this.#wheel.close();
  }

  #endAll(): void {
    for (const subscriber of this.#subscribers.keys()) this.#end(subscriber, 'closed');
  }

  /** The position after which to replay; null when the log does not know the cursor. */
  async #locate(lastEventId: string | null): Promise<number | null> {
    if (lastEventId === null || lastEventId === '') return null;
    if (lastEventId === EARLIEST) return 0;
    return this.#transport.find(lastEventId);
  }

  #register(subscriber: Subscriber): void {
    this.#subscribers.set(subscriber, []);
    this.counts.connected += 1;
    this.counts.subscribers += 1;
    const { lifetimeMs } = subscriber.options;
    if (lifetimeMs === null) return;
    this.#timer(subscriber, lifetimeMs, () => this.#end(subscriber, 'deadline'));
  }

  async #announce(subscriber: Subscriber, active: boolean): Promise<void> {
    if (!subscriber.options.announced) return;
    const records = subscriptionRecords(subscriber, this.#names, active);
    const { presence } = this.#transport;
    // In this order, and both in this turn: a transport that closes now still takes them.
    await Promise.all([
      active ? presence.enter(subscriber.id, records) : presence.leave(subscriber.id),
      this.#tell(records),
    ]);
  }

  /** Publishes what has changed, so that those who may read it know. */
  async #tell(records: readonly SubscriptionRecord[]): Promise<void> {
    await Promise.all(
      records.map((record) =>
        this.#transport.append(subscriptionEvent(record, this.#names, `urn:uuid:${randomUUID()}`)),
      ),
    );
  }

  #dispatch({ update }: LogEntry): void {
    this.#dispatches += 1;
    const dispatch = this.#dispatches;
    const topics = update.topics.map((text) => parseTopic(text, this.#names.base));
    const allowed = new Map<Grants, boolean>();
    let event: Buffer | undefined;
    this.#index.select(topics, (subscriber) => {
      if (subscriber.selectedBy === dispatch || subscriber.ended !== null) return;
      subscriber.selectedBy = dispatch;
      if (update.private && !this.#mayReceive(subscriber.options.grants, topics, allowed)) return;
      event ??= encodeEvent(update);
      this.#deliver(subscriber, event);
    });
  }

  /** Subscribers with equal tokens share their grants, so one check serves them all. */
  #mayReceive(grants: Grants, topics: readonly Topic[], known: Map<Grants, boolean>): boolean {
    const present = known.get(grants);
    if (present !== undefined) return present;
    const allowed = mayReceive(grants, topics);
    known.set(grants, allowed);
    return allowed;
  }

  #deliver(subscriber: Subscriber, event: Buffer): void {
    // Who has something queued already is on the list of this turn, or has no connection yet.
    if (!subscriber.hasQueued) this.#dirty.push(subscriber);
    const fits = subscriber.push(event);
    if (!fits) {
      // Ended, not lost: the client resumes by the cursor of the last event it received.
      this.#log.warn('A slow subscriber was disconnected', {
        subscriber: subscriber.id,
        bufferedBytes: subscriber.bufferedBytes,
      });
      this.#end(subscriber, 'slow');
      return;
    }
    if (this.#flushScheduled) return;
    this.#flushScheduled = true;
    setImmediate(() => this.#flushAll());
  }

  #flushAll(): void {
    this.#flushScheduled = false;
    const dirty = this.#dirty;
    this.#dirty = [];
    for (const subscriber of dirty) this.#flush(subscriber);
  }

  #flush(subscriber: Subscriber): void {
    if (subscriber.flush(this.#clock.monotonic()) || subscriber.draining) return;
    this.#expectDrain(subscriber, () => {});
  }

  /** Writes what is queued and resolves when the connection wants more. */
  async #drained(subscriber: Subscriber): Promise<void> {
    if (subscriber.flush(this.#clock.monotonic())) return;
    await new Promise<void>((resolve) => this.#expectDrain(subscriber, resolve));
  }

  /** Breaks off a client that takes nothing for longer than it may; a slow one that takes some stays. */
  #expectDrain(subscriber: Subscriber, drained: () => void): void {
    const { dispatchTimeoutMs } = subscriber.options;
    let taken = subscriber.takenBytes;
    const check = (): void => {
      if (subscriber.takenBytes > taken) {
        taken = subscriber.takenBytes;
        timer = this.#wheel.after(dispatchTimeoutMs, check);
        return;
      }
      this.#end(subscriber, 'slow');
      subscriber.destroy();
    };
    let timer = this.#wheel.after(dispatchTimeoutMs, check);
    subscriber.onDrain(() => {
      this.#wheel.cancel(timer);
      drained();
    });
  }

  async #catchUp(subscriber: Subscriber): Promise<void> {
    try {
      while (subscriber.ended === null) {
        if (subscriber.position === this.#transport.position) {
          this.#index.add(subscriber);
          return;
        }
        const tail = this.#transport.position;
        const entries = await this.#reader.after(subscriber.position);
        for (const entry of entries) {
          this.#replay(subscriber, entry);
          if (subscriber.bufferedBytes >= REPLAY_BYTES) await this.#drained(subscriber);
        }
        // Everything up to the tail of then has been evicted; what came since is still to be read.
        if (entries.length === 0) subscriber.position = tail;
        await this.#drained(subscriber);
      }
    } catch (error) {
      this.#log.error('Replay stopped: the log cannot be read', { error: messageOf(error) });
      this.#end(subscriber, 'failed');
    }
  }

  #replay(subscriber: Subscriber, { position, update }: LogEntry): void {
    if (position <= subscriber.position) return;
    subscriber.position = position;
    const topics = update.topics.map((text) => parseTopic(text, this.#names.base));
    const wanted = subscriber.options.matchers.some((matcher) =>
      topics.some((topic) => matches(matcher, topic)),
    );
    if (!wanted) return;
    if (update.private && !mayReceive(subscriber.options.grants, topics)) return;
    subscriber.push(this.#reader.encoded(update));
  }

  #armHeartbeat(subscriber: Subscriber): void {
    const { heartbeatMs } = subscriber.options;
    if (heartbeatMs === 0 || subscriber.ended !== null) return;
    const idle = this.#clock.monotonic() - subscriber.lastWriteMs;
    if (idle >= heartbeatMs) {
      subscriber.push(HEARTBEAT);
      this.#flush(subscriber);
    }
    const next = idle >= heartbeatMs ? heartbeatMs : heartbeatMs - idle;
    this.#timer(subscriber, next, () => this.#armHeartbeat(subscriber));
  }

  /** A timer that goes with the subscriber. */
  #timer(subscriber: Subscriber, delayMs: number, task: () => void): void {
    const timers = this.#subscribers.get(subscriber);
    if (timers === undefined) return;
    const timer = this.#wheel.after(delayMs, () => {
      timers.splice(timers.indexOf(timer), 1);
      task();
    });
    timers.push(timer);
  }

  #revoke(concerns: (subscriber: SubscriberOptions) => boolean): number {
    const ending = [...this.#subscribers.keys()].filter(({ options }) => concerns(options));
    for (const subscriber of ending) this.#end(subscriber, 'revoked');
    return ending.length;
  }

  #end(subscriber: Subscriber, reason: EndReason): void {
    const timers = this.#subscribers.get(subscriber);
    if (timers === undefined) return;
    this.#subscribers.delete(subscriber);
    for (const timer of timers) this.#wheel.cancel(timer);
    this.#index.delete(subscriber);
    this.counts.connected -= 1;
    if (this.#subscribers.size === 0) this.#emptied();
    subscriber.end(reason, this.#clock.monotonic());
    if (reason !== 'client' && reason !== 'closed') {
      this.#wheel.after(subscriber.options.dispatchTimeoutMs, () => subscriber.destroy());
    }
    this.#announce(subscriber, false).catch((error: unknown) => this.#untold(error));
  }

  #untold(error: unknown): void {
    this.#log.warn('A change of subscriptions could not be announced', {
      error: messageOf(error),
    });
  }
}

/** Where the replay begins: what was asked for when the log knows it, else `earliest`. */
function cursorAnswer(asked: string | null, found: number | null): string | null {
  if (asked === null) return null;
  return found === null ? EARLIEST : asked;
}
