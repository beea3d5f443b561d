import type { Clock } from '../kernel/clock.ts';
import type { Logger } from '../kernel/log.ts';
import { type Budget, type Scheduler, unlimitedBudget } from '../kernel/scheduler.ts';
import type { TimerWheel } from '../kernel/timer-wheel.ts';
import type { PresencePublisher } from './presence-publisher.ts';
import { Delivery } from './delivery.ts';
import { HEARTBEAT, retryHint } from './event-stream.ts';
import type { HubCounts, HubMeasures, SlowReason } from './hub-measures.ts';
import type { HistoryReader } from './history-reader.ts';
import type { EventSink } from './send-buffer.ts';
import { Replay, type ReplayCallbacks } from './replay.ts';
import {
  dueNow,
  nextDueAt,
  type EndReason,
  Subscriber,
  type SubscriberCallbacks,
  type SubscriberOptions,
} from './subscriber.ts';
import { SubscriptionIndex } from './subscription-index.ts';
import type { Missed } from './transport.ts';
import { addTo, deleteFrom } from '../kernel/collections.ts';

/** Cost of checking whether a stream has missed something, and of ending it, in steps. */
const ASK_STEPS = 20;
const END_STEPS = 500;

/** The reason as logged. */
const WHY_SLOW: Readonly<Record<SlowReason, string>> = {
  buffer: 'more than max_subscriber_buffer is waiting for the client',
  timeout: 'the client has read nothing for dispatch_timeout',
};

export interface OpenStreamsOptions {
  /** Position of the last entry that live streams have received or will receive. */
  readonly tail: () => number;
  /** Whether the history is storing an update of this process now. */
  readonly isStoring: () => boolean;
  /** Whether the authorization of a stream is still configured, and its token has not expired. */
  readonly mayStayOpen: (options: SubscriberOptions) => boolean;
  /** Whether a stream may receive presence events. */
  readonly mayReadPresence: (options: SubscriberOptions) => boolean;
  readonly reader: HistoryReader;
  /** The base URL of topics. */
  readonly base: string;
  readonly presencePublisher: PresencePublisher;
  readonly counts: HubCounts;
  readonly measures: HubMeasures;
  readonly clock: Clock;
  readonly wheel: TimerWheel;
  readonly scheduler: Scheduler;
  readonly log: Logger;
}

/**
 * The streams of a hub from registration to end. Each is either catching up from the history, or live and in
 * the index. Everything that ends streams from outside uses {@link end}.
 */
export class OpenStreams {
  readonly registry = new StreamRegistry();
  /** The live streams by what they subscribe to. */
  readonly index = new SubscriptionIndex();
  readonly delivery: Delivery;
  /** The hub is closing: clients learn when to reconnect. */
  isLeaving = false;
  readonly #options: OpenStreamsOptions;
  readonly #replay: Replay;
  /** Callers that wait for the end of the last stream. */
  readonly #waiting: (() => void)[] = [];

  constructor(options: OpenStreamsOptions) {
    this.#options = options;
    const { reader, base, clock, scheduler, log } = options;
    const monotonic = (): number => clock.monotonic();
    this.delivery = new Delivery(this.index, base, scheduler, monotonic, {
      deliver: (subscriber, event, isPrivate) => this.#deliver(subscriber, event, isPrivate),
      flushed: (subscriber) => this.#flushed(subscriber),
    });
    this.#replay = new Replay(reader, this.#replayCallbacks, scheduler, monotonic, log);
  }

  /**
   * Registers a stream that has received the history up to `start`. A stream that is not behind is live at
   * once.
   *
   * @param endsAtMs monotonic time at which its lifetime ends
   */
  add(options: SubscriberOptions, start: number, isBehind: boolean, endsAtMs: number): Subscriber {
    const { counts } = this.#options;
    const subscriber = new Subscriber(options, start, this.#now(), this.#subscriberCallbacks);
    subscriber.endsAtMs = endsAtMs;
    if (!isBehind) this.#goLive(subscriber);
    this.registry.add(subscriber);
    counts.connected += 1;
    counts.subscribers += 1;
    this.#arm(subscriber);
    return subscriber;
  }

  /** Gives a stream its connection. If it was behind when it was registered, it reads the history first. */
  open(subscriber: Subscriber, sink: EventSink, isBehind: boolean): void {
    subscriber.sendBuffer.open(sink, subscriber);
    if (subscriber.ended !== null) {
      // Its last bytes are waiting.
      this.#writeNow(subscriber);
      this.#arm(subscriber);
      return;
    }
    this.#arm(subscriber);
    if (isBehind) this.#replay.add(subscriber);
    else this.delivery.flush(subscriber);
  }

  /** Ends a stream at this monotonic time, unless it ends earlier. */
  endBy(subscriber: Subscriber, atMs: number, reason: EndReason): void {
    if (atMs >= subscriber.endsAtMs) return;
    subscriber.endsAtMs = atMs;
    subscriber.endsAs = reason;
    this.#arm(subscriber);
  }

  end(subscriber: Subscriber, reason: EndReason): void {
    if (subscriber.ended !== null) return;
    const { counts, measures, presencePublisher, log } = this.#options;
    subscriber.ended = reason;
    measures.ended[reason] += 1;
    this.registry.ended(subscriber);
    this.index.delete(subscriber);
    this.#replay.delete(subscriber);
    counts.connected -= 1;
    if (subscriber.options.settings.announced) presencePublisher.left(subscriber);
    if (reason !== 'client') {
      log.debug('A stream ends', { subscriber: subscriber.id, reason });
      this.#sendEnd(subscriber, reason);
    }
    if (this.registry.size === 0) for (const go of this.#waiting.splice(0)) go();
  }

  /**
   * Entries were evicted before this process could dispatch them. Live streams receive what was dispatched
   * before, and end, because they cannot see the gap. Streams that read the history notice it themselves.
   */
  overtaken(missed: Missed): void {
    const until = this.#options.tail();
    this.#options.log.warn(
      'Entries of the history were removed before this process had read them; streams that miss them end',
      { missed },
    );
    this.delivery.inTurn((budget) => this.#endThoseBefore(until, missed, budget));
  }

  *#endThoseBefore(until: number, missed: Missed, budget: Budget): Iterator<void> {
    for (const subscriber of this.registry.all()) {
      if (budget.isSpent) yield;
      budget.spend(ASK_STEPS);
      // Streams that opened later begin after the gap.
      if (!subscriber.isLive || subscriber.position >= until) continue;
      if (missed === 'events' && !this.#options.mayReadPresence(subscriber.options)) continue;
      budget.spend(END_STEPS);
      this.end(subscriber, 'overtaken');
    }
  }

  #goLive(subscriber: Subscriber): void {
    subscriber.isLive = true;
    this.index.add(subscriber);
  }

  /** Resolves when the last stream has ended. */
  async emptied(): Promise<void> {
    if (this.registry.size === 0) return;
    await new Promise<void>((resolve) => this.#waiting.push(resolve));
  }

  #sendEnd(subscriber: Subscriber, reason: EndReason): void {
    const { sendBuffer } = subscriber;
    if ((this.isLeaving && reason !== 'slow') || reason === 'overtaken')
      this.#push(subscriber, retryHint());
    sendBuffer.end();
    this.#writeNow(subscriber);
    this.#arm(subscriber);
  }

  #deliver(subscriber: Subscriber, event: Buffer, isPrivate: boolean): void {
    // Only earlier waiting data counts: a client that has kept up receives an event of any size.
    if (subscriber.sendBuffer.waitingBytes > subscriber.options.settings.maxBufferBytes) {
      // Nothing is lost: the client resumes from the id of the last event it received.
      this.#endSlow(subscriber, 'buffer');
      return;
    }
    this.#give(subscriber, event, isPrivate);
  }

  #give(subscriber: Subscriber, event: Buffer, isPrivate: boolean): void {
    const { measures, mayStayOpen } = this.#options;
    // A stream whose authorization was removed ends within some seconds, and before the first private update. So does one
    // whose token has expired because the clock was set, or the machine has slept. Its client resumes from the last event
    // that it has received.
    if (isPrivate && !mayStayOpen(subscriber.options)) {
      this.end(subscriber, 'unauthorized');
      return;
    }
    subscriber.events += 1;
    measures.deliveries += 1;
    measures.deliveredBytes += event.length;
    this.#push(subscriber, event);
    this.delivery.flush(subscriber);
  }

  #flushed(subscriber: Subscriber): void {
    const { sendBuffer, options, ended } = subscriber;
    if (sendBuffer.isIdle) this.#replay.flushed(subscriber);
    else if (ended === null && sendBuffer.stallsAt(options.settings.dispatchTimeoutMs) !== null) {
      this.#arm(subscriber);
    }
  }

  readonly #subscriberCallbacks: SubscriberCallbacks = {
    drained: (subscriber) => {
      subscriber.sendBuffer.drained();
      this.delivery.flush(subscriber);
    },
    closed: (subscriber) => {
      this.end(subscriber, 'client');
      this.registry.closed(subscriber);
      this.#options.wheel.cancel(subscriber);
      subscriber.sendBuffer.discard();
      subscriber.options.place?.leave();
    },
    expired: (subscriber) => this.#expired(subscriber),
  };

  readonly #replayCallbacks: ReplayCallbacks = {
    tail: () => this.#options.tail(),
    isStoring: () => this.#options.isStoring(),
    deliver: (subscriber, event, isPrivate) => this.#give(subscriber, event, isPrivate),
    mayReadPresence: (subscriber) => this.#options.mayReadPresence(subscriber.options),
    caughtUp: (subscriber, delivered) => {
      this.#options.measures.replays.observe(delivered);
      this.#goLive(subscriber);
    },
    failed: (subscriber) => this.end(subscriber, 'failed'),
    overtaken: (subscriber) => {
      this.#options.log.warn(
        'A replay was too slow: updates that it had not read yet were removed',
        {
          subscriber: subscriber.id,
        },
      );
      this.end(subscriber, 'overtaken');
    },
  };

  /** Sets the stream's single timer to its next event. */
  #arm(subscriber: Subscriber): void {
    const { wheel } = this.#options;
    const now = this.#now();
    const due = nextDueAt(subscriber, now);
    if (due === Number.POSITIVE_INFINITY) wheel.cancel(subscriber);
    else wheel.arm(subscriber, Math.max(0, due - now));
  }

  #expired(subscriber: Subscriber): void {
    switch (dueNow(subscriber, this.#now())) {
      case 'over':
        this.end(subscriber, subscriber.endsAs);
        return;
      case 'stalled':
        this.#endSlow(subscriber, 'timeout');
        subscriber.sendBuffer.destroy();
        return;
      case 'gone':
        subscriber.sendBuffer.destroy();
        return;
      case 'heartbeat':
        this.#push(subscriber, HEARTBEAT);
        this.#writeNow(subscriber);
        this.#arm(subscriber);
        return;
      case 'nothing':
        this.#arm(subscriber);
    }
  }

  #endSlow(subscriber: Subscriber, reason: SlowReason): void {
    const { measures, log } = this.#options;
    measures.slow[reason] += 1;
    log.warn('A slow subscriber was disconnected', {
      subscriber: subscriber.id,
      why: WHY_SLOW[reason],
      bufferedBytes: subscriber.sendBuffer.bufferedBytes,
    });
    this.end(subscriber, 'slow');
  }

  #push({ sendBuffer }: Subscriber, event: Buffer): void {
    sendBuffer.push(event, this.delivery.flusher.empty);
  }

  #writeNow(subscriber: Subscriber): void {
    this.delivery.flusher.flush(subscriber, this.#now(), unlimitedBudget());
  }

  #now(): number {
    return this.#options.clock.monotonic();
  }
}

/**
 * All open streams of a hub, indexed by everything that can end them together. A stream that has ended, but whose last
 * bytes wait for its client, is still found by its token and session, because a revocation concerns these bytes.
 */
class StreamRegistry {
  readonly #all = new Set<Subscriber>();
  readonly #byToken = new Map<string, Set<Subscriber>>();
  readonly #bySession = new Map<string, Set<Subscriber>>();
  readonly #byIssuerKey = new Map<string | null, Set<Subscriber>>();

  get size(): number {
    return this.#all.size;
  }

  all(): ReadonlySet<Subscriber> {
    return this.#all;
  }

  /** Streams that were opened with the token of this `jti`, and are not closed. */
  ofToken(tokenId: string): Iterable<Subscriber> {
    return this.#byToken.get(tokenId) ?? [];
  }

  /** Streams of a browser session that are not closed. */
  ofSession(session: string): Iterable<Subscriber> {
    return this.#bySession.get(session) ?? [];
  }

  /** Streams by the authorization behind their tokens; null for streams without a token. */
  issuerKeys(): Iterable<[issuerKey: string | null, subscribers: ReadonlySet<Subscriber>]> {
    return this.#byIssuerKey;
  }

  add(subscriber: Subscriber): void {
    const { tokenId, session, issuerKey } = subscriber.options;
    this.#all.add(subscriber);
    if (tokenId !== null) addTo(this.#byToken, tokenId, subscriber);
    if (session !== null) addTo(this.#bySession, session, subscriber);
    addTo(this.#byIssuerKey, issuerKey, subscriber);
  }

  ended(subscriber: Subscriber): void {
    this.#all.delete(subscriber);
    deleteFrom(this.#byIssuerKey, subscriber.options.issuerKey, subscriber);
    // One without a connection may never get one.
    if (!subscriber.sendBuffer.isOpen) this.closed(subscriber);
  }

  closed(subscriber: Subscriber): void {
    const { tokenId, session } = subscriber.options;
    if (tokenId !== null) deleteFrom(this.#byToken, tokenId, subscriber);
    if (session !== null) deleteFrom(this.#bySession, session, subscriber);
  }
}
