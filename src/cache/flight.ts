import { Writable } from 'node:stream';
import type { Exchange, Next, ResponseHead } from '../http/exchange.ts';
import type { HeaderList } from '../http/header-list.ts';
import type { Clock } from '../kernel/clock.ts';
import type { Budget, Scheduler, Task } from '../kernel/scheduler.ts';
import { ArrivingBody, type ArrivingBytes } from './arriving-body.ts';
import { FetchExchange } from './fetch-exchange.ts';
import type { StoredResponse } from './stored-response.ts';

/** How long a request waits for the response to another one, in milliseconds. */
const MAX_WAIT_MS = 30_000;
/** Cost of letting one waiting request continue, in steps: ten of them continue in one turn. */
const RELEASE_STEPS = 10_000;

/** A response that can be shared. Its body is arriving. */
export interface SharedAnswer {
  /** The response as it will be stored, without its body. */
  readonly stored: StoredResponse;
  readonly body: ArrivingBody;
}

/** The outcome of a request to the app. */
export type Outcome =
  | { readonly kind: 'answer'; readonly answer: SharedAnswer }
  /**
   * The stored response is still current, with the fields of the 304. `isShared` means that others may have
   * it too.
   */
  | { readonly kind: 'renewed'; readonly stored: StoredResponse; readonly isShared: boolean }
  /** The response went to the client that asked first. */
  | { readonly kind: 'passed' }
  /** No handler has responded. */
  | { readonly kind: 'unanswered' }
  /** The app has failed: with an error of the gateway, or null if the app itself reported it. */
  | { readonly kind: 'failed'; readonly error: unknown }
  /** The waiting client has left. */
  | { readonly kind: 'left' };

/** The decision about a response when its head arrives. */
export type Decision =
  | { readonly kind: 'share'; readonly stored: StoredResponse }
  | { readonly kind: 'renew'; readonly stored: StoredResponse; readonly isShared: boolean }
  | { readonly kind: 'pass'; readonly head: ResponseHead }
  /** The stored response is used instead. */
  | { readonly kind: 'discard' };

interface FlightOptions {
  /** The moment of the last purge before it began. */
  readonly moment: number;
  /** The request fields for the app. */
  readonly headers: HeaderList;
  /** No client waits for it. */
  readonly isBackground: boolean;
  readonly maxBytes: number;
  readonly memory: ArrivingBytes;
  readonly clock: Clock;
  readonly scheduler: Scheduler;
  readonly decide: (head: ResponseHead, fetch: FetchExchange) => Decision;
  /** Called when the body is complete, with its trailers. */
  readonly complete: (stored: StoredResponse, body: Buffer, trailers: HeaderList | null) => void;
  /** Called when no further request can join it. */
  readonly closed: () => void;
}

interface Waiting {
  go(outcome: Outcome): void;
}

/** One request to the app on behalf of all requests for the same resource that arrive in the meantime. */
export class Flight implements Task {
  readonly moment: number;
  readonly #options: FlightOptions;
  #outcome: Outcome | null = null;
  readonly #waiting = new Set<Waiting>();
  #fetch: FetchExchange | null = null;
  #isOver = false;
  #isFirstGone = false;
  #first: ((outcome: Outcome) => void) | null = null;

  constructor(options: FlightOptions) {
    this.#options = options;
    this.moment = options.moment;
  }

  /** The outcome so far; null while it is unknown. */
  get outcome(): Outcome | null {
    return this.#outcome;
  }

  /**
   * Sends the request. `outcome` resolves when the outcome is known, `finished` when the handlers are done
   * (or rejects with what they throw), and `over` when the response has arrived completely as well.
   */
  ask(
    exchange: Exchange,
    next: Next,
  ): { outcome: Promise<Outcome>; finished: Promise<void>; over: Promise<void> } {
    const outcome = new Promise<Outcome>((resolve) => {
      this.#first = resolve;
    });
    const { headers, isBackground } = this.#options;
    const arriving: { body: ArrivingBody | null } = { body: null };
    const fetch = new FetchExchange(
      exchange,
      headers,
      {
        take: (head) => {
          const decision = this.#options.decide(head, fetch);
          if (decision.kind === 'pass' && !isBackground) {
            this.#settle({ kind: 'passed' });
            return { pass: decision.head };
          }
          if (decision.kind !== 'share') {
            if (decision.kind === 'renew') {
              this.#settle({ ...decision, kind: 'renewed' });
            } else {
              this.#settle({ kind: 'failed', error: null });
              // The rest is not wanted. This happens later, because the handler is in the middle of its
              // response.
              setImmediate(() => fetch.abandon());
            }
            return { body: discarding() };
          }
          const body = this.#receive(decision.stored, fetch);
          arriving.body = body;
          return { body: body.input };
        },
        trailers: (trailers) => {
          if (arriving.body !== null) arriving.body.trailers = trailers;
        },
        broken: () => arriving.body?.fail(),
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
        arriving.body?.fail();
        this.#settle({ kind: 'failed', error });
        throw error;
      } finally {
        forget();
        this.#isOver = true;
      }
    })();
    // Requests that joined do not ask how it ended.
    const over = finished.catch(() => {}).then(() => arriving.body?.settled);
    return { outcome, finished, over };
  }

  /** Resolves to the outcome, or soon after the client has left. */
  join(exchange: Exchange): Promise<Outcome> {
    if (this.#outcome !== null) return Promise.resolve(this.#outcome);
    return new Promise((resolve) => {
      const waiting: Waiting = {
        go: (outcome) => {
          if (!this.#waiting.delete(waiting)) return;
          forget();
          stop();
          resolve(outcome);
        },
      };
      this.#waiting.add(waiting);
      const forget = exchange.onAbandoned(() => {
        waiting.go({ kind: 'left' });
        this.#abandonIfUnwanted();
      });
      const stop = this.#options.clock.after(MAX_WAIT_MS, () => waiting.go({ kind: 'passed' }));
    });
  }

  get waiting(): number {
    return this.#waiting.size;
  }

  /** Lets some of the waiting requests continue, and returns whether there are more. */
  run(budget: Budget): boolean {
    const outcome = this.#outcome;
    if (outcome === null) return false;
    for (const waiting of this.#waiting) {
      if (budget.isSpent) return true;
      budget.spend(RELEASE_STEPS);
      waiting.go(outcome);
    }
    return false;
  }

  #receive(stored: StoredResponse, fetch: FetchExchange): ArrivingBody {
    const { maxBytes, memory, clock, complete, closed, isBackground } = this.#options;
    const body = new ArrivingBody(maxBytes, memory, clock, {
      complete: (whole) => {
        complete(stored, whole, body.trailers);
        closed();
      },
      failed: () => {
        closed();
        fetch.abandon();
      },
      tooLarge: () => {
        closed();
        if (isBackground) setImmediate(() => body.fail());
      },
    });
    this.#settle({ kind: 'answer', answer: { stored, body } });
    return body;
  }

  #settle(outcome: Outcome): void {
    if (this.#outcome !== null) return;
    this.#outcome = outcome;
    if (outcome.kind !== 'answer') this.#options.closed();
    this.#first?.(outcome);
    this.#first = null;
    if (this.#waiting.size > 0) this.#options.scheduler.add(this);
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
    if (this.#options.isBackground || this.#waiting.size > 0) return;
    this.#options.closed();
    this.#fetch?.abandon();
  }
}

function discarding(): Writable {
  return new Writable({ write: (_chunk, _encoding, done) => done() });
}
