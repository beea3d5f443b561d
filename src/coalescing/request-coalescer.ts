// Request coalescing, for whatever knows which requests are equal: `cache` uses it in front of later
// handlers, and `reverse_proxy` beside the upstream for live pages. The caller decides about keys, and about
// the responses that others may have.

import type { Writable } from 'node:stream';
import { ignore } from '../kernel/error.ts';
import type { Exchange, Next, ResponseHead } from '../http/exchange.ts';
import { HttpError } from '../http/errors.ts';
import { discarding } from '../http/deferred-body.ts';
import type { HeaderList } from '../http/header-list.ts';
import { setNewest } from '../kernel/collections.ts';
import type { Clock } from '../kernel/clock.ts';
import type { Budget, Scheduler, Task } from '../kernel/scheduler.ts';
import { ArrivingBody, type BodyMemory } from './arriving-body.ts';
import { FetchExchange } from './fetch-exchange.ts';

/** Most requests to the app at a time that others can join, for one coalescer. */
const MAX_FLIGHTS = 1_000;
/** Requests of one coalescer that wait for the response to another one. */
const MAX_WAITING = 10_000;
/** Cost of letting one waiting request continue, in steps: ten of them continue in one turn. */
const RELEASE_STEPS = 10_000;
/** Keys that are remembered because their responses are not shared. */
const MAX_UNSHARED = 10_000;

/** The outcome of a request to the app. */
export type Outcome<Answer> =
  /** A response that others may have; null: its caller has the body. */
  | { readonly kind: 'answer'; readonly answer: Answer; readonly body: ArrivingBody | null }
  /** The response went to the client that asked first, or it takes too long. */
  | { readonly kind: 'passed' }
  /** No handler has responded. */
  | { readonly kind: 'unanswered' }
  /** A handler has closed the connection instead of responding. */
  | { readonly kind: 'aborted' }
  /** The app has failed: with an error of the gateway, or null if the app itself reported it. */
  | { readonly kind: 'failed'; readonly error: unknown }
  /** The waiting client has left. */
  | { readonly kind: 'left' };

/** The decision about a response when its head arrives. */
export type Decision<Answer> =
  | {
      readonly kind: 'share';
      readonly answer: Answer;
      /** Called with the complete body, unless it was too large. */
      readonly complete: (body: ArrivingBody) => void;
    }
  /** The response itself is not needed, but its outcome is. */
  | { readonly kind: 'settle'; readonly answer: Answer }
  | { readonly kind: 'pass'; readonly head: ResponseHead }
  /** The response is not wanted. */
  | { readonly kind: 'discard' };

/** A request to the app. */
export interface FlightOrder<Answer> {
  /** The state of the caller when it began. */
  readonly moment: number;
  /** The request fields for the app. */
  readonly headers: HeaderList;
  /** No client waits for it. */
  readonly isBackground: boolean;
  readonly decide: (head: ResponseHead, fetch: FetchExchange) => Decision<Answer>;
}

export interface CoalescerOptions {
  readonly memory: BodyMemory;
  readonly scheduler: Scheduler;
  readonly clock: Clock;
  /** Bytes of a body up to which it is held, so that others can join. */
  readonly maxBody: number;
  /** How long a request waits for the response to another one, in milliseconds. */
  readonly maxWaitMs: number;
}

/** The requests in progress that others can join, by what their caller regards as equal. */
export class RequestCoalescer<Answer> {
  readonly #options: CoalescerOptions;
  readonly #flights = new Map<string, Flight<Answer>>();
  /** Until when a key is remembered as not shared; the oldest first. */
  readonly #unshared = new Map<string, number>();
  #waiting = 0;

  constructor(options: CoalescerOptions) {
    this.#options = options;
  }

  /** The request that others with this key can join. */
  find(key: string): Flight<Answer> | undefined {
    return this.#flights.get(key);
  }

  /** Whether no further key can have such a request. */
  get isFull(): boolean {
    return this.#flights.size >= MAX_FLIGHTS;
  }

  /** Prepares a request. Others with its key can join it from now on; with null, none can. */
  start(key: string | null, order: FlightOrder<Answer>): Flight<Answer> {
    const flight: Flight<Answer> = new Flight(this.#options, order, () => {
      if (key !== null && this.#flights.get(key) === flight) this.#flights.delete(key);
    });
    if (key !== null) this.#flights.set(key, flight);
    return flight;
  }

  /** Resolves to the outcome of a request of others; soon if the client leaves. */
  async join(flight: Flight<Answer>, exchange: Exchange): Promise<Outcome<Answer>> {
    if (flight.outcome !== null) return flight.outcome;
    if (this.#waiting >= MAX_WAITING) return { kind: 'passed' };
    this.#waiting += 1;
    try {
      return await flight.join(exchange);
    } finally {
      this.#waiting -= 1;
    }
  }

  /** Whether requests with this key need not wait for each other, because their responses are not shared. */
  isUnshared(key: string): boolean {
    const untilMs = this.#unshared.get(key);
    if (untilMs === undefined) return false;
    if (untilMs > this.#options.clock.monotonic()) return true;
    this.#unshared.delete(key);
    return false;
  }

  markUnshared(key: string, forMs: number): void {
    if (forMs === 0) return;
    setNewest(this.#unshared, key, this.#options.clock.monotonic() + forMs, MAX_UNSHARED);
  }

  /** A response with this key can be shared after all. */
  markShared(key: string): void {
    this.#unshared.delete(key);
  }
}

interface Waiting<Answer> {
  resolve(outcome: Outcome<Answer>): void;
}

/** One request to the app on behalf of all equal requests that arrive in the meantime. */
export class Flight<Answer> implements Task {
  readonly moment: number;
  readonly #options: CoalescerOptions;
  readonly #order: FlightOrder<Answer>;
  readonly #closed: () => void;
  #outcome: Outcome<Answer> | null = null;
  readonly #waiting = new Set<Waiting<Answer>>();
  #fetch: FetchExchange | null = null;
  #body: ArrivingBody | null = null;
  #isClosed = false;
  #isGivenUp = false;
  #isOver = false;
  #isFirstGone = false;
  #first: ((outcome: Outcome<Answer>) => void) | null = null;

  /** @param closed called when no further request can join it */
  constructor(options: CoalescerOptions, order: FlightOrder<Answer>, closed: () => void) {
    this.#options = options;
    this.#order = order;
    this.#closed = closed;
    this.moment = order.moment;
  }

  /** The outcome so far; null while it is unknown. */
  get outcome(): Outcome<Answer> | null {
    return this.#outcome;
  }

  /** Whether a later request may have a newer response by now. */
  get isGivenUp(): boolean {
    return this.#isGivenUp;
  }

  /** From now on, no further request joins. */
  close(): void {
    this.#isClosed = true;
    this.#closed();
    this.#withdrawBody();
  }

  /** From now on, no further request joins, and the request ends as soon as no client reads its response. */
  giveUp(): void {
    this.#isGivenUp = true;
    this.close();
    if (this.#body === null) this.#fetch?.abandon();
    else this.#body.giveUp();
  }

  /**
   * Sends the request. `outcome` resolves when the outcome is known, `finished` when the handlers are done
   * (or rejects with what they throw), and `over` when the response has arrived completely as well.
   */
  fetch(
    exchange: Exchange,
    next: Next,
  ): { outcome: Promise<Outcome<Answer>>; finished: Promise<void>; over: Promise<void> } {
    const outcome = new Promise<Outcome<Answer>>((resolve) => {
      this.#first = resolve;
    });
    const { headers, isBackground } = this.#order;
    const fetch = new FetchExchange(
      exchange,
      headers,
      {
        take: (head) => this.#take(head, fetch),
        trailers: (trailers) => {
          if (this.#body !== null) this.#body.trailers = trailers;
        },
        broken: () => {
          if (this.#body === null) this.#settle({ kind: 'aborted' });
          else this.#body.fail();
        },
      },
      isBackground,
    );
    this.#fetch = fetch;
    const forget = isBackground ? () => {} : exchange.onAbandoned(() => this.#firstLeft());
    const finished = (async () => {
      try {
        await next(fetch);
        this.#settle({ kind: 'unanswered' });
      } catch (error) {
        if (this.#body?.isComplete === false) this.#body.fail();
        this.#settle({ kind: 'failed', error });
        throw error;
      } finally {
        forget();
        this.#isOver = true;
      }
    })();
    // Requests that joined do not ask how it ended.
    const over = finished.catch(ignore).then(() => this.#body?.settled);
    return { outcome, finished, over };
  }

  /**
   * Whether a client that has waited gets the error with which the request failed: one of the gateway or of the app that
   * it would get itself. With any other error, it asks again.
   */
  failsFor(exchange: Exchange, error: unknown): boolean {
    const isOfServer = error instanceof HttpError && error.status >= 500;
    return isOfServer && this.#fetch?.isSameFor(exchange) === true;
  }

  /** See {@link FetchExchange.handOn}. */
  handOn(exchange: Exchange): void {
    this.#fetch?.handOn(exchange);
  }

  /** Resolves to the outcome, or soon after the client has left or has waited too long. */
  join(exchange: Exchange): Promise<Outcome<Answer>> {
    return new Promise((resolve) => {
      const waiting: Waiting<Answer> = {
        resolve: (outcome) => {
          if (!this.#waiting.delete(waiting)) return;
          forget();
          stop();
          resolve(outcome);
        },
      };
      this.#waiting.add(waiting);
      const giveUp = (outcome: Outcome<Answer>): void => {
        waiting.resolve(outcome);
        this.#abandonIfUnwanted();
      };
      const forget = exchange.onAbandoned(() => giveUp({ kind: 'left' }));
      const { clock, maxWaitMs } = this.#options;
      const stop = clock.after(maxWaitMs, () => giveUp({ kind: 'passed' }));
    });
  }

  /** Lets some of the waiting requests continue, and returns whether there are more. */
  run(budget: Budget): boolean {
    const outcome = this.#outcome;
    if (outcome === null) return false;
    for (const waiting of this.#waiting) {
      if (budget.isSpent) return true;
      budget.spend(RELEASE_STEPS);
      waiting.resolve(outcome);
    }
    // They begin to read before that.
    setImmediate(() => this.#withdrawBody());
    return false;
  }

  #take(head: ResponseHead, fetch: FetchExchange): { body: Writable } | { pass: ResponseHead } {
    const { isBackground, decide } = this.#order;
    const decision = decide(head, fetch);
    if (decision.kind === 'share') return { body: this.#receive(decision, fetch).input };
    if (decision.kind === 'pass' && !isBackground) {
      this.#settle({ kind: 'passed' });
      return { pass: decision.head };
    }
    if (decision.kind === 'settle') {
      this.#settle({ kind: 'answer', answer: decision.answer, body: null });
    } else {
      this.#settle({ kind: 'failed', error: null });
      // The rest is not wanted. This happens later, because the handler is in the middle of its response.
      setImmediate(() => fetch.abandon());
    }
    return { body: discarding() };
  }

  #receive(
    { answer, complete }: Extract<Decision<Answer>, { kind: 'share' }>,
    fetch: FetchExchange,
  ): ArrivingBody {
    const { maxBody, memory, clock } = this.#options;
    const body = new ArrivingBody(maxBody, memory, clock, {
      complete: () => complete(body),
      failed: () => {
        this.close();
        fetch.abandon();
      },
      tooLarge: () => {
        this.close();
        if (this.#order.isBackground) setImmediate(() => body.fail());
      },
      // Whoever asks from now on does not wait for the rest, and asks the app.
      silent: () => this.giveUp(),
    });
    this.#body = body;
    if (this.#isClosed) this.#withdrawBody();
    this.#settle({ kind: 'answer', answer, body });
    return body;
  }

  #settle(outcome: Outcome<Answer>): void {
    if (this.#outcome !== null) return;
    this.#outcome = outcome;
    if (this.#body === null) this.close();
    this.#first?.(outcome);
    this.#first = null;
    if (this.#waiting.size > 0) this.#options.scheduler.add(this);
  }

  /** The body is held until all waiting requests have begun to read it. */
  #withdrawBody(): void {
    if (this.#isClosed && this.#waiting.size === 0) this.#body?.withdraw();
  }

  #firstLeft(): void {
    const first = this.#first;
    this.#first = null;
    first?.({ kind: 'left' });
    if (this.#outcome?.kind === 'passed') this.#fetch?.abandon();
    else this.#isFirstGone = true;
    this.#abandonIfUnwanted();
  }

  /** Until it is known that the response can be shared, the request continues only while a client waits. */
  #abandonIfUnwanted(): void {
    if (this.#outcome !== null || this.#isOver || !this.#isFirstGone) return;
    if (this.#order.isBackground || this.#waiting.size > 0) return;
    this.close();
    this.#fetch?.abandon();
  }
}
