// Requests are coalesced next to the upstream, after every rule of the site. The key is everything that the
// upstream sees. The upstream's response is shared unchanged, and each request applies its own response
// rules.

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

/** Keys at the same time whose responses are requested or kept. */
const MAX_FLIGHTS = 1_000;
/** Requests of one proxy that wait for the response to another. Further ones are forwarded themselves. */
const MAX_WAITING = 10_000;
/** How long a request waits for the response to another, in milliseconds. */
const MAX_WAIT_MS = 5_000;
/** Cost of releasing one request, in steps of the scheduler: ten of them are released in one turn. */
const RELEASE_STEPS = 10_000;

/** A request that may share its response. */
export interface CoalescedRequest {
  readonly exchange: Exchange;
  /** Equal for requests that an upstream cannot distinguish. */
  readonly key: string;
  /** The fields of the request that an upstream sees. */
  readonly fields: HeaderList;
  /** How long other requests may join before this one is sent, in milliseconds; none can join afterwards. */
  readonly gatherMs: number;
  /** If it is 0: how long the response is shared, from the time of its request. */
  readonly keepMs: number;
  /** Returns the fields of the response for other clients; null for the response of one client. */
  readonly forOthers: (fields: HeaderList) => HeaderList | null;
}

/** The role of a request. */
export type Part =
  /** It is sent, and others wait for its response. */
  | { readonly kind: 'lead'; readonly recorder: ResponseRecorder }
  /** It gets the response to another request; the hold must be released. */
  | { readonly kind: 'follow'; readonly answer: SharedResponse; readonly hold: SharedResponseHold }
  /** It is sent for itself. */
  | { readonly kind: 'alone' };

const ALONE: Part = { kind: 'alone' };

interface Follower {
  readonly request: CoalescedRequest;
  go(part: Part): void;
}

/**
 * Request coalescing: of concurrent requests with the same key, one is sent, and the others get its response.
 * It happens next to the upstream, so each request has passed all rules of its site, and changes of the
 * response are applied for each of them.
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

  /** Resolves when the role of a request is known; soon if its client leaves. */
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

/** The requests with one key: one that is sent, and those that wait for its response. */
class Flight implements Task {
  readonly #memory: SharedResponseMemory;
  readonly #scheduler: Scheduler;
  readonly #clock: Clock;
  readonly #vacate: () => void;
  #state: 'asking' | 'refused' | SharedResponse = 'asking';
  /** In the order of arrival. */
  readonly #followers = new Set<Follower>();
  #stopWaiting: () => void = () => {};
  #isOpen = true;
  /** Keeps the response for later requests. */
  #hold: SharedResponseHold | null = null;

  /** @param vacate called when no request is left: the next one with the key creates its own flight */
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

  /** Makes a request the leader: its response goes to those that wait. */
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

  /** From now on, no further request joins. */
  close(): void {
    this.#isOpen = false;
    if (this.#followers.size === 0) this.#hold?.release();
  }

  /** Releases some of the waiting requests, and returns whether there are more. */
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

  /** The client of the leader has left: the next waiting request takes its place. */
  #promote(): void {
    if (this.#state !== 'asking') return;
    const [next] = this.#followers;
    if (next === undefined) {
      this.#settle('refused');
      this.#vacate();
    } else next.go(this.lead(next.request));
  }
}
