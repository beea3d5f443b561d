import type { FetchExchange } from '../coalescing/fetch-exchange.ts';
import type { Exchange, ResponseHead } from '../http/exchange.ts';
import { HeaderList } from '../http/header-list.ts';
import { type Clock, type Moment, momentOf } from '../kernel/clock.ts';
import { variantKey } from './cache-key.ts';
import type { CacheContext } from './response-caches.ts';
import { addCacheStatus, isUnchanged, renewedFields } from './send-response.ts';
import { initialAge, splitList } from '../http/cache-control.ts';
import {
  dropFieldsForCaches,
  FIELDS_FOR_CACHES,
  mayStore,
  type StoringRules,
  type StoringVerdict,
} from './storage-policy.ts';
import { hasValidator, helpsAfterError, type StoredResponse } from './response-store.ts';

/** A request to the app, and what is already stored for it. */
export interface OriginRequest {
  readonly exchange: Exchange;
  readonly key: string;
  /** When it was sent, by the clock that is never set, in milliseconds. */
  readonly askedMs: number;
  /** The reason for the request, as in `Cache-Status`. */
  readonly why: string;
  /** Sent instead if the app fails. */
  readonly fallback: StoredResponse | null;
  /** The stored response that the request revalidates. */
  readonly renewing: StoredResponse | null;
}

/** A response that others may have. */
export interface ShareableResponse {
  /** As it is stored; without a body that is still arriving. */
  readonly stored: StoredResponse;
  /** Its fields for the client whose request the app has answered. */
  readonly ownHeaders: HeaderList;
  /** Whether it is a stored response that the app has confirmed. */
  readonly isRenewed: boolean;
  /** Whether it can be stored, and sent to others. */
  readonly isShared: boolean;
}

/** The decision about a response of the app. */
export type Decision =
  | { readonly kind: 'shared'; readonly answer: ShareableResponse }
  | { readonly kind: 'pass'; readonly head: ResponseHead }
  /** The stored response is used instead. */
  | { readonly kind: 'discard' };

export interface StorageDecisionOptions
  extends StoringRules,
    Pick<CacheContext, 'namesOf' | 'namesOfTags'> {
  readonly clock: Clock;
  /** Bytes. */
  readonly maxBody: number;
  /**
   * Called when a response is for one client only. The response that it revalidated is then no longer
   * current.
   */
  readonly refused: (originRequest: OriginRequest, status: number) => void;
}

/** Decides which responses of the app are stored, and how each one is delivered. */
export class StorageDecision {
  readonly #options: StorageDecisionOptions;

  constructor(options: StorageDecisionOptions) {
    this.#options = options;
  }

  decide(head: ResponseHead, fetch: FetchExchange, originRequest: OriginRequest): Decision {
    const received = momentOf(this.#options.clock);
    const { fallback, renewing, exchange, why } = originRequest;
    const { status } = head;
    if (status >= 500 && fallback !== null && helpsAfterError(fallback, this.#options.clock)) {
      return { kind: 'discard' };
    }
    if (status === 304 && renewing !== null && hasValidator(renewing)) {
      return this.#renew(head, fetch, originRequest, renewing, received);
    }
    const verdict = this.#verdict(head, fetch, received.nowMs);
    if (verdict.kind === 'stored') {
      const { ownHeaders } = verdict;
      const stored = this.#stored(head, fetch, originRequest, verdict, received);
      return { kind: 'shared', answer: { stored, ownHeaders, isRenewed: false, isShared: true } };
    }
    this.#options.refused(originRequest, status);
    const cacheStatus = `fwd=${why}; fwd-status=${status}; detail=${verdict.detail}`;
    return { kind: 'pass', head: passedHead(exchange, head, cacheStatus) };
  }

  #verdict(head: ResponseHead, fetch: FetchExchange, nowMs: number): StoringVerdict {
    fetch.noteVary(splitList(head.headers.combined('vary')?.toLowerCase() ?? ''));
    if (fetch.unsharedBy !== null) return { kind: 'refused', detail: fetch.unsharedBy };
    const length = Number(head.headers.get('content-length') ?? 0);
    if (length > this.#options.maxBody) return { kind: 'refused', detail: 'too-large' };
    return mayStore(fetch, head, this.#options, nowMs);
  }

  /** RFC 9111 §4.3.4. */
  #renew(
    head: ResponseHead,
    fetch: FetchExchange,
    originRequest: OriginRequest,
    renewing: StoredResponse,
    received: Moment,
  ): Decision {
    const before = renewing.hidden.clone();
    for (const [name, value] of renewing.headers) before.append(name, value);
    const headers = renewedFields(before, head.headers);
    const { status, source } = renewing;
    const renewed = { status, headers, source };
    const decided = this.#verdict(renewed, fetch, received.nowMs);
    // What decided about the stored response decides about it further, although a 304 does not show by what.
    const verdict =
      decided.kind === 'stored'
        ? { ...decided, vary: [...decided.vary, ...renewing.vary] }
        : decided;
    if (verdict.kind === 'stored') {
      const aged = { ...head, headers: agedAs(headers, head.headers) };
      const made = this.#stored(
        { ...renewed, headers: aged.headers },
        fetch,
        originRequest,
        verdict,
        received,
      );
      const { ownHeaders } = verdict;
      // A handler that waits for another status than 304 has changed them in the first response.
      const replacedPreset = [...new Set([...made.replacedPreset, ...renewing.replacedPreset])];
      const stored = { ...made, replacedPreset, body: renewing.body };
      return { kind: 'shared', answer: { stored, ownHeaders, isRenewed: true, isShared: true } };
    }
    this.#options.refused(originRequest, 304);
    dropFieldsForCaches(headers);
    const stored = { ...renewing, headers };
    const answer = { stored, ownHeaders: headers, isRenewed: true, isShared: false };
    return { kind: 'shared', answer };
  }

  #stored(
    head: ResponseHead,
    fetch: FetchExchange,
    { exchange, key, askedMs }: OriginRequest,
    verdict: Extract<StoringVerdict, { kind: 'stored' }>,
    received: Moment,
  ): StoredResponse {
    const { status, source } = head;
    const { headers, ownHeaders, freshness, revalidatesAlways, isForEveryone, tags } = verdict;
    const implied = impliedVary(head.headers);
    const vary = [...new Set([...verdict.vary, ...implied, ...fetch.decidingFields])].sort();
    // RFC 9110 §6.6.1: without this date, each delivery would get a date of its own.
    for (const fields of [headers, ownHeaders]) {
      if (!fields.has('date')) fields.set('Date', new Date(received.nowMs).toUTCString());
    }
    const names = new Set([
      ...this.#options.namesOf(exchange, headers),
      ...this.#options.namesOfTags(exchange, tags),
    ]);
    return {
      key,
      vary,
      variant: variantKey(vary, exchange.headers),
      replacedPreset: [...fetch.replacedPreset],
      status,
      headers,
      hidden: hiddenFields(head.headers),
      source,
      body: EMPTY_BODY,
      names: [...names],
      freshness,
      revalidatesAlways,
      isForEveryone,
      received,
      initialAgeMs: initialAge(head.headers, received.nowMs, received.monotonicMs - askedMs),
    };
  }
}

/** Request fields on which a response obviously depends, although its `Vary` may not name them. */
function impliedVary(headers: HeaderList): readonly string[] {
  const allowed = headers.get('access-control-allow-origin');
  return [
    ...(headers.has('content-encoding') ? ['accept-encoding'] : []),
    ...(allowed === undefined || allowed === '*' ? [] : ['origin']),
  ];
}

const EMPTY_BODY = Buffer.alloc(0);

/** With the age of the 304, not that of the response that it renews. */
function agedAs(headers: HeaderList, renewal: HeaderList): HeaderList {
  const age = renewal.get('age');
  if (age === undefined) headers.delete('age');
  if (!renewal.has('date')) headers.delete('date');
  return headers;
}

function hiddenFields(headers: HeaderList): HeaderList {
  const hidden = new HeaderList();
  for (const name of FIELDS_FOR_CACHES) {
    for (const value of headers.getAll(name)) hidden.append(name, value);
  }
  return hidden;
}

/**
 * The head of a response for one client. The conditions of that client may not have reached the app, so they
 * are evaluated here.
 */
function passedHead(exchange: Exchange, head: ResponseHead, status: string): ResponseHead {
  dropFieldsForCaches(head.headers);
  addCacheStatus(head.headers, status);
  if (head.status !== 200 || !isUnchanged(exchange, head.headers)) return head;
  return { ...head, status: 304, isUnchanged: true };
}
