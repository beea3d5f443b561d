import { createHash, randomUUID } from 'node:crypto';
import { messageOf } from '../kernel/error.ts';
import type { Logger } from '../kernel/log.ts';
import type { Slices } from '../kernel/slices.ts';
import {
  type PresenceNames,
  subscriptionEvent,
  type SubscriptionRecord,
  subscriptionRecords,
} from './presence.ts';
import type { Subscriber } from './subscriber.ts';
import type { Transport } from './transport.ts';

/** Tells who is subscribed: on the board of the log, and by updates for those who may read them. */
export class Announcer {
  readonly #transport: Transport;
  readonly #names: PresenceNames;
  readonly #slices: Slices;
  readonly #log: Logger;
  /** What has been told of each, to be taken back word by word. */
  readonly #told = new WeakMap<Subscriber, readonly SubscriptionRecord[]>();

  constructor(transport: Transport, names: PresenceNames, slices: Slices, log: Logger) {
    this.#transport = transport;
    this.#names = names;
    this.#slices = slices;
    this.#log = log;
    transport.presence.watch(async (change) => {
      const { records, active } = change;
      const changed = records.map((record) => ({ ...record, active }));
      try {
        await (change.active ? this.#tell(changed) : this.#tellOnce(changed, change.departure));
      } catch (error) {
        this.#untold(error);
        throw error;
      }
    });
  }

  /** @throws HubgateError `transport-closed` or `transport-failed` */
  async entered(subscriber: Subscriber): Promise<void> {
    const records = await this.#slices.compute((meter) =>
      subscriptionRecords(subscriber, this.#names, meter),
    );
    // It has left while its records were made: nobody was told of it.
    if (subscriber.ended !== null) return;
    this.#told.set(subscriber, records);
    // In this order, and both in this turn: a transport that closes now still takes them.
    await Promise.all([
      this.#transport.presence.enter(subscriber.id, records),
      this.#tell(records),
    ]);
  }

  left(subscriber: Subscriber): void {
    const records = this.#told.get(subscriber);
    if (records === undefined) return;
    const gone = records.map((record) => ({ ...record, active: false }));
    Promise.all([this.#transport.presence.leave(subscriber.id), this.#tell(gone)]).catch(
      (error: unknown) => this.#untold(error),
    );
  }

  /** Publishes what has changed, so that those who may read it know. */
  async #tell(records: readonly SubscriptionRecord[]): Promise<void> {
    await Promise.all(
      records.map((record) =>
        this.#transport.append(subscriptionEvent(record, this.#names, `urn:uuid:${randomUUID()}`)),
      ),
    );
  }

  /** As {@link #tell}, but for what another may have told before it died. */
  async #tellOnce(records: readonly SubscriptionRecord[], departure: string): Promise<void> {
    for (const record of records) {
      const id = departureId(departure, record.id);
      if ((await this.#transport.find(id)) !== null) continue;
      await this.#transport.append(subscriptionEvent(record, this.#names, id));
    }
  }

  #untold(error: unknown): void {
    this.#log.warn('A change of subscriptions could not be announced', {
      error: messageOf(error),
    });
  }
}

/** A UUID (RFC 9562 §5.8) that whoever announces the same makes as well. */
function departureId(departure: string, subscription: string): string {
  const hex = createHash('sha256').update(`${departure} ${subscription}`).digest('hex');
  const variant = ((Number.parseInt(hex.slice(16, 17), 16) & 3) | 8).toString(16);
  const groups = [hex.slice(0, 8), hex.slice(8, 12), `8${hex.slice(13, 16)}`];
  return `urn:uuid:${[...groups, variant + hex.slice(17, 20), hex.slice(20, 32)].join('-')}`;
}
