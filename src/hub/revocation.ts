import type { Clock } from '../kernel/clock.ts';
import type { Scheduler } from '../kernel/scheduler.ts';
import type { OpenStreams } from './open-streams.ts';
import type { MayStayOpen, Subscriber, SubscriberOptions } from './subscriber.ts';

/** Cost of ending a stream, in steps. */
const END_STEPS = 500;
/** Cost of setting a timer, in steps. */
const TIMER_STEPS = 30;

interface RevocationOptions {
  readonly streams: OpenStreams;
  readonly admission: Admission;
  readonly clock: Clock;
  readonly scheduler: Scheduler;
}

/** Ends streams that are no longer authorized, and prevents new ones of that kind. */
export class Revocation {
  readonly #options: RevocationOptions;

  constructor(options: RevocationOptions) {
    this.#options = options;
  }

  /**
   * From now on `keep` decides which streams may be open. Streams that it rejects receive no more private updates, and end
   * at random times within `spreadMs`. Returns their number.
   */
  reauthorise(keep: MayStayOpen, spreadMs: number): number {
    this.#options.admission.decideBy(keep);
    const refused = this.#refusedBy(keep).map(([, subscribers]) => subscribers);
    this.#endWithin(spreadMs, refused, 'unauthorized');
    return refused.reduce((sum, { size }) => sum + size, 0);
  }

  /** Ends each stream at a random time within `spreadMs`, so that their clients do not reconnect together. */
  #endWithin(
    spreadMs: number,
    sets: readonly Iterable<Subscriber>[],
    reason: 'unauthorized' | 'closed',
  ): void {
    const { streams, clock } = this.#options;
    this.#forEach(sets, TIMER_STEPS, (subscriber) => {
      const end = clock.monotonic() + Math.floor(Math.random() * spreadMs);
      streams.endBy(subscriber, end, reason);
    });
  }

  /** How many streams {@link reauthorise} would end: without a token, and with one. */
  countRefused(keep: MayStayOpen): { readonly anonymous: number; readonly authorised: number } {
    const counts = { anonymous: 0, authorised: 0 };
    for (const [issuerKey, { size }] of this.#refusedBy(keep)) {
      counts[issuerKey === null ? 'anonymous' : 'authorised'] += size;
    }
    return counts;
  }

  /**
   * Ends the streams that were opened with the token of this `jti`. They receive nothing from now on. Returns
   * their number.
   */
  revoke(tokenId: string): number {
    this.#options.admission.revoked({ tokenId });
    return this.#endThose(this.#options.streams.registry.ofToken(tokenId));
  }

  /** Ends the streams of a browser session, like {@link revoke}. Returns their number. */
  signOut(session: string): number {
    this.#options.admission.revoked({ session });
    return this.#endThose(this.#options.streams.registry.ofSession(session));
  }

  /** Ends all streams because the hub closes: at once, or spread over `spreadMs`. */
  drain(spreadMs: number): void {
    const { streams } = this.#options;
    const all = [streams.registry.all()];
    // Updates that are on their way are still stored, so this is no rule for them.
    if (spreadMs > 0) this.#endWithin(spreadMs, all, 'closed');
    else this.#forEach(all, END_STEPS, (one) => streams.end(one, 'closed'));
  }

  #refusedBy(keep: MayStayOpen) {
    const { registry } = this.#options.streams;
    return [...registry.issuerKeys()].filter(([issuerKey]) => !keep({ issuerKey }));
  }

  #endThose(subscribers: Iterable<Subscriber>): number {
    const { streams } = this.#options;
    const concerned = [...subscribers];
    // A stream that may no longer read receives nothing more, however long its end takes.
    for (const { sendBuffer } of concerned) sendBuffer.discardQueued();
    const open = concerned.filter(({ ended }) => ended === null);
    this.#forEach([open], END_STEPS, (one) => streams.end(one, 'revoked'));
    return open.length;
  }

  /** Applies an action to each of many streams, in slices. */
  #forEach(
    sets: readonly Iterable<Subscriber>[],
    steps: number,
    task: (subscriber: Subscriber) => void,
  ): void {
    void this.#options.scheduler.compute(function* (budget) {
      for (const set of sets) {
        for (const subscriber of set) {
          if (budget.isSpent) yield;
          budget.spend(steps);
          task(subscriber);
        }
      }
    });
  }
}

/** What a revocation may concern. */
export type Client = Pick<SubscriberOptions, 'issuerKey' | 'tokenId' | 'session'>;

/** Revocations that are remembered for requests that were in progress when they arrived. */
const REMEMBERED = 1000;

/**
 * Decides which subscribers may still connect, and which updates may still be stored. Between the check of a
 * token and the registration of its stream, or the end of its body, a reload may remove its issuer, the
 * operator may revoke it, or its user may log out. Everything that ends open streams must also reach streams
 * that are just opening, and updates that are just arriving.
 */
export class Admission {
  #keeps: MayStayOpen = () => true;
  /** The most recent ones, by their numbers. */
  readonly #revocations: { readonly tokenId?: string; readonly session?: string }[] = [];
  #count = 0;

  /** The number of revocations so far. A request remembers it before it checks its token. */
  get revocationEpoch(): number {
    return this.#count;
  }

  /** Whether the authorization behind a stream is still configured. */
  mayStayOpen(stream: Pick<SubscriberOptions, 'issuerKey'>): boolean {
    return this.#keeps(stream);
  }

  /** Replaces the rule for streams from now on. */
  decideBy(keeps: MayStayOpen): void {
    this.#keeps = keeps;
  }

  revoked(what: { readonly tokenId: string } | { readonly session: string }): void {
    this.#revocations[this.#count % REMEMBERED] = what;
    this.#count += 1;
  }

  /** Whether a request may still be served if its token was checked at `revocationEpoch`. */
  admits(client: Client, revocationEpoch: number): boolean {
    if (!this.#keeps(client)) return false;
    // The revocations since then are no longer known, so the client must connect again.
    if (this.#count - revocationEpoch > REMEMBERED) return false;
    for (let number = revocationEpoch; number < this.#count; number += 1) {
      const revocation = this.#revocations[number % REMEMBERED];
      if (client.tokenId !== null && revocation?.tokenId === client.tokenId) return false;
      if (client.session !== null && revocation?.session === client.session) return false;
    }
    return true;
  }
}
