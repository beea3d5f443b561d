import { Writable } from 'node:stream';
import type { Exchange, Next, ResponseHead } from '../http/exchange.ts';
import type { HeaderList } from '../http/header-list.ts';
import type { Clock } from '../kernel/clock.ts';
import type { Budget, Scheduler, Task } from '../kernel/scheduler.ts';
import { ArrivingBody, type ArrivingBytes } from './arriving-body.ts';
import { FetchExchange } from './fetch-exchange.ts';
import type { StoredResponse } from './stored-response.ts';

/** How long a request waits for the answer to another, in milliseconds. */
const MAX_WAIT_MS = 30_000;
/** What it costs to let one go on, in steps of a slice: ten of them go in one turn. */
const RELEASE_STEPS = 10_000;

/** An answer that others may have; its body is on its way. */
export interface SharedAnswer {
  /** It as it will be stored, but for the body. */
  readonly stored: StoredResponse;
  readonly body: ArrivingBody;
}

/** What a request to the app has come to. */
export type Outcome =
  | { readonly kind: 'answer'; readonly answer: SharedAnswer }
  /** The stored response is still the one, with the fields of the 304; `isShared`: for others too. */
  | { readonly kind: 'renewed'; readonly stored: StoredResponse; readonly isShared: boolean }
  /** It has gone to the client that asked first. */
  | { readonly kind: 'passed' }
  /** Nobody has answered. */
  | { readonly kind: 'unanswered' }
  /** The app has failed: with an error of the gateway's, or null where it said so itself. */
  | { readonly kind: 'failed'; readonly error: unknown }
  /** Whoever waited waits no longer. */
  | { readonly kind: 'left' };

/** What is decided about the answer of a flight when its head comes. */
export type Decision =
  | { readonly kind: 'share'; readonly stored: StoredResponse }
  | { readonly kind: 'renew'; readonly stored: StoredResponse; readonly isShared: boolean }
  | { readonly kind: 'pass'; readonly head: ResponseHead }
  /** What is stored is used instead. */
  | { readonly kind: 'discard' };

interface FlightOptions {
  /** The moment of the last purge when it began. */
  readonly moment: number;
  /** What the app is asked. */
  readonly headers: HeaderList;
  /** Nobody waits for it. */
  readonly isBackground: boolean;
  readonly maxBytes: number;
  readonly memory: ArrivingBytes;
  readonly clock: Clock;
  readonly scheduler: Scheduler;
  readonly decide: (head: ResponseHead, fetch: FetchExchange) => Decision;
  /** The whole body of an answer is here, and the trailers are nobody's own. */
  readonly complete: (stored: StoredResponse, body: Buffer, trailers: HeaderList | null) => void;
  /** Nobody can join it any more. */
  readonly closed: () => void;
}

interface Waiting {
  go(outcome: Outcome): void;
}

/** One request to the app on behalf of all who ask the same meanwhile. */
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

  /** What it has come to so far; null while nobody knows. */
  get outcome(): Outcome | null {
    return this.#outcome;
  }

  /**
   * Asks the app. `outcome` resolves when it is known what becomes of it, `finished` when the handlers
   * are done, and rejects with what they throw; `over` when its answer is here as well.
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
              // What follows is not wanted; later, as the handler is in the middle of its answer.
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
    // Whoever is answered by others does not ask how it ended.
    const over = finished.catch(() => {}).then(() => arriving.body?.settled);
    return { outcome, finished, over };
  }

  /** Resolves with what it has come to, or soon after the client has left. */
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

  /** Lets some of those go on that wait, and says whether there are more. */
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

  /** Before it is known that others may have the answer, it is asked for only as long as somebody waits. */
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
