import type { Clock } from '../kernel/clock.ts';
import type { Logger } from '../kernel/log.ts';
import { type Budget, type Scheduler, unlimitedBudget } from '../kernel/scheduler.ts';
import type { TimerWheel } from '../kernel/timer-wheel.ts';
import type { PresencePublisher } from './presence-publisher.ts';
import { Delivery } from './delivery.ts';
import { HEARTBEAT, retryHint } from './event-stream.ts';
import type { HubCounts, HubMeasures, SlowReason } from './hub-measures.ts';
import type { LogReader } from './log-reader.ts';
import type { EventSink } from './send-buffer.ts';
import { Replay, type ReplayKeeper } from './replay.ts';
import { StreamRegistry } from './stream-registry.ts';
import { dueNow, nextDueAt } from './deadline.ts';
import {
  type EndReason,
  Subscriber,
  type SubscriberKeeper,
  type SubscriberOptions,
} from './subscriber.ts';
import { SubscriptionIndex } from './subscription-index.ts';
import type { Missed } from './transport.ts';

/** What asking a stream whether it has missed something costs, and what ending it costs, in steps. */
const ASK_STEPS = 20;
const END_STEPS = 500;

/** As the log says it. */
const WHY_SLOW: Readonly<Record<SlowReason, string>> = {
  buffer: 'more than max_subscriber_buffer is waiting for the client',
  timeout: 'the client has read nothing for dispatch_timeout',
};

interface OpenStreamsOptions {
  /** Position of the last entry that live streams have been shown or will be. */
  readonly tail: () => number;
  /** Whether a stream may be given presence events. */
  readonly mayReadPresence: (options: SubscriberOptions) => boolean;
  readonly reader: LogReader;
  /** The base of topics. */
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
 * The streams of a hub, from their registration to their end: each is behind, and is replayed to,
 * or live, and is in the index. What ends them from outside goes through {@link end}.
 */
export class OpenStreams {
  readonly registry = new StreamRegistry();
  readonly delivery: Delivery;
  /** The hub is leaving: who is ended is told when to come back. */
  isLeaving = false;
  readonly #options: OpenStreamsOptions;
  readonly #index = new SubscriptionIndex();
  readonly #replay: Replay;
  /** Those that wait for the last stream to end. */
  readonly #waiting: (() => void)[] = [];

  constructor(options: OpenStreamsOptions) {
    this.#options = options;
    const { reader, base, clock, scheduler, log } = options;
    this.delivery = new Delivery(this.#index, base, scheduler, () => clock.monotonic(), {
      deliver: (subscriber, event) => this.#deliver(subscriber, event),
      flushed: (subscriber) => this.#flushed(subscriber),
    });
    this.#replay = new Replay(reader, this.#catchingUp, scheduler, log);
  }

  /** Registers a stream that has seen the log up to `start`; one that is not behind is live at once. */
  add(options: SubscriberOptions, start: number, isBehind: boolean): Subscriber {
    const { counts } = this.#options;
    const subscriber = new Subscriber(options, start, this.#now(), this.#keeper);
    if (!isBehind) this.#goLive(subscriber);
    this.registry.add(subscriber);
    counts.connected += 1;
    counts.subscribers += 1;
    this.#arm(subscriber);
    return subscriber;
  }

  /** Gives a stream its connection; one that was behind when it was registered reads the log first. */
  open(subscriber: Subscriber, sink: EventSink, isBehind: boolean): void {
    subscriber.sendBuffer.open(sink, subscriber);
    if (subscriber.ended !== null) {
      // Its goodbye waits.
      this.#writeNow(subscriber);
      this.#arm(subscriber);
      return;
    }
    this.#arm(subscriber);
    if (isBehind) this.#replay.add(subscriber);
    else this.delivery.flush(subscriber);
  }

  /** How many live streams have asked for exactly this topic. */
  interest(topic: string): number {
    return this.#index.countExact(topic);
  }

  /** Lets a stream end by itself at this monotonic time, if it would not end before. */
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
    this.registry.delete(subscriber);
    this.#index.delete(subscriber);
    this.#replay.delete(subscriber);
    counts.connected -= 1;
    if (subscriber.options.settings.announced) presencePublisher.left(subscriber);
    if (reason !== 'client') {
      log.debug('A stream ends', { subscriber: subscriber.id, reason });
      this.#sayGoodbye(subscriber, reason);
    }
    if (this.registry.size === 0) for (const go of this.#waiting.splice(0)) go();
  }

  /**
   * Entries were evicted before they could be dispatched. The streams that were live get what was dispatched
   * before, and end: a hole would stay unseen. Those that read the log find out by themselves.
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
      // Who has come since stands behind what is missing.
      if (!subscriber.isLive || subscriber.position >= until) continue;
      if (missed === 'events' && !this.#options.mayReadPresence(subscriber.options)) continue;
      budget.spend(END_STEPS);
      this.end(subscriber, 'overtaken');
    }
  }

  #goLive(subscriber: Subscriber): void {
    subscriber.isLive = true;
    this.#index.add(subscriber);
  }

  /** Resolves when the last stream has ended. */
  async emptied(): Promise<void> {
    if (this.registry.size === 0) return;
    await new Promise<void>((resolve) => this.#waiting.push(resolve));
  }

  #sayGoodbye(subscriber: Subscriber, reason: EndReason): void {
    const { sendBuffer } = subscriber;
    if ((this.isLeaving && reason !== 'slow') || reason === 'overtaken')
      this.#push(subscriber, retryHint());
    sendBuffer.end();
    this.#writeNow(subscriber);
    this.#arm(subscriber);
  }

  #deliver(subscriber: Subscriber, event: Buffer): void {
    // What waited before counts: an event of any size reaches whoever has kept up.
    if (subscriber.sendBuffer.waitingBytes > subscriber.options.settings.maxBufferBytes) {
      // Ended, not lost: the client resumes by the cursor of the last event it received.
      this.#endSlow(subscriber, 'buffer');
      return;
    }
    this.#give(subscriber, event);
  }

  #give(subscriber: Subscriber, event: Buffer): void {
    const { measures } = this.#options;
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

  readonly #keeper: SubscriberKeeper = {
    drained: (subscriber) => {
      subscriber.sendBuffer.drained();
      this.delivery.flush(subscriber);
    },
    closed: (subscriber) => {
      this.end(subscriber, 'client');
      this.#options.wheel.cancel(subscriber);
      subscriber.sendBuffer.discard();
      subscriber.options.place?.leave();
    },
    expired: (subscriber) => this.#expired(subscriber),
  };

  readonly #catchingUp: ReplayKeeper = {
    tail: () => this.#options.tail(),
    deliver: (subscriber, event) => this.#give(subscriber, event),
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

  /** Sets the stream's one timer to what comes first. */
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
