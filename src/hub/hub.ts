import type { Clock } from '../kernel/clock.ts';
import { HubgateError } from '../kernel/error.ts';
import type { Logger } from '../kernel/log.ts';
import type { Scheduler } from '../kernel/scheduler.ts';
import type { TimerWheel } from '../kernel/timer-wheel.ts';
import { Admission, type MayStayOpen } from './admission.ts';
import { PresencePublisher } from './presence-publisher.ts';
import { cursorAnswer, knowsNothing, locate, streamBacklog } from './cursor.ts';
import { type HubCounts, HubMeasures, type StreamBacklog } from './hub-measures.ts';
import { LogReader } from './log-reader.ts';
import { OpenStreams } from './open-streams.ts';
import type { EventSink } from './send-buffer.ts';
import { mayReadPresence, type PresenceNames, type SubscriptionRecord } from './presence.ts';
import type { PresenceMatcher, PresencePage } from './presence-board.ts';
import { Revocation } from './revocation.ts';
import type { Subscriber, SubscriberOptions } from './subscriber.ts';
import type { Topic } from './topic.ts';
import type { LogEntry, Transport } from './transport.ts';
import { EARLIEST, type Update } from './update.ts';

/** Subscribers whose subscriptions are read at once. */
const SUBSCRIBERS_AT_ONCE = 250;

export interface HubOptions {
  readonly transport: Transport;
  readonly names: PresenceNames;
  readonly clock: Clock;
  /** The one of the process. */
  readonly wheel: TimerWheel;
  /** The one of the process. */
  readonly scheduler: Scheduler;
  readonly log: Logger;
  /** Told of what comes by the log before anybody else is, and of what was evicted before it came. */
  readonly observer?: LogObserver;
}

/** Whoever has to know of an update before those who subscribe. */
export interface LogObserver {
  received(entries: readonly LogEntry[]): void;
  missed(): void;
}

export interface SubscribeOptions extends SubscriberOptions {
  /** Where the client wants to go on; null when it did not say. */
  readonly lastEventId: string | null;
  /** {@link Hub.revision} before its token was looked at. */
  readonly revocationEpoch: number;
}

/** What a subscribe request has become. */
export interface Subscription {
  readonly subscriber: Subscriber;
  /** What the cursor header says; null when the client named no cursor. */
  readonly cursor: string | null;
  /** Gives the stream its connection. Call it once, after the head has been sent. */
  open(sink: EventSink): void;
  /** Instead of {@link open}, where there is not a connection any more. */
  abandon(): void;
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
  readonly #names: PresenceNames;
  readonly #clock: Clock;
  readonly #scheduler: Scheduler;
  readonly #reader: LogReader;
  readonly #presencePublisher: PresencePublisher;
  readonly #streams: OpenStreams;
  readonly #admission = new Admission();
  readonly #revocation: Revocation;

  constructor({ transport, names, clock, wheel, scheduler, log, observer }: HubOptions) {
    this.#transport = transport;
    this.#names = names;
    this.#clock = clock;
    this.#scheduler = scheduler;
    const reader = new LogReader(transport, names.base);
    const presencePublisher = new PresencePublisher(transport, names, scheduler, log);
    const streams = new OpenStreams({
      tail: () => transport.position,
      mayReadPresence: (options) => mayReadPresence(options, names),
      base: names.base,
      counts: this.counts,
      measures: this.measures,
      reader,
      presencePublisher,
      clock,
      wheel,
      scheduler,
      log,
    });
    const admission = this.#admission;
    this.#revocation = new Revocation({ streams, admission, clock, scheduler });
    this.#reader = reader;
    this.#presencePublisher = presencePublisher;
    this.#streams = streams;
    transport.tail(
      (entries) => {
        observer?.received(entries);
        streams.delivery.dispatch(entries);
      },
      (missed) => {
        if (missed === 'updates') observer?.missed();
        streams.overtaken(missed);
      },
    );
  }

  /** The hub-wide cursor: id of the last update dispatched here, or `earliest` before the first. */
  get lastEventId(): string {
    return this.#transport.lastEventId ?? EARLIEST;
  }

  /**
   * The cursor for pages: id of the last update dispatched here that is not a presence event, or `earliest` before the
   * first. Streams that come and go do not wear it out.
   */
  get lastUpdateId(): string {
    return this.#transport.lastUpdateId ?? EARLIEST;
  }

  /** Grows with each revocation; see {@link SubscribeOptions.revocationEpoch}. */
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
    if (topics !== undefined) this.#streams.delivery.know(update, topics);
    await this.#append(update);
    this.counts.updates += 1;
    const backpressure = this.#streams.delivery.backpressure();
    if (backpressure !== null) await backpressure;
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
    const { lastEventId, revocationEpoch } = options;
    const streams = this.#streams;
    // Nothing to wait for where there is not a cursor.
    const found = knowsNothing(lastEventId) ? null : await locate(this.#reader, lastEventId);
    const knownGap = found === null ? 0 : await this.#eventsGone(options);
    if (streams.isLeaving) throw new HubgateError('transport-closed', 'The hub is closed');
    if (!this.#admission.admits(options, revocationEpoch)) {
      throw new HubgateError('not-admitted', 'What let the subscriber in has gone');
    }
    const start = found ?? this.#transport.position;
    const isBehind = start < this.#transport.position;
    const subscriber = streams.add(options, start, isBehind);
    subscriber.knownGap = knownGap;
    try {
      if (options.settings.announced) await this.#presencePublisher.entered(subscriber);
    } catch (error) {
      streams.end(subscriber, 'failed');
      throw error;
    }
    return {
      subscriber,
      cursor: cursorAnswer(lastEventId, start === 0 || start >= knownGap ? found : null),
      open: (sink) => streams.open(subscriber, sink, isBehind),
      abandon: () => subscriber.closed(),
    };
  }

  /** Position of the newest presence event that is gone, for a subscriber that might have read it. */
  async #eventsGone(options: SubscribeOptions): Promise<number> {
    if (!mayReadPresence(options, this.#names)) return 0;
    return (await this.#transport.evicted()).events;
  }

  /** How many live streams have asked for exactly this topic. */
  interest(topic: string): number {
    return this.#streams.interest(topic);
  }

  /**
   * What the cursor header would say, without subscribing.
   *
   * @throws HubgateError `transport-closed` or `transport-failed`
   */
  async cursor(lastEventId: string | null): Promise<string | null> {
    return cursorAnswer(lastEventId, await locate(this.#reader, lastEventId));
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
  reauthorise(keep: MayStayOpen, spreadMs: number): number {
    return this.#revocation.reauthorise(keep, spreadMs);
  }

  /** How many streams {@link reauthorise} would end: of those without a token, and of the others. */
  countRefused(keep: MayStayOpen): { readonly anonymous: number; readonly authorised: number } {
    return this.#revocation.countRefused(keep);
  }

  /** Ends at once the streams that were opened with the token of this `jti`, and says how many. */
  revoke(tokenId: string): number {
    return this.#revocation.revoke(tokenId);
  }

  /** Ends at once the streams of a browser session that is over, and says how many. */
  signOut(session: string): number {
    return this.#revocation.signOut(session);
  }

  /** The position of the log that has been given out; this process's own count. */
  get logPosition(): number {
    return this.#transport.position;
  }

  /** How far behind its streams are. */
  backlog(): Promise<StreamBacklog> {
    return streamBacklog(
      this.#streams.registry.all(),
      () => this.#clock.monotonic(),
      this.#scheduler,
    );
  }

  /** @throws HubgateError when the transport does not work */
  check(): Promise<void> {
    return this.#transport.check();
  }

  /** Ends every stream, spread over `spreadMs`, and resolves when the last has ended. */
  async drain(spreadMs: number): Promise<void> {
    const streams = this.#streams;
    streams.isLeaving = true;
    // What has been acknowledged comes before the end.
    const delivered = streams.delivery.delivered();
    if (delivered !== null) await delivered;
    this.#revocation.drain(spreadMs);
    await streams.emptied();
  }

  /** Ends every stream at once and closes nothing else: the transport belongs to who opened it. */
  close(): void {
    const streams = this.#streams;
    streams.isLeaving = true;
    for (const subscriber of streams.registry.all()) streams.end(subscriber, 'closed');
  }
}
