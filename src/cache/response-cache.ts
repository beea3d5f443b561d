import type { BodyMemory } from '../coalescing/arriving-body.ts';
import { type Flight, type Outcome, RequestCoalescer } from '../coalescing/request-coalescer.ts';
import { HttpError } from '../http/errors.ts';
import type { Exchange, Expand, Handler, Next } from '../http/exchange.ts';
import type { HeaderList } from '../http/header-list.ts';
import type { Clock } from '../kernel/clock.ts';
import type { Scheduler } from '../kernel/scheduler.ts';
import { type ShareableResponse, StorageDecision } from './storage-decision.ts';
import { type CacheLookup, cacheLookup, shortened, variantKey, changedNames } from './cache-key.ts';
import { addCacheStatus, withoutConditions, sendArriving, sendStored } from './send-response.ts';
import type { FreshnessRules } from '../http/cache-control.ts';
import type { CacheContext } from './response-caches.ts';
import {
  type ResponseStore,
  hasValidator,
  helpsAfterError,
  isForRequest,
  reuseOf,
  type StoredResponse,
} from './response-store.ts';
import { dropFieldsForCaches, isOfKnownClient } from './storage-policy.ts';

/** How long a request waits for the response to another one, in milliseconds. */
const MAX_WAIT_MS = 30_000;
/** How long a revalidation for which no client waits may take, in milliseconds. */
const MAX_REVALIDATION_MS = 60_000;
/** How long it is remembered that the responses for a key are not shared, in milliseconds. */
const UNSHARED_MS = 10_000;

interface CacheSettings extends FreshnessRules {
  /** Bytes. */
  readonly maxBody: number;
  /** Texts with placeholders. */
  readonly varyOn: readonly string[];
}

export interface ResponseCacheOptions extends Omit<CacheContext, 'openStore' | 'isHubRequest'> {
  readonly settings: CacheSettings;
  readonly store: ResponseStore;
  readonly memory: BodyMemory;
  readonly scheduler: Scheduler;
  readonly clock: Clock;
  readonly expand: Expand;
  /** Writes the outcome to the access log of the request. */
  readonly note: (exchange: Exchange, outcome: CacheOutcome) => void;
}

/** How a request was answered. */
export type CacheOutcome = 'hit' | 'stale' | 'miss' | 'revalidated' | 'collapsed' | 'bypass';

/** A request that a cache answers. */
interface Request {
  readonly exchange: Exchange;
  readonly next: Next;
  readonly key: string;
  /** Requests of one group are for the same resource, as far as this is known before they are answered. */
  readonly group: string;
  /** The stored response that matches, but is not fresh. */
  readonly stored: StoredResponse | null;
  /** Why the app is asked, as in `Cache-Status` (RFC 9211 §2.2). */
  readonly why: string;
}

/** A shared cache (RFC 9111) in front of later handlers. */
export class ResponseCache {
  readonly #options: ResponseCacheOptions;
  readonly #storageDecision: StorageDecision;
  readonly #coalescer: RequestCoalescer<ShareableResponse>;

  constructor(options: ResponseCacheOptions) {
    this.#options = options;
    const { settings, store } = options;
    const { maxBody } = settings;
    this.#coalescer = new RequestCoalescer({ ...options, maxBody, maxWaitMs: MAX_WAIT_MS });
    this.#storageDecision = new StorageDecision({
      ...options,
      ...settings,
      refused: ({ exchange, key, renewing }, status) => {
        this.#coalescer.markUnshared(this.#groupOf(exchange, key), UNSHARED_MS);
        // A newer response that is not stored means that the older one is no longer current. This does not
        // apply to a newer response for a known client.
        const isCurrent = renewing === null || status >= 500 || isOfKnownClient(exchange.headers);
        if (!isCurrent) store.remove(renewing);
      },
    });
  }

  readonly handle: Handler = (exchange, next) => {
    const { method, upgrade } = exchange;
    if (upgrade !== null) return next();
    if (method !== 'GET' && method !== 'HEAD') return this.#pass(exchange, next, 'fwd=method');
    const { settings, expand, caches } = this.#options;
    const varyOn = settings.varyOn.map((text) => expand(text, exchange));
    const lookup = cacheLookup(exchange, varyOn);
    if ('bypass' in lookup) {
      return this.#pass(exchange, next, `fwd=bypass; detail=${lookup.bypass}`);
    }
    // If there is nothing to share, the app is asked at once, because it knows the current state.
    const behind = this.#hasSomething(exchange, lookup.key) ? caches.caughtUp() : null;
    if (behind === null) return this.#answer(exchange, next, lookup);
    return behind.then(
      () => this.#answer(exchange, next, lookup),
      // It is unknown what has been published, so the app must answer.
      () => this.#pass(exchange, next, 'fwd=bypass; detail=log'),
    );
  };

  /** Passes the request to the app. What it changes is dropped (RFC 9111 §4.4). */
  #pass(exchange: Exchange, next: Next, status: string): void | Promise<void> {
    const { store, changed, note } = this.#options;
    store.counts.bypassed += 1;
    note(exchange, 'bypass');
    exchange.onHead((head) => {
      if (head.status < 200) return undefined;
      const names = changedNames(exchange, head);
      dropFieldsForCaches(head.headers);
      addCacheStatus(head.headers, status);
      return names.length > 0 ? changed(names) : undefined;
    });
    return next();
  }

  #answer(
    exchange: Exchange,
    next: Next,
    { key, onlyIfCached }: CacheLookup,
  ): void | Promise<void> {
    const { store, clock } = this.#options;
    const { method, headers } = exchange;
    const found = store.find(key, headers);
    const isUsable = found !== null && found !== 'no-variant' && isForRequest(found, headers);
    const stored = isUsable ? found : null;
    const why = found === null ? 'uri-miss' : stored === null ? 'vary-miss' : 'stale';
    const reuse = stored === null ? null : reuseOf(stored, clock);
    if (stored !== null && reuse === 'fresh') {
      store.counts.hits += 1;
      return this.#sendStored(exchange, stored, 'hit', 'hit');
    }
    const group = this.#groupOf(exchange, key);
    const request: Request = { exchange, next, key, group, stored, why };
    if (stored !== null && reuse === 'while-revalidating' && method === 'GET') {
      store.counts.stale += 1;
      this.#revalidate(request, stored);
      return this.#sendStored(exchange, stored, 'stale', 'hit');
    }
    // RFC 9111 §5.2.1.7.
    if (onlyIfCached) {
      addStatusLater(exchange, 'detail=only-if-cached');
      throw new HttpError(504, 'nothing is stored that would answer');
    }
    if (method === 'HEAD') return this.#pass(exchange, next, `fwd=${why}; detail=head`);
    if (stored === null && headers.has('range')) {
      return this.#pass(exchange, next, `fwd=${why}; detail=range`);
    }
    return stored === null ? this.#fetch(request) : store.whileRead(stored, this.#fetch(request));
  }

  /** Joins a request to the app that is in progress, or sends one. */
  async #fetch(request: Request): Promise<void> {
    const { caches } = this.#options;
    const { exchange, group } = request;
    const coalescer = this.#coalescer;
    if (coalescer.isUnshared(group)) return this.#lead(request, false);
    const flight = coalescer.find(group);
    if (flight === undefined || this.#isOutdated(flight, exchange)) {
      return this.#lead(request, flight !== undefined || !coalescer.isFull);
    }
    // It counts as a request of its own, so that no purge is forgotten before it is answered.
    const moment = caches.began();
    const isAnswered = await coalescer
      .join(flight, exchange)
      .then((outcome) => this.#follow(request, flight, outcome, moment))
      .finally(() => caches.ended());
    if (!isAnswered) await this.#lead(request, false);
  }

  /** Answers with the response to another request. Returns false if it is not for this one. */
  async #follow(
    { exchange, stored, why }: Request,
    flight: Flight<ShareableResponse>,
    outcome: Outcome<ShareableResponse>,
    moment: number,
  ): Promise<boolean> {
    const { store, caches } = this.#options;
    const isFor = (response: StoredResponse): boolean =>
      response.variant === variantKey(response.vary, exchange.headers) &&
      isForRequest(response, exchange.headers) &&
      // This request may have arrived after a purge that the app did not know about yet.
      (moment === flight.moment || !caches.wasPurgedSince(flight.moment, response.names));
    switch (outcome.kind) {
      case 'left':
        return true;
      case 'answer': {
        const { answer, body } = outcome;
        if (body?.isWhole === false || !answer.isShared || !isFor(answer.stored)) return false;
        store.counts.collapsed += 1;
        const status = answer.isRenewed
          ? 'fwd=stale; fwd-status=304; collapsed'
          : `fwd=${why}; fwd-status=${answer.stored.status}; collapsed`;
        await this.#sendArriving(exchange, outcome, 'collapsed', status, false);
        return true;
      }
      case 'failed':
        if (await this.#sendStaleAfterError(exchange, stored)) return true;
        if (flight.failsFor(exchange, outcome.error)) {
          flight.handOn(exchange);
          addStatusLater(exchange, `fwd=${why}; collapsed`);
          throw outcome.error;
        }
        return false;
      case 'passed':
      case 'unanswered':
      case 'aborted':
        return false;
    }
  }

  /** Asks the app, and answers with its response. */
  async #lead(request: Request, isJoinable: boolean): Promise<void> {
    const { exchange, next, stored, why } = request;
    const { store, caches, note } = this.#options;
    // A response that is known to be for one client is requested with the conditions of that client.
    const headers =
      stored === null && !isJoinable
        ? exchange.headers.clone()
        : withoutConditions(exchange.headers, validated(stored));
    const flight = this.#flightOf(request, headers, stored, isJoinable);
    const { outcome, finished, over } = flight.fetch(exchange, next);
    void over.then(() => caches.ended());
    const result = await outcome;
    if (result.kind !== 'failed' && result.kind !== 'left') store.counts.misses += 1;
    switch (result.kind) {
      case 'answer': {
        const { isRenewed, isShared, stored: response } = result.answer;
        const forwarded = isRenewed
          ? 'fwd=stale; fwd-status=304'
          : `fwd=${why}; fwd-status=${response.status}`;
        const status = isShared ? `${forwarded}; stored` : forwarded;
        await this.#sendArriving(
          exchange,
          result,
          isRenewed ? 'revalidated' : 'miss',
          status,
          true,
        );
        return;
      }
      case 'failed':
        if (await this.#sendStaleAfterError(exchange, stored)) return;
        flight.handOn(exchange);
        addStatusLater(exchange, `fwd=${why}`);
        await finished;
        throw result.error;
      case 'unanswered':
        flight.handOn(exchange);
        addStatusLater(exchange, `fwd=${why}`);
        note(exchange, 'miss');
        await finished;
        return;
      case 'passed':
        note(exchange, 'miss');
        await finished;
        return;
      case 'aborted':
        exchange.abort();
        await finished;
        return;
      case 'left':
        return;
    }
  }

  /** Revalidates a stale response while it is being used. */
  #revalidate(request: Request, stored: StoredResponse): void {
    const { exchange, next, group } = request;
    const { caches, store, clock } = this.#options;
    const known = this.#coalescer.find(group);
    if (known !== undefined && !this.#isOutdated(known, exchange)) return;
    if (this.#coalescer.isFull) return;
    const headers = withoutConditions(exchange.headers, validated(stored));
    const flight = this.#flightOf({ ...request, stored: null }, headers, stored, true, true);
    const { over } = flight.fetch(exchange, next);
    const stop = clock.after(MAX_REVALIDATION_MS, () => flight.giveUp());
    void store.whileRead(stored, over).then(() => {
      stop();
      caches.ended();
    });
  }

  #flightOf(
    { exchange, key, group, stored, why }: Request,
    headers: HeaderList,
    renewing: StoredResponse | null,
    isJoinable: boolean,
    isBackground = false,
  ): Flight<ShareableResponse> {
    const { store, caches, clock, personalFields } = this.#options;
    const about = { exchange, key, why, renewing, fallback: stored, askedMs: clock.monotonic() };
    const keep = (answer: StoredResponse): void => {
      if (flight.isGivenUp || caches.wasPurgedSince(flight.moment, answer.names)) return;
      store.put(answer);
      this.#coalescer.markShared(group);
    };
    const flight = this.#coalescer.start(isJoinable ? group : null, {
      moment: caches.began(),
      headers,
      isBackground,
      decide: (head, fetch) => {
        const decided = this.#storageDecision.decide(head, fetch, about);
        if (decided.kind !== 'shared') return decided;
        const { answer } = decided;
        if (answer.isRenewed) {
          if (answer.isShared) keep(answer.stored);
          return { kind: 'settle', answer };
        }
        return {
          kind: 'share',
          answer,
          complete: (body) => {
            const { trailers } = body;
            const isPersonal = personalFields.some((name) => trailers.has(name));
            if (!isPersonal) keep({ ...answer.stored, body: body.toBuffer() });
            flight.close();
          },
        };
      },
    });
    return flight;
  }

  /** Whether the response to a request in progress will be older than what this client may know. */
  #isOutdated({ moment, outcome }: Flight<ShareableResponse>, exchange: Exchange): boolean {
    const { caches, namesOf } = this.#options;
    if (caches.moment === moment) return false;
    if (outcome?.kind === 'answer') {
      return caches.wasPurgedSince(moment, outcome.answer.stored.names);
    }
    return caches.wasPurgedSince(moment, namesOf(exchange, exchange.headers));
  }

  #hasSomething(exchange: Exchange, key: string): boolean {
    return (
      this.#options.store.has(key) ||
      this.#coalescer.find(this.#groupOf(exchange, key)) !== undefined
    );
  }

  #groupOf(exchange: Exchange, key: string): string {
    const variant = variantKey(this.#options.store.knownVary(key), exchange.headers);
    const known = isOfKnownClient(exchange.headers) ? 'known' : '';
    return shortened(`${key}\n${known}\n${variant}`);
  }

  /** @param selected the stored response with the fields for this client */
  #sendStored(
    exchange: Exchange,
    stored: StoredResponse,
    outcome: CacheOutcome,
    status: string,
    selected = stored,
  ): void | Promise<void> {
    const { note, clock, store } = this.#options;
    note(exchange, outcome);
    const sending = sendStored(exchange, selected, status, clock);
    return sending === undefined ? undefined : store.whileRead(stored, sending);
  }

  /** Sends a response that the app has just sent or confirmed. */
  async #sendArriving(
    exchange: Exchange,
    { answer, body }: Extract<Outcome<ShareableResponse>, { kind: 'answer' }>,
    outcome: CacheOutcome,
    status: string,
    isFirst: boolean,
  ): Promise<void> {
    const { stored, ownHeaders } = answer;
    const selected = isFirst ? { ...stored, headers: ownHeaders } : stored;
    if (body === null) return this.#sendStored(exchange, stored, outcome, status, selected);
    this.#options.note(exchange, outcome);
    return sendArriving(exchange, selected, body, status, isFirst);
  }

  /** RFC 5861 §4: uses a stale response in place of an app that fails. Returns whether there was one. */
  async #sendStaleAfterError(exchange: Exchange, stored: StoredResponse | null): Promise<boolean> {
    const { store, clock } = this.#options;
    if (stored === null || exchange.begun || !helpsAfterError(stored, clock)) return false;
    store.counts.stale += 1;
    await this.#sendStored(exchange, stored, 'stale', 'hit; fwd=stale');
    return true;
  }
}

/** The validators of a stored response with which the app can be asked. */
function validated(stored: StoredResponse | null): HeaderList | null {
  return stored !== null && hasValidator(stored) ? stored.headers : null;
}

/** Adds the status to a response that another handler sends: an error, or what follows where nobody has answered. */
function addStatusLater(exchange: Exchange, status: string): void {
  exchange.onHead(({ headers }) => {
    addCacheStatus(headers, status);
  });
}
