// Requests are coalesced beside the upstream, behind every rule of the site. The key is everything
// that the upstream sees. The upstream's response is shared as it came, and each request applies
// its own response rules.

import { type Clock, pause } from '../kernel/clock.ts';
import type { Exchange } from '../http/exchange.ts';
import type { HeaderList } from '../http/header-list.ts';
import type { Budget, Scheduler, Task } from '../kernel/scheduler.ts';
import { ResponseRecorder } from './response-recorder.ts';
import type {
  AnswerHead,
  SharedResponse,
  SharedResponseHold,
  SharedResponseMemory,
} from './shared-response.ts';
import { fits, isShareable } from './shareable.ts';

/** Keys at a time whose answers are asked for or kept. */
const MAX_FLIGHTS = 1_000;
/** Requests of one proxy that wait for the answer of another; those beyond make their own. */
const MAX_WAITING = 10_000;
/** How long a request waits for the answer of another, in milliseconds. */
const MAX_WAIT_MS = 5_000;
/** What it costs to let one go on, in steps of a slice: ten of them go in one turn. */
const RELEASE_STEPS = 10_000;

/** A request that may share its answer. */
export interface CoalescedRequest {
  readonly exchange: Exchange;
  /** Equal for requests that an upstream cannot tell apart. */
  readonly key: string;
  /** The fields that an upstream sees of it. */
  readonly fields: HeaderList;
  /** How long others are waited for before it is made, in milliseconds; it takes nobody in after. */
  readonly gatherMs: number;
  /** Without that: how long its answer is given to others, from when it is asked for. */
  readonly keepMs: number;
  /** What of the fields of its answer others are given; null for an answer of one client. */
  readonly forOthers: (fields: HeaderList) => HeaderList | null;
}

/** What becomes of a request. */
export type Part =
  /** It is made, and others wait for its answer. */
  | { readonly kind: 'lead'; readonly recorder: ResponseRecorder }
  /** The answer of another is its answer; the hold is to be released. */
  | { readonly kind: 'follow'; readonly answer: SharedResponse; readonly hold: SharedResponseHold }
  /** It is made for itself. */
  | { readonly kind: 'alone' };

const ALONE: Part = { kind: 'alone' };

interface Follower {
  readonly request: CoalescedRequest;
  go(part: Part): void;
}

/**
 * Request coalescing: of concurrent requests with one key one is made, and the others get its
 * answer. It stands beside the upstream, so each has passed all rules of its site, and what is added
 * to an answer is added for each.
 */
export class RequestCoalescer {
  readonly #memory: SharedResponseMemory;
  readonly #scheduler: Scheduler;
  readonly #clock: Clock;
  readonly #flights = new Map<string, Flight>();
  #waiting = 0;

  constructor(memory: SharedResponseMemory, scheduler: Scheduler, clock: Clock) {
    this.#memory = memory;
    this.#scheduler = scheduler;
    this.#clock = clock;
  }

  /** Resolves once it is known what becomes of a request; soon where its client leaves. */
  async join(request: CoalescedRequest): Promise<Part> {
    const flight = this.#flights.get(request.key);
    if (flight !== undefined) return this.#follow(flight, request);
    if (this.#flights.size >= MAX_FLIGHTS) return ALONE;
    const { key, exchange, gatherMs, keepMs } = request;
    const close = (): void => {
      if (this.#flights.get(key) === started) this.#flights.delete(key);
      started.close();
    };
    const started = new Flight(this.#memory, this.#scheduler, this.#clock, close);
    this.#flights.set(key, started);
    if (gatherMs > 0) {
      await pause(this.#clock, gatherMs, exchange);
      close();
    } else this.#clock.after(keepMs, close);
    return started.lead(request);
  }

  async #follow(flight: Flight, request: CoalescedRequest): Promise<Part> {
    if (flight.isAsking && this.#waiting >= MAX_WAITING) return ALONE;
    this.#waiting += 1;
    try {
      const part = await flight.follow(request);
      if (part.kind !== 'follow') return part;
      const { head, request: answered } = part.answer;
      if (fits(head.headers, answered, request.fields)) return part;
      part.hold.release();
      return ALONE;
    } finally {
      this.#waiting -= 1;
    }
  }
}

/** The requests of one key: one that is made, and those that wait for its answer. */
class Flight implements Task {
  readonly #memory: SharedResponseMemory;
  readonly #scheduler: Scheduler;
  readonly #clock: Clock;
  readonly #vacate: () => void;
  #state: 'asking' | 'refused' | SharedResponse = 'asking';
  /** In the order in which they came. */
  readonly #followers = new Set<Follower>();
  #stopWaiting: () => void = () => {};
  #isOpen = true;
  /** Keeps the answer for those that come. */
  #hold: SharedResponseHold | null = null;

  /** @param vacate called when nobody is left: the next request of the key makes its own flight */
  constructor(
    memory: SharedResponseMemory,
    scheduler: Scheduler,
    clock: Clock,
    vacate: () => void,
  ) {
    this.#memory = memory;
    this.#scheduler = scheduler;
    this.#clock = clock;
    this.#vacate = vacate;
  }

  get isAsking(): boolean {
    return this.#state === 'asking';
  }

  /** Makes a request that of all: its answer goes to those that wait. */
  lead({ exchange, fields, forOthers }: CoalescedRequest): Part {
    this.#stopWaiting();
    this.#stopWaiting = this.#clock.after(MAX_WAIT_MS, () => this.#settle('refused'));
    const recorder = new ResponseRecorder(this.#memory, fields, exchange, {
      isShareable: (head: AnswerHead) => isShareable(head, fields, this.#clock.now()),
      forOthers,
      answered: (answer) => this.#settle(answer),
      refused: () => this.#settle('refused'),
      left: () => this.#promote(),
    });
    return { kind: 'lead', recorder };
  }

  follow(request: CoalescedRequest): Part | Promise<Part> {
    if (this.#state !== 'asking') return this.#partOf(this.#state);
    return new Promise((resolve) => {
      const follower: Follower = {
        request,
        go: (part) => {
          this.#followers.delete(follower);
          forget();
          resolve(part);
        },
      };
      const forget = request.exchange.onAbandoned(() => follower.go(ALONE));
      this.#followers.add(follower);
    });
  }

  /** From now on nobody comes any more. */
  close(): void {
    this.#isOpen = false;
    if (this.#followers.size === 0) this.#hold?.release();
  }

  /** Lets some of those go on that wait, and says whether there are more. */
  run(budget: Budget): boolean {
    const state = this.#state;
    for (const follower of this.#followers) {
      if (budget.isSpent) return true;
      budget.spend(RELEASE_STEPS);
      follower.go(state === 'asking' ? ALONE : this.#partOf(state));
    }
    if (!this.#isOpen) this.#hold?.release();
    return false;
  }

  #partOf(state: 'refused' | SharedResponse): Part {
    if (state === 'refused' || state.isCut) return ALONE;
    return { kind: 'follow', answer: state, hold: state.hold() };
  }

  #settle(state: 'refused' | SharedResponse): void {
    if (this.#state !== 'asking') return;
    this.#state = state;
    this.#stopWaiting();
    if (state !== 'refused') this.#hold = state.hold();
    this.#scheduler.add(this);
  }

  /** The client of the one that was made has left: the next of those that wait takes its place. */
  #promote(): void {
    if (this.#state !== 'asking') return;
    const [next] = this.#followers;
    if (next === undefined) {
      this.#settle('refused');
      this.#vacate();
    } else next.go(this.lead(next.request));
  }
}
