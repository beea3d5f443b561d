import { type Clock, pause } from '../kernel/clock.ts';
import type { ArrivingBody, BodyMemory } from '../coalescing/arriving-body.ts';
import { RequestCoalescer } from '../coalescing/request-coalescer.ts';
import { HttpError } from '../http/errors.ts';
import {
  about,
  type Exchange,
  type Handler,
  type LeasedBody,
  type Next,
  type UpstreamVisit,
} from '../http/exchange.ts';
import { addressSet, type AddressSet } from '../http/forwarded.ts';
import { HeaderList } from '../http/header-list.ts';
import type { Logger } from '../kernel/log.ts';
import type { Scheduler } from '../kernel/scheduler.ts';
import { type Balance, type Choice, createBalance } from './balancing.ts';
import { type BufferedBody, BufferSpace } from './buffers.ts';
import { ForwardError, isSafe, mayRepeat, noneLeft, toHttpError } from './forward-error.ts';
import { Forwarder, refuseUnforwardable } from './forwarder.ts';
import { activeCheckKey, availability, type IsAvailable, failureByResponse } from './health.ts';
import {
  compileResponseRules,
  type ResponseBuffers,
  type ResponseRuleOptions,
  type ResponseRules,
  UpstreamResponse,
} from './response.ts';
import {
  MAX_SHARED_BYTES,
  MAX_SHARING_WAIT_MS,
  type RequestSharing,
  type SharedResponse,
  shareForwarding,
  type ShareResponse,
  type UpstreamAnswer,
} from './shared-forwarding.ts';
import { Tunnels } from './tunnels.ts';
import { Members, readTrustPool } from './members.ts';
import type { Upstream, UpstreamRegistry } from './upstreams.ts';
import type { ReverseProxyConfig } from './proxy-config.ts';

export interface ReverseProxyOptions extends ResponseRuleOptions {
  readonly registry: UpstreamRegistry;
  readonly log: Logger;
  readonly clock: Clock;
  /** Returns numbers from 0 up to but not including 1, for balancing. */
  readonly random: () => number;
  /** Peers whose forwarded fields are trusted, in addition to those of the configuration. */
  readonly trusted: AddressSet;
  /** Whether only such peers may send a field, by its lower-case name. */
  readonly isForwarded: (key: string) => boolean;
  /** The target of requests to upstreams; null: the client's target. */
  readonly target: ((exchange: Exchange) => string) | null;
  /** Whether a request may be sent twice; null: where its method is safe. */
  readonly mayRetry: ((exchange: Exchange) => Promise<boolean>) | null;
  readonly scheduler: Scheduler;
  /** Which requests may share a response; null if none may. */
  readonly sharing: RequestSharing | null;
  readonly bodyMemory: BodyMemory;
}

/** The result of one attempt: the routes that take over, or why it may have to be repeated. */
type Outcome =
  | { readonly kind: 'answered'; readonly interceptor: Handler | null }
  | { readonly kind: 'failed'; readonly failure: ForwardError; readonly consumed: boolean };

/** An attempt at one upstream. */
interface MadeAttempt {
  readonly exchange: Exchange;
  readonly next: Next;
  readonly share: ShareResponse | null;
  readonly choice: Choice;
  readonly upstream: Upstream;
  readonly body: LeasedBody | null;
  readonly response: UpstreamResponse;
  readonly visit: UpstreamVisit;
  /** The monotonic time at which it began. */
  readonly began: number;
}

const NONE_TRIED: ReadonlySet<Upstream> = new Set();

function endAttempt({ upstream, body }: Pick<MadeAttempt, 'upstream' | 'body'>): void {
  upstream.inFlight -= 1;
  body?.destroy();
}

/** Why a response that waits for routes is incomplete. While they run, it may have waited for too long. */
function incomplete(error: ForwardError | HttpError, { abandoned }: Exchange): HttpError {
  if (error instanceof HttpError) return error;
  const isStalled = error.code === 'upstream-aborted' && !abandoned;
  return isStalled ? new HttpError(502, error.message, { cause: error }) : toHttpError(error);
}

function itself(outcome: Outcome): Outcome {
  return outcome;
}
/** The outcome of nearly every attempt. */
const ANSWERED: Outcome = { kind: 'answered', interceptor: null };

/** The errors that are no failure of the upstream, with their messages. */
const NO_FAILURE: ReadonlyMap<string, string> = new Map([
  ['upstream-aborted', 'The client left'],
  ['upstream-busy', 'Too many requests wait for the upstream'],
  ['unsendable-request', 'The request cannot be forwarded'],
  // An upstream that is closing or overloaded reports that itself.
  ['upstream-refused', 'The upstream did not accept the request'],
]);

/** One `reverse_proxy` of one generation. The state of its upstreams outlives it. */
export class ReverseProxy {
  readonly #config: ReverseProxyConfig;
  readonly #clock: Clock;
  readonly #forwarder: Forwarder;
  readonly #rules: ResponseRules;
  readonly #balance: Balance;
  readonly #isAvailable: IsAvailable;
  readonly #isFailure: ReturnType<typeof failureByResponse>;
  readonly #members: Members;
  readonly #tunnels: Tunnels;
  readonly #sharing: RequestSharing | null;
  readonly #coalescer: RequestCoalescer<UpstreamAnswer>;
  readonly #mayRetry: ReverseProxyOptions['mayRetry'];
  readonly #space = new BufferSpace();
  readonly #responseBuffers: ResponseBuffers | null;
  #active = 0;
  #isClosed = false;

  /** @throws HubgateError `invalid-upstream`, `invalid-pattern`, `unreadable-trust-pool` */
  constructor(config: ReverseProxyConfig, options: ReverseProxyOptions) {
    const { clock } = options;
    this.#config = config;
    const limit = config.responseBuffers;
    this.#responseBuffers = limit === 0 ? null : { limit, space: this.#space };
    this.#clock = clock;
    const trustPool = readTrustPool(config.transport.tlsTrustPoolFiles);
    this.#tunnels = new Tunnels(clock, config);
    this.#sharing = options.sharing;
    this.#mayRetry = options.mayRetry;
    this.#coalescer = new RequestCoalescer({
      ...options,
      memory: options.bodyMemory,
      maxBody: MAX_SHARED_BYTES,
      maxWaitMs: MAX_SHARING_WAIT_MS,
    });
    const trusted = addressSet(config.trustedProxies);
    this.#forwarder = new Forwarder(config, {
      ...options,
      tunnels: this.#tunnels,
      trusted: (address) => trusted(address) || options.trusted(address),
      trustPool,
      isOnlyAsked: options.authorization !== null,
    });
    this.#rules = compileResponseRules(config, options);
    const checkKey = config.activeHealth === null ? null : activeCheckKey(config.activeHealth);
    this.#isAvailable = availability(config.passiveHealth, checkKey, clock);
    this.#isFailure = failureByResponse(config.passiveHealth);
    this.#members = new Members(config, options, trustPool, this.#isAvailable);
    const { policy } = config.loadBalancing;
    this.#balance = createBalance(policy, options.random, this.#members.order);
    this.#members.begin();
  }

  /**
   * Responds with the response of an upstream.
   *
   * @throws HttpError 502, 503, 504; 499 if the client left before the response began
   */
  readonly handle: Handler = (exchange, next) => {
    if (this.#rules.authorization === null) refuseUnforwardable(exchange);
    this.#forwarder.refuseReadBody(exchange);
    this.#active += 1;
    const ended = (error?: unknown): void => {
      this.#active -= 1;
      this.#releaseWhenIdle();
      // What the upstream did not take is read and dropped, so that the connection can go on; where
      // nobody has answered, the page of the error may want it. Routes that respond instead may still read it.
      const isUnwanted = exchange.begun || !exchange.isBodyWhole;
      if (exchange.hasBody && isUnwanted && !exchange.isBodyLent) exchange.body.resume();
      if (error !== undefined) throw error;
    };
    try {
      // An earlier response may close the connection (RFC 9112 §9.6). Then the client counts as gone, and nothing is sent.
      const turn = exchange.awaitTurn?.() ?? null;
      const responding =
        turn === null
          ? this.#respond(exchange, next)
          : turn.then(() => this.#respond(exchange, next));
      return responding.then(ended, ended);
    } catch (error) {
      return ended(error);
    }
  };

  #respond(exchange: Exchange, next: Next): Promise<void> {
    return this.#sharing === null
      ? this.#tryUpstreams(exchange, next, null)
      : this.#share(exchange, next, this.#sharing);
  }

  /** Stops the health checks, and releases the upstreams when the last exchange has ended. */
  close(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#tunnels.close();
    this.#members.close();
    this.#releaseWhenIdle();
  }

  #share(exchange: Exchange, next: Next, sharing: RequestSharing): Promise<void> {
    return shareForwarding(exchange, sharing, {
      coalescer: this.#coalescer,
      clock: this.#clock,
      questionOf: () => {
        const [upstream] = this.#members.order;
        return upstream === undefined
          ? null
          : this.#forwarder.questionOf(exchange, upstream.address);
      },
      ask: async (asking, share) => {
        // A shared request may outlast the one that caused it.
        this.#active += 1;
        try {
          await this.#tryUpstreams(asking, next, share);
        } finally {
          this.#active -= 1;
          this.#releaseWhenIdle();
        }
      },
      replay: (response, body, trailers) => this.#replay(exchange, next, response, body, trailers),
    });
  }

  /** Responds as if the upstream had responded to this very request. */
  async #replay(
    exchange: Exchange,
    next: Next,
    { status, headers, received, upstream, cookie }: SharedResponse,
    arriving: ArrivingBody,
    trailers: () => HeaderList | null,
  ): Promise<void> {
    exchange.upstream = upstream;
    const choice = cookie === undefined ? {} : { cookie };
    const response = new UpstreamResponse(exchange, choice, this.#rules, () => {}, next);
    const body = response.onHead(status, headers, received);
    const breakOff = (): void =>
      response.breakOff(new HttpError(502, 'the shared response is incomplete'));
    if (body !== null && (await arriving.sendTo(body, breakOff))) {
      response.onEnd(body, trailers()?.clone() ?? new HeaderList());
    }
    await response.interceptor?.(exchange, next);
  }

  /**
   * Nearly every request is answered by the first upstream that gets it, without an async function, which
   * would cost it a frame and a turn of the microtasks.
   */
  #tryUpstreams(exchange: Exchange, next: Next, share: ShareResponse | null): Promise<void> {
    const choice =
      this.#config.requestBuffers > 0 || exchange.abandoned
        ? undefined
        : this.#choose(exchange, NONE_TRIED);
    if (choice === undefined) {
      return this.#tryInTurn(exchange, next, share, this.#clock.monotonic(), null);
    }
    return this.#attempt(exchange, next, choice, null, share, false, this.#afterFirst);
  }

  readonly #afterFirst = (
    outcome: Outcome,
    { exchange, next, share, choice, began }: MadeAttempt,
  ): Promise<void> | undefined =>
    outcome === ANSWERED
      ? undefined
      : this.#tryInTurn(exchange, next, share, began, { choice, outcome });

  /** @param first the attempt that has been made already */
  async #tryInTurn(
    exchange: Exchange,
    next: Next,
    share: ShareResponse | null,
    began: number,
    first: { readonly choice: Choice; readonly outcome: Outcome } | null,
  ): Promise<void> {
    const { tryDurationMs, tryIntervalMs, retries } = this.#config.loadBalancing;
    const isCounted = retries !== null && retries > 0 && tryDurationMs === 0;
    const deadline = isCounted ? Infinity : began + tryDurationMs;
    let left = retries ?? Infinity;
    const { requestBuffers } = this.#config;
    const buffered =
      requestBuffers === 0 || exchange.upgrade !== null
        ? null
        : await this.#space.buffer(() => this.#forwarder.bodyOf(exchange), requestBuffers);
    try {
      let made = first;
      let tried: ReadonlySet<Upstream> = NONE_TRIED;
      let failure: ForwardError | null = null;
      let failed = '';
      let repeated = false;
      if (made === null && this.#members.order.length === 0) await this.#members.ready;
      for (;;) {
        if (made === null && exchange.abandoned) throw new HttpError(499, 'the client left');
        const choice = made?.choice ?? this.#choose(exchange, tried);
        if (choice === undefined) {
          const isOver = this.#clock.monotonic() + tryIntervalMs >= deadline;
          // After a failure, the next attempt has been counted already.
          const isNoneAvailable = tried.size === 0;
          if (isOver || (isNoneAvailable && left === 0)) throw noneLeft(failure);
          if (isNoneAvailable) left -= 1;
          await pause(this.#clock, tryIntervalMs, exchange);
          tried = NONE_TRIED;
          continue;
        }
        if (failure !== null) choice.upstream.measures.retries += 1;
        const outcome: Outcome =
          made?.outcome ??
          (await this.#attempt(exchange, next, choice, buffered, share, failure !== null, itself));
        made = null;
        if (outcome.kind === 'answered') {
          // If no upstream responds in the end, that is reported instead.
          if (failure !== null) {
            const answering = choice.upstream.address.hostport;
            const fields = { upstream: failed, answeredBy: answering, error: failure.message };
            const message = 'An upstream failed, and another attempt succeeded';
            exchange.log.warn(message, about(exchange, fields));
          }
          await outcome.interceptor?.(exchange, next);
          return;
        }
        failure = outcome.failure;
        failed = choice.upstream.address.hostport;
        const isSafeTwice =
          (await this.#mayRetry?.(exchange)) ?? isSafe(this.#forwarder.methodOf(exchange));
        if (left === 0 || !mayRepeat(isSafeTwice, outcome)) throw toHttpError(failure);
        left -= 1;
        const before = tried;
        tried = new Set(before).add(choice.upstream);
        // The upstream may have closed a kept connection at that very moment, so a new one is worth an attempt.
        const isStale = failure.phase === 'sent' || failure.code === 'upstream-refused';
        if (isStale && !repeated && this.#choose(exchange, tried) === undefined) {
          repeated = true;
          tried = before;
        }
      }
    } finally {
      buffered?.release();
    }
  }

  #choose(exchange: Exchange, tried: ReadonlySet<Upstream>): Choice | undefined {
    const { order } = this.#members;
    let available = 0;
    for (const upstream of order) if (this.#mayTry(upstream, tried)) available += 1;
    if (available === 0) return undefined;
    const isEveryone = available === order.length;
    const candidates = isEveryone ? order : order.filter((one) => this.#mayTry(one, tried));
    return this.#balance(exchange, candidates);
  }

  #mayTry(upstream: Upstream, tried: ReadonlySet<Upstream>): boolean {
    return !tried.has(upstream) && this.#isAvailable(upstream);
  }

  /** @param done called with the outcome; what it returns is the result */
  #attempt<T>(
    exchange: Exchange,
    next: Next,
    choice: Choice,
    buffered: BufferedBody | null,
    share: ShareResponse | null,
    isRepeated: boolean,
    done: (outcome: Outcome, attempt: MadeAttempt) => T | Promise<T>,
  ): Promise<T> {
    const { upstream } = choice;
    const connections = this.#members.connections.get(upstream);
    if (connections === undefined)
      throw new TypeError('the chosen upstream belongs to another proxy');
    const began = this.#clock.monotonic();
    const visit = { hostport: upstream.address.hostport, latencyMs: 0 };
    exchange.upstream = visit;
    const onStatus = (status: number): void => {
      const latencyMs = this.#clock.monotonic() - began;
      upstream.measures.answered(status, latencyMs);
      visit.latencyMs = latencyMs;
      if (this.#isFailure(status, latencyMs)) this.#count(upstream, began);
    };
    const response = new UpstreamResponse(
      exchange,
      choice,
      this.#rules,
      onStatus,
      next,
      share,
      this.#responseBuffers,
    );
    const body = buffered?.next() ?? this.#forwarder.bodyOf(exchange);
    upstream.inFlight += 1;
    const { address } = upstream;
    const bodyLength = buffered?.length ?? null;
    const attempt = {
      exchange,
      next,
      share,
      choice,
      upstream,
      address,
      connections,
      body,
      bodyLength,
      isRepeated,
      response,
      visit,
      began,
    };
    let forwarding: Promise<void>;
    try {
      forwarding = this.#forwarder.forward(attempt, response);
    } catch (error) {
      forwarding = Promise.reject(error);
    }
    return forwarding.then(
      () => {
        endAttempt(attempt);
        const { interceptor } = attempt.response;
        return done(interceptor === null ? ANSWERED : { kind: 'answered', interceptor }, attempt);
      },
      (error: unknown) => {
        let outcome: Outcome;
        try {
          outcome = this.#failed(error, attempt);
        } finally {
          endAttempt(attempt);
        }
        return done(outcome, attempt);
      },
    );
  }

  /** @throws HttpError if routes have begun to respond instead, and any error that is not the upstream's */
  #failed(
    error: unknown,
    { exchange, upstream, body, response, visit, began }: MadeAttempt,
  ): Outcome {
    response.fail();
    if (response.isDropped) return { kind: 'answered', interceptor: response.interceptor };
    if (!exchange.begun) visit.latencyMs = this.#clock.monotonic() - began;
    if (error instanceof ForwardError) this.#note(upstream, exchange, error);
    else if (!(error instanceof HttpError && response.isForRoutes)) throw error;
    const shown = incomplete(error, exchange);
    if (response.isForRoutes) {
      response.breakOff(shown);
      return { kind: 'answered', interceptor: response.interceptor };
    }
    if (!(error instanceof ForwardError) || response.isHeldOutside) throw shown;
    if (exchange.begun) {
      response.breakOff(shown);
      return ANSWERED;
    }
    if (response.isHeld) throw shown;
    return { kind: 'failed', failure: error, consumed: body?.consumed ?? false };
  }

  /** Other proxies with this upstream see the failure, so it counts only where failures are configured. */
  #count(upstream: Upstream, atMs: number): void {
    if (this.#config.passiveHealth.failDurationMs > 0) upstream.recordFailure(atMs);
  }

  #note(upstream: Upstream, exchange: Exchange, error: ForwardError): void {
    const fields = { upstream: upstream.address.hostport, error: error.message };
    const harmless = NO_FAILURE.get(error.code);
    if (harmless === undefined) {
      upstream.measures.failures += 1;
      this.#count(upstream, this.#clock.monotonic());
    }
    // Before a response has begun, the handler that responds to the error logs it.
    if (harmless !== undefined || !exchange.begun) {
      exchange.log.debug(harmless ?? 'The upstream failed', fields);
    } else exchange.log.warn('The upstream did not complete its response', about(exchange, fields));
  }

  #releaseWhenIdle(): void {
    if (!this.#isClosed || this.#active > 0) return;
    this.#members.release();
  }
}
