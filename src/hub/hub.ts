import type { Clock } from '../kernel/clock.ts';
import { HubgateError } from '../kernel/error.ts';
import type { Logger } from '../kernel/log.ts';
import { type Slices, unmetered } from '../kernel/slices.ts';
import type { TimerWheel } from '../kernel/timer-wheel.ts';
import { Admission, type KeepsStream } from './admission.ts';
import { Announcer } from './announcer.ts';
import { Delivery } from './delivery.ts';
import { comeBackLater, HEARTBEAT } from './event-stream.ts';
import { HubMeasures, type SlowReason, type StreamBacklog } from './hub-measures.ts';
import { LogReader } from './log-reader.ts';
import type { EventSink } from './outlet.ts';
import type { PresenceNames, SubscriptionRecord } from './presence.ts';
import type { PresenceMatcher, PresencePage } from './presence-board.ts';
import { Replay } from './replay.ts';
import { Roll } from './roll.ts';
import {
  type EndReason,
  Subscriber,
  type SubscriberKeeper,
  type SubscriberOptions,
} from './subscriber.ts';
import { streamBacklog } from './stream-backlog.ts';
import { SubscriptionIndex } from './subscription-index.ts';
import type { Topic } from './topic.ts';
import type { Transport } from './transport.ts';
import { EARLIEST, isPossibleId, type Update } from './update.ts';

/** What ending a stream costs, in steps. */
const END_STEPS = 500;
/** As the log says it. */
const WHY_SLOW: Readonly<Record<SlowReason, string>> = {
  buffer: 'more waits for it than max_subscriber_buffer',
  timeout: 'it has taken nothing for dispatch_timeout',
};
/** What arming a timer costs, in steps. */
const TIMER_STEPS = 30;
/** Subscribers whose subscriptions are read at once. */
const SUBSCRIBERS_AT_ONCE = 250;

export interface HubOptions {
  readonly transport: Transport;
  readonly names: PresenceNames;
  readonly clock: Clock;
  /** The one of the process. */
  readonly wheel: TimerWheel;
  /** The one of the process. */
  readonly slices: Slices;
  readonly log: Logger;
}

export interface SubscribeOptions extends SubscriberOptions {
  /** Where the client wants to go on; null when it did not say. */
  readonly lastEventId: string | null;
  /** {@link Hub.revision} before its token was looked at. */
  readonly asOf: number;
}

/** What a subscribe request has become. */
export interface Subscription {
  readonly subscriber: Subscriber;
  /** What the cursor header says; null when the client named no cursor. */
  readonly cursor: string | null;
  /** Gives the stream its connection. Call it once, after the head has been sent. */
  open(sink: EventSink): void;
  /** Instead of {@link open}, where there is no connection any more. */
  abandon(): void;
}

/** Numbers for the operator; they only grow, but for `connected`. */
export interface HubCounts {
  connected: number;
  subscribers: number;
  updates: number;
  /** Requests with a token that only a hub of 0.x accepts. */
  legacyTokens: number;
}

/**
 * The publish/subscribe core. Updates go into the transport's log and come back by its tail; what
 * comes back is delivered, so that live delivery and replay cannot disagree. A subscriber with a
 * cursor reads the log until it has reached the tail and, in that same turn, joins the live ones.
 */
export class Hub {
  readonly counts: HubCounts = { connected: 0, subscribers: 0, updates: 0, legacyTokens: 0 };
  readonly measures = new HubMeasures();
  readonly #transport: Transport;
  readonly #clock: Clock;
  readonly #wheel: TimerWheel;
  readonly #slices: Slices;
  readonly #log: Logger;
  readonly #index = new SubscriptionIndex();
  readonly #roll = new Roll();
  readonly #admission = new Admission();
  readonly #announcer: Announcer;
  readonly #delivery: Delivery;
  readonly #replay: Replay;
  #emptied: () => void = () => {};
  /** Draining or closed: nobody may come any more. */
  readonly #reader: LogReader;
  #leaving = false;

  constructor({ transport, names, clock, wheel, slices, log }: HubOptions) {
    this.#transport = transport;
    this.#clock = clock;
    this.#wheel = wheel;
    this.#slices = slices;
    this.#log = log;
    this.#announcer = new Announcer(transport, names, slices, log);
    this.#delivery = new Delivery(this.#index, names.base, slices, () => clock.monotonic(), {
      deliver: (subscriber, event) => this.#deliver(subscriber, event),
      flushed: (subscriber) => this.#flushed(subscriber),
    });
    const reader = new LogReader(transport, names.base);
    this.#reader = reader;
    this.#replay = new Replay(reader, this.#catchingUp, slices, log);
    transport.tail((entries) => this.#delivery.dispatch(entries));
  }

  /** The hub-wide cursor: id of the last update dispatched here, or `earliest` before the first. */
  get lastEventId(): string {
    return this.#transport.lastEventId ?? EARLIEST;
  }

  /** Grows with each revocation; see {@link SubscribeOptions.asOf}. */
  get revision(): number {
    return this.#admission.revision;
  }

  /**
   * Stores an update; it is delivered from the log.
   *
   * @param topics those of the update, where they have been read already
   * @throws HubgateError `transport-closed` or `transport-failed`; nobody has received it then
   */
  async publish(update: Update, topics?: readonly Topic[]): Promise<void> {
    if (topics !== undefined) this.#delivery.know(update, topics);
    await this.#append(update);
    this.counts.updates += 1;
    const room = this.#delivery.room();
    if (room !== null) await room;
  }

  async #append(update: Update): Promise<void> {
    const { measures } = this;
    const began = this.#clock.monotonic();
    try {
      await this.#transport.append(update);
    } catch (error) {
      measures.failedAppends += 1;
      throw error;
    }
    measures.store.observe((this.#clock.monotonic() - began) / 1000);
    measures.updateSize.observe(update.data.length);
  }

  /**
   * Registers a subscriber. Every update that is published after this has resolved reaches it, if
   * its matchers and grants select it.
   *
   * @throws HubgateError `transport-closed` or `transport-failed`; `not-admitted` when what stands
   *   behind it has been revoked or removed since its token was looked at
   */
  async subscribe(options: SubscribeOptions): Promise<Subscription> {
    const { lastEventId, asOf } = options;
    // Nothing to wait for where there is no cursor.
    const found = knowsNothing(lastEventId) ? null : await this.#locate(lastEventId);
    if (this.#leaving) throw new HubgateError('transport-closed', 'The hub is closed');
    if (!this.#admission.admits(options, asOf)) {
      throw new HubgateError('not-admitted', 'What let the subscriber in has gone');
    }
    const start = found ?? this.#transport.position;
    const subscriber = new Subscriber(options, start, this.#clock.monotonic(), this.#keeper);
    const behind = start < this.#transport.position;
    if (!behind) this.#index.add(subscriber);
    this.#register(subscriber);
    try {
      if (options.settings.announced) await this.#announcer.entered(subscriber);
    } catch (error) {
      this.#end(subscriber, 'failed');
      throw error;
    }
    return {
      subscriber,
      cursor: cursorAnswer(lastEventId, found),
      open: (sink) => this.#open(subscriber, sink, behind),
      abandon: () => subscriber.closed(),
    };
  }

  /** How many live streams have asked for exactly this topic. */
  interest(topic: string): number {
    return this.#index.countExact(topic);
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
   * The active subscriptions of all who are announced, on every process that shares the log: of
   * those with one matcher, or of all in the order in which they came, some at a time.
   *
   * @throws HubgateError `transport-closed`, `transport-failed`
   */
  async *subscriptions(
    matcher?: PresenceMatcher,
  ): AsyncGenerator<readonly SubscriptionRecord[], void, void> {
    const { presence } = this.#transport;
    for (let after: string | null = null, more = true; more; more = after !== null) {
      const page: PresencePage = await presence.page(after, SUBSCRIBERS_AT_ONCE, matcher);
      yield page.records;
      after = page.next;
    }
  }

  /**
   * The active subscriptions of one subscriber.
   *
   * @throws as {@link subscriptions}
   */
  subscriptionsOf(subscriber: string): Promise<readonly SubscriptionRecord[]> {
    return this.#transport.presence.of(subscriber);
  }

  /**
   * From now on `keep` decides which streams may be open: those that it refuses end, spread evenly
   * at random over `spreadMs`. Says how many there are.
   */
  reauthorise(keep: KeepsStream, spreadMs: number): number {
    this.#admission.decideBy(keep);
    const streams = this.#refusedBy(keep).map(([, subscribers]) => subscribers);
    this.#forEach(streams, TIMER_STEPS, (subscriber) => {
      const end = this.#clock.monotonic() + Math.floor(Math.random() * spreadMs);
      if (end >= subscriber.endsAtMs) return;
      subscriber.endsAtMs = end;
      subscriber.endsAs = 'reauthorised';
      this.#arm(subscriber);
    });
    return streams.reduce((sum, { size }) => sum + size, 0);
  }

  /** How many streams {@link reauthorise} would end: of those without a token, and of the others. */
  countRefused(keep: KeepsStream): { readonly anonymous: number; readonly authorised: number } {
    const counts = { anonymous: 0, authorised: 0 };
    for (const [vouchedBy, { size }] of this.#refusedBy(keep)) {
      counts[vouchedBy === null ? 'anonymous' : 'authorised'] += size;
    }
    return counts;
  }

  /** Ends at once the streams that were opened with the token of this `jti`, and says how many. */
  revoke(tokenId: string): number {
    this.#admission.revoked({ tokenId });
    return this.#endThose(this.#roll.ofToken(tokenId));
  }

  /** Ends at once the streams of a browser session that is over, and says how many. */
  signOut(session: string): number {
    this.#admission.revoked({ session });
    return this.#endThose(this.#roll.ofSession(session));
  }

  /** The position of the log that has been given out; this process's own count. */
  get logPosition(): number {
    return this.#transport.position;
  }

  /** How far behind its streams are. */
  backlog(): Promise<StreamBacklog> {
    return streamBacklog(this.#roll.all(), () => this.#clock.monotonic(), this.#slices);
  }

  /** @throws HubgateError when the transport does not work */
  check(): Promise<void> {
    return this.#transport.check();
  }

  /** Ends every stream, spread over `spreadMs`, and resolves when the last has ended. */
  async drain(spreadMs: number): Promise<void> {
    this.#leaving = true;
    // What has been acknowledged comes before the end.
    const given = this.#delivery.given();
    if (given !== null) await given;
    if (spreadMs > 0) this.reauthorise(() => false, spreadMs);
    else this.#forEach([this.#roll.all()], END_STEPS, (one) => this.#end(one, 'closed'));
    if (this.#roll.size === 0) return;
    await new Promise<void>((resolve) => {
      this.#emptied = resolve;
    });
  }

  /** Ends every stream at once and closes nothing else: the transport belongs to who opened it. */
  close(): void {
    this.#leaving = true;
    for (const subscriber of this.#roll.all()) this.#end(subscriber, 'closed');
  }

  /** The position after which to replay; null when the log does not know the cursor. */
  async #locate(lastEventId: string | null): Promise<number | null> {
    if (lastEventId === null || knowsNothing(lastEventId)) return null;
    if (lastEventId === EARLIEST) return 0;
    return this.#reader.find(lastEventId);
  }

  #refusedBy(keep: KeepsStream) {
    return [...this.#roll.vouchers()].filter(([vouchedBy]) => !keep({ vouchedBy }));
  }

  #register(subscriber: Subscriber): void {
    this.#roll.add(subscriber);
    this.counts.connected += 1;
    this.counts.subscribers += 1;
    this.#arm(subscriber);
  }

  #open(subscriber: Subscriber, sink: EventSink, behind: boolean): void {
    subscriber.outlet.open(sink, subscriber);
    if (subscriber.ended !== null) {
      sink.end();
      return;
    }
    this.#arm(subscriber);
    if (behind) this.#replay.add(subscriber);
    else this.#delivery.flush(subscriber);
  }

  #deliver(subscriber: Subscriber, event: Buffer): void {
    const { outlet } = subscriber;
    // What waited before counts: an event of any size reaches whoever has kept up.
    if (outlet.waitingBytes > subscriber.options.settings.maxBufferBytes) {
      // Ended, not lost: the client resumes by the cursor of the last event it received.
      this.#endSlow(subscriber, 'buffer');
      return;
    }
    this.#countDelivery(subscriber, event);
    outlet.push(event, this.#delivery.flusher.empty);
    this.#delivery.flush(subscriber);
  }

  #countDelivery(subscriber: Subscriber, event: Buffer): void {
    subscriber.events += 1;
    this.measures.deliveries += 1;
    this.measures.deliveredBytes += event.length;
  }

  #flushed(subscriber: Subscriber): void {
    const { outlet, options, ended } = subscriber;
    if (outlet.isIdle) this.#replay.flushed(subscriber);
    else if (ended === null && outlet.stallsAt(options.settings.dispatchTimeoutMs) !== null) {
      this.#arm(subscriber);
    }
  }

  readonly #keeper: SubscriberKeeper = {
    drained: (subscriber) => {
      subscriber.outlet.drained();
      this.#delivery.flush(subscriber);
    },
    closed: (subscriber) => {
      this.#end(subscriber, 'client');
      this.#wheel.cancel(subscriber);
      subscriber.outlet.discard();
      subscriber.options.place?.leave();
    },
    expired: (subscriber) => this.#expired(subscriber),
  };

  readonly #catchingUp = {
    tail: (): number => this.#transport.position,
    deliver: (subscriber: Subscriber, event: Buffer): void => {
      this.#countDelivery(subscriber, event);
      subscriber.outlet.push(event, this.#delivery.flusher.empty);
      this.#delivery.flush(subscriber);
    },
    caughtUp: (subscriber: Subscriber, delivered: number): void => {
      this.measures.replays.observe(delivered);
      this.#index.add(subscriber);
    },
    failed: (subscriber: Subscriber): void => this.#end(subscriber, 'failed'),
  };

  /** Sets the subscriber's one timer to what comes first. */
  #arm(subscriber: Subscriber): void {
    const { outlet, options, ended } = subscriber;
    const { heartbeatMs, dispatchTimeoutMs } = options.settings;
    const now = this.#clock.monotonic();
    let due = outlet.stallsAt(dispatchTimeoutMs) ?? Number.POSITIVE_INFINITY;
    if (ended !== null) due = Math.min(due, now + dispatchTimeoutMs);
    else {
      due = Math.min(due, subscriber.endsAtMs);
      // Where something waits already there is nothing to add.
      const silentSince = outlet.isIdle ? outlet.lastWriteMs : now;
      if (heartbeatMs > 0) due = Math.min(due, silentSince + heartbeatMs);
    }
    if (due === Number.POSITIVE_INFINITY) this.#wheel.cancel(subscriber);
    else this.#wheel.arm(subscriber, Math.max(0, due - now));
  }

  #expired(subscriber: Subscriber): void {
    const { outlet, options, ended } = subscriber;
    const { heartbeatMs, dispatchTimeoutMs } = options.settings;
    const now = this.#clock.monotonic();
    if (ended !== null) {
      // It does not even take the end of its stream.
      const takes = outlet.stallsAt(dispatchTimeoutMs) !== null;
      if (takes && !outlet.isStalled(now, dispatchTimeoutMs)) this.#arm(subscriber);
      else outlet.destroy();
      return;
    }
    if (now >= subscriber.endsAtMs) {
      this.#end(subscriber, subscriber.endsAs);
      return;
    }
    if (outlet.isStalled(now, dispatchTimeoutMs)) {
      this.#endSlow(subscriber, 'timeout');
      outlet.destroy();
      return;
    }
    if (heartbeatMs > 0 && outlet.isIdle && now - outlet.lastWriteMs >= heartbeatMs) {
      outlet.push(HEARTBEAT, this.#delivery.flusher.empty);
      this.#delivery.flusher.flush(subscriber, now, unmetered());
    }
    this.#arm(subscriber);
  }

  #endThose(subscribers: Iterable<Subscriber>): number {
    const ending = [...subscribers];
    for (const subscriber of ending) this.#end(subscriber, 'revoked');
    return ending.length;
  }

  #endSlow(subscriber: Subscriber, reason: SlowReason): void {
    this.measures.slow[reason] += 1;
    this.#log.warn('A slow subscriber was disconnected', {
      subscriber: subscriber.id,
      why: WHY_SLOW[reason],
      bufferedBytes: subscriber.outlet.bufferedBytes,
    });
    this.#end(subscriber, 'slow');
  }

  #end(subscriber: Subscriber, reason: EndReason): void {
    if (subscriber.ended !== null) return;
    subscriber.ended = reason;
    this.measures.ended[reason] += 1;
    this.#roll.delete(subscriber);
    this.#index.delete(subscriber);
    this.#replay.delete(subscriber);
    this.counts.connected -= 1;
    if (subscriber.options.settings.announced) this.#announcer.left(subscriber);
    if (reason !== 'client') {
      this.#log.debug('A stream ends', { subscriber: subscriber.id, reason });
      // Who may no longer read gets no more than what has been begun.
      if (this.#leaving && reason !== 'slow') {
        subscriber.outlet.push(comeBackLater(), this.#delivery.flusher.empty);
      }
      subscriber.outlet.end(reason === 'revoked');
      this.#delivery.flusher.flush(subscriber, this.#clock.monotonic(), unmetered());
      this.#arm(subscriber);
    }
    if (this.#roll.size === 0) this.#emptied();
  }

  /** Does something to each of many streams, a slice at a time. */
  #forEach(
    sets: readonly ReadonlySet<Subscriber>[],
    steps: number,
    task: (subscriber: Subscriber) => void,
  ): void {
    void this.#slices.compute(function* (meter) {
      for (const set of sets) {
        for (const subscriber of set) {
          if (meter.left <= 0) yield;
          meter.left -= steps;
          task(subscriber);
        }
      }
    });
  }
}

/** A cursor that no log can know: there is no such id. */
function knowsNothing(lastEventId: string | null): boolean {
  if (lastEventId === null || lastEventId === '') return true;
  return !isPossibleId(lastEventId);
}

/** Where the replay begins: what was asked for when the log knows it, else `earliest`. */
function cursorAnswer(asked: string | null, found: number | null): string | null {
  if (asked === null) return null;
  return found === null ? EARLIEST : asked;
}
