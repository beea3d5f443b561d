import type { Clock } from '../kernel/clock.ts';
import { HubgateError } from '../kernel/error.ts';
import type { Scheduler } from '../kernel/scheduler.ts';
import { Admission, Revocation } from './revocation.ts';
import { PresencePublisher } from './presence-publisher.ts';
import { type HubCounts, HubMeasures, type StreamBacklog, streamBacklog } from './hub-measures.ts';
import { cursorAnswer, HistoryReader, knowsNothing, locate } from './history-reader.ts';
import { OpenStreams, type OpenStreamsOptions } from './open-streams.ts';
import type { EventSink } from './send-buffer.ts';
import {
  isSubscription,
  mayReadPresence,
  type PresenceNames,
  type SubscriptionRecord,
} from './presence.ts';
import type { PresenceMatcher } from './presence-board.ts';
import type { Subscriber, SubscriberOptions } from './subscriber.ts';
import type { Topic } from './topic.ts';
import type { DatabaseConnection, HistoryDatabase, HistoryEntry, Transport } from './transport.ts';
import type { SubscriptionIndex } from './subscription-index.ts';
import { EARLIEST, type Update } from './update.ts';

export interface HubOptions
  extends Pick<OpenStreamsOptions, 'clock' | 'wheel' | 'scheduler' | 'log'> {
  readonly transport: Transport;
  readonly names: PresenceNames;
  /** Receives each entry before any subscriber, and learns when entries were evicted unread. */
  readonly observer?: HistoryObserver;
}

/** Whoever has to know of an update before those who subscribe. */
export interface HistoryObserver {
  received(entries: readonly HistoryEntry[]): void;
  missed(): void;
}

export interface SubscribeOptions extends SubscriberOptions {
  /** The client's cursor; null if it sent none. */
  readonly lastEventId: string | null;
  /** {@link Admission.revocationEpoch} before the token was checked. */
  readonly revocationEpoch: number;
}

type FollowedTopics = Pick<SubscriptionIndex, 'countExact' | 'exactTopics' | 'observe'>;

/** The result of a subscribe request. */
export interface Subscription {
  readonly subscriber: Subscriber;
  /** The value of the cursor header; null if the client sent no cursor. */
  readonly cursor: string | null;
  /** Gives the stream its connection. Call it once, after the response head has been sent. */
  open(sink: EventSink): void;
  /** Call it instead of {@link open} if the connection has closed. */
  abandon(): void;
}

/**
 * The publish/subscribe core. Updates go into the history of the transport and come back from its end. Only
 * what comes back is delivered, so live delivery and replay cannot disagree. A subscriber with a cursor reads
 * the history up to its end and, in the same turn, joins the live subscribers.
 */
export class Hub {
  readonly counts: HubCounts = { connected: 0, subscribers: 0, updates: 0, legacyTokens: 0 };
  readonly measures = new HubMeasures();
  /** Decides which clients may still connect and publish. */
  readonly admission = new Admission();
  /** Ends streams whose access has ended. */
  readonly revocation: Revocation;
  readonly #transport: Transport;
  readonly #names: PresenceNames;
  readonly #clock: Clock;
  readonly #scheduler: Scheduler;
  readonly #reader: HistoryReader;
  readonly #presencePublisher: PresencePublisher;
  readonly #streams: OpenStreams;
  /** Publications that the history is storing now. */
  #storing = 0;
  /** Whether this hub no longer decides who may read its history. */
  #isReplaced = false;

  constructor({ transport, names, clock, wheel, scheduler, log, observer }: HubOptions) {
    this.#transport = transport;
    this.#names = names;
    this.#clock = clock;
    this.#scheduler = scheduler;
    const reader = new HistoryReader(transport, names.base, clock);
    const presencePublisher = new PresencePublisher(transport, names, scheduler, log, clock);
    const streams = new OpenStreams({
      tail: () => transport.position,
      isStoring: () => this.#storing > 0,
      mayStayOpen: ({ issuerKey, expiresAtMs }) =>
        !this.#isReplaced &&
        this.admission.mayStayOpen({ issuerKey }) &&
        (expiresAtMs ?? Infinity) > clock.now(),
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
    const { admission } = this;
    this.revocation = new Revocation({ streams, admission, clock, scheduler });
    this.#reader = reader;
    this.#presencePublisher = presencePublisher;
    this.#streams = streams;
    transport.tail({
      deliver: (entries) => {
        observer?.received(entries);
        streams.delivery.dispatch(entries);
      },
      overtaken: (missed) => {
        if (missed === 'updates') observer?.missed();
        streams.overtaken(missed);
      },
      isFull: () => streams.delivery.isFull,
    });
  }

  /**
   * The cursor of the hub: the id of the last update dispatched in this process, or `earliest` before the
   * first.
   */
  get lastEventId(): string {
    return this.#transport.lastEventId ?? EARLIEST;
  }

  /**
   * The cursor for pages: the id of the last update dispatched in this process that is not a presence event,
   * or `earliest` before the first. Presence events are evicted separately, so they would make a poor cursor.
   */
  get lastUpdateId(): string {
    return this.#transport.lastUpdateId ?? EARLIEST;
  }

  /**
   * Stores an update. It is delivered when it comes back from the history.
   *
   * @param topics the parsed topics, if they have been parsed already
   * @throws HubgateError `transport-closed` or `transport-failed`; then nobody has received the update
   */
  publish(update: Update, topics?: readonly Topic[]): Promise<void> {
    if (topics !== undefined) this.#streams.delivery.know(update, topics);
    return this.#store([update], () => this.#transport.append(update));
  }

  /** Updates of one call of {@link publishOnce}. */
  get maxPublishOnce(): number {
    return this.#transport.maxPublishOnce;
  }

  /**
   * Stores those of these updates whose ids the history does not have, all of them or none, in this order.
   *
   * @param updates at most {@link maxPublishOnce}
   * @throws as {@link publish}
   */
  publishOnce(updates: readonly Update[]): Promise<void> {
    return this.#store(updates, () => this.#transport.appendOnce(updates));
  }

  async #store(updates: readonly Update[], append: () => Promise<void>): Promise<void> {
    const began = this.#clock.monotonic();
    this.#storing += 1;
    try {
      await append();
    } catch (error) {
      this.measures.failedAppends += updates.length;
      throw error;
    } finally {
      this.#storing -= 1;
    }
    this.measures.store.observe((this.#clock.monotonic() - began) / 1000);
    this.countStored(updates);
    const backpressure = this.#streams.delivery.backpressure();
    if (backpressure !== null) await backpressure;
  }

  /**
   * The database of the history; null if there is none, or if this connection does not lead to it.
   *
   * @throws the error of the database
   */
  async databaseOf(connection: DatabaseConnection): Promise<HistoryDatabase | null> {
    const { database } = this.#transport;
    return database !== undefined && (await database.includes(connection)) ? database : null;
  }

  /** Counts updates that the history has stored; its own database may have done so without {@link publish}. */
  countStored(updates: readonly Update[]): void {
    for (const { data } of updates) this.measures.updateSize.observe(Buffer.byteLength(data));
    this.counts.updates += updates.length;
  }

  /**
   * Registers a subscriber. It receives every update that is published after this promise has resolved, if
   * its matchers and grants select the update.
   *
   * @throws HubgateError `transport-closed`; `transport-failed`, also if the store takes longer than the
   *   stream may live; `not-admitted` if the authorization behind its token was revoked or removed after the check
   */
  async subscribe(options: SubscribeOptions): Promise<Subscription> {
    const { lastEventId, revocationEpoch, lifetimeMs } = options;
    const streams = this.#streams;
    // The lifetime begins now, however long the store takes: the token does not expire later because of that.
    const endsAtMs = this.#clock.monotonic() + (lifetimeMs ?? Number.POSITIVE_INFINITY);
    // Without a cursor there is nothing to wait for.
    const found = knowsNothing(lastEventId) ? null : await locate(this.#reader, lastEventId);
    const knownGap = found === null ? 0 : await this.#eventsGone(options);
    if (streams.isLeaving) throw new HubgateError('transport-closed', 'The hub is closed');
    if (!this.admission.admits(options, revocationEpoch)) {
      throw new HubgateError('not-admitted', "The subscriber's access has ended");
    }
    if (this.#clock.monotonic() >= endsAtMs) {
      throw new HubgateError('transport-failed', 'The store took longer than the stream may live');
    }
    const start = found ?? this.#transport.position;
    const isBehind = start < this.#transport.position;
    const subscriber = streams.add(options, start, isBehind, endsAtMs);
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

  /** Position of the newest evicted presence event, for a subscriber that was allowed to read it. */
  async #eventsGone(options: SubscribeOptions): Promise<number> {
    if (!mayReadPresence(options, this.#names)) return 0;
    return (await this.#transport.evicted()).events;
  }

  /** The topics to which live streams subscribe exactly. */
  get followed(): FollowedTopics {
    return this.#streams.index;
  }

  /**
   * The value that the cursor header would have, without subscribing.
   *
   * @throws HubgateError `transport-closed` or `transport-failed`
   */
  async cursor(lastEventId: string | null): Promise<string | null> {
    return cursorAnswer(lastEventId, await locate(this.#reader, lastEventId));
  }

  /**
   * A page of the active subscriptions of all announced subscribers in every process that shares the history, in the
   * order of their arrival.
   *
   * @param after the `next` of the page before; null for the first page
   * @param limit subscribers, at least 1; each may have a hundred subscriptions
   * @param matcher only subscribers with this matcher, with all their subscriptions
   * @throws HubgateError `transport-closed`, `transport-failed`
   */
  async subscriptionPage(
    after: string | null,
    limit: number,
    matcher?: PresenceMatcher,
  ): Promise<{ readonly records: readonly SubscriptionRecord[]; readonly next: string | null }> {
    const { records, next } = await this.#transport.presence.page(after, limit, matcher);
    return { records: records.filter(isSubscription), next };
  }

  /**
   * The active subscriptions of one subscriber.
   *
   * @throws as {@link subscriptionPage}
   */
  async subscriptionsOf(subscriber: string): Promise<readonly SubscriptionRecord[]> {
    return (await this.#transport.presence.of(subscriber)).filter(isSubscription);
  }

  /** How far the streams are behind. */
  backlog(): Promise<StreamBacklog> {
    return streamBacklog(
      this.#streams.registry.all(),
      () => this.#clock.monotonic(),
      this.#scheduler,
    );
  }

  /**
   * Ends every stream at a random time within `spreadMs`, and resolves when the last has ended.
   *
   * @param isReplaced whether another hub, or none, decides from now on who may read: each stream then ends before its
   * next private update. Its client resumes from the last event that it has received
   */
  async drain(spreadMs: number, isReplaced = false): Promise<void> {
    const streams = this.#streams;
    streams.isLeaving = true;
    this.#isReplaced = isReplaced;
    // Acknowledged updates are delivered before the streams end.
    const delivered = streams.delivery.delivered();
    if (delivered !== null) await delivered;
    this.revocation.drain(spreadMs);
    await streams.emptied();
  }

  /** Ends every stream at once. The transport stays open, because it belongs to its opener. */
  close(): void {
    const streams = this.#streams;
    streams.isLeaving = true;
    for (const subscriber of streams.registry.all()) streams.end(subscriber, 'closed');
  }
}
