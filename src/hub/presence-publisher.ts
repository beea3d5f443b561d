import { hash } from 'node:crypto';
import type { Clock } from '../kernel/clock.ts';
import { messageOf } from '../kernel/error.ts';
import { FailureLog, type Logger } from '../kernel/log.ts';
import type { Scheduler } from '../kernel/scheduler.ts';
import {
  isSubscription,
  type PresenceNames,
  subscriptionEvent,
  subscriptionRecords,
} from './presence.ts';
import type { PresenceChange } from './presence-board.ts';
import type { Subscriber } from './subscriber.ts';
import type { Transport } from './transport.ts';

const NOT_ANNOUNCED = 'The end of subscriptions could not be announced; hubgate tries again';

/**
 * Publishes who is subscribed: on the board of the history, and as updates for subscribers that may read
 * them. The board decides when, so both agree.
 */
export class PresencePublisher {
  readonly #transport: Transport;
  readonly #names: PresenceNames;
  readonly #scheduler: Scheduler;
  readonly #log: Logger;
  readonly #failures: FailureLog;
  readonly #entered = new WeakSet<Subscriber>();

  constructor(
    transport: Transport,
    names: PresenceNames,
    scheduler: Scheduler,
    log: Logger,
    clock: Clock,
  ) {
    this.#transport = transport;
    this.#names = names;
    this.#scheduler = scheduler;
    this.#log = log;
    this.#failures = new FailureLog(NOT_ANNOUNCED, 'warn', clock);
    transport.presence.watch((change) => this.#notify(change));
  }

  /** @throws HubgateError `transport-closed` or `transport-failed` */
  async entered(subscriber: Subscriber): Promise<void> {
    const records = await this.#scheduler.compute((budget) =>
      subscriptionRecords(subscriber, this.#names, budget),
    );
    // The subscriber left while its records were created, so nobody was notified of it.
    if (subscriber.ended !== null) return;
    this.#entered.add(subscriber);
    await this.#transport.presence.enter(subscriber.id, records);
  }

  left(subscriber: Subscriber): void {
    if (!this.#entered.has(subscriber)) return;
    this.#transport.presence.leave(subscriber.id).catch((error: unknown) => {
      this.#failures.write(this.#log, { error: messageOf(error) });
    });
  }

  /** Publishes a change for the subscribers that may read it. */
  async #notify({ records, active, name, isNew }: PresenceChange): Promise<void> {
    const times = new Map<string, number>();
    const events = records.filter(isSubscription).map((record) => {
      // A subscriber may have asked for the same matcher twice.
      const nth = times.get(record.id) ?? 0;
      times.set(record.id, nth + 1);
      return subscriptionEvent(
        { ...record, active },
        this.#names,
        eventId(`${name} ${active}`, nth, record.id),
      );
    });
    if (isNew) {
      await Promise.all(events.map((event) => this.#transport.append(event)));
      return;
    }
    // Another process may have published part of this change before it died.
    for (const event of events) {
      if ((await this.#transport.find(event.id)) === null) await this.#transport.append(event);
    }
  }
}

/** A UUID (RFC 9562 §5.8) that every process creates alike for the same change. */
function eventId(change: string, nth: number, subscription: string): string {
  const hex = hash('sha256', `${change} ${nth} ${subscription}`, 'hex');
  const variant = ((Number.parseInt(hex.slice(16, 17), 16) & 3) | 8).toString(16);
  const groups = [hex.slice(0, 8), hex.slice(8, 12), `8${hex.slice(13, 16)}`];
  return `urn:uuid:${[...groups, variant + hex.slice(17, 20), hex.slice(20, 32)].join('-')}`;
}
