import type { Exchange, ResponseHead } from '../http/exchange.ts';
import { HeaderList } from '../http/header-list.ts';
import { addCacheStatus, isUnchanged, renewedFields } from './answering.ts';
import type { FetchExchange } from './fetch-exchange.ts';
import type { Decision } from './flight.ts';
import { initialAge } from './freshness.ts';
import { hasValidator, helpsAfterError, type StoredResponse } from './stored-response.ts';
import {
  dropFieldsForCaches,
  FIELDS_FOR_CACHES,
  mayStore,
  type StoringRules,
  type StoringVerdict,
} from './storing.ts';
import { variantKey } from './variant.ts';

/** What the app was asked for, and what is there already. */
export interface Asked {
  readonly exchange: Exchange;
  readonly key: string;
  /** In milliseconds. */
  readonly requestMs: number;
  /** Why it was asked, as `Cache-Status` says it. */
  readonly why: string;
  /** Given instead, where the app fails. */
  readonly fallback: StoredResponse | null;
  /** What the app was asked about, if it is still the same. */
  readonly renewing: StoredResponse | null;
}

export interface AdmissionOptions extends StoringRules {
  /** Bytes. */
  readonly maxBody: number;
  readonly namesOf: (exchange: Exchange, headers: HeaderList) => readonly string[];
  readonly namesOfTags: (exchange: Exchange, tags: readonly string[]) => readonly string[];
  /** An answer is for one client alone; what it was asked about is not current any more. */
  readonly refused: (asked: Asked, status: number) => void;
}

/** Decides about the answers of the app: which are kept, and how they go on. */
export class Admission {
  readonly #options: AdmissionOptions;

  constructor(options: AdmissionOptions) {
    this.#options = options;
  }

  decide(head: ResponseHead, fetch: FetchExchange, asked: Asked, nowMs: number): Decision {
    const { fallback, renewing, exchange, why } = asked;
    const { status } = head;
    if (status >= 500 && fallback !== null && helpsAfterError(fallback, nowMs)) {
      return { kind: 'discard' };
    }
    if (status === 304 && renewing !== null && hasValidator(renewing)) {
      return this.#renew(head, fetch, asked, renewing, nowMs);
    }
    const verdict = this.#verdict(head, fetch, nowMs);
    if (verdict.kind === 'stored') {
      return { kind: 'share', stored: this.#stored(head, fetch, asked, verdict, nowMs) };
    }
    this.#options.refused(asked, status);
    const told = `fwd=${why}; fwd-status=${status}; detail=${verdict.detail}`;
    return { kind: 'pass', head: passedHead(exchange, head, told) };
  }

  #verdict(head: ResponseHead, fetch: FetchExchange, nowMs: number): StoringVerdict {
    if (fetch.unsharedBy !== null) return { kind: 'refused', detail: fetch.unsharedBy };
    const length = Number(head.headers.get('content-length') ?? 0);
    if (length > this.#options.maxBody) return { kind: 'refused', detail: 'too-large' };
    return mayStore(fetch, head, this.#options, nowMs);
  }

  /** RFC 9111 §4.3.4. */
  #renew(
    head: ResponseHead,
    fetch: FetchExchange,
    asked: Asked,
    renewing: StoredResponse,
    nowMs: number,
  ): Decision {
    const before = renewing.hidden.clone();
    for (const [name, value] of renewing.headers) before.append(name, value);
    const headers = renewedFields(before, head.headers);
    const { status, source } = renewing;
    const renewed = { status, headers, source };
    const verdict = this.#verdict(renewed, fetch, nowMs);
    if (verdict.kind === 'stored') {
      const aged = { ...head, headers: agedAs(headers, head.headers) };
      const made = this.#stored(
        { ...renewed, headers: aged.headers },
        fetch,
        asked,
        verdict,
        nowMs,
      );
      return { kind: 'renew', stored: { ...made, body: renewing.body }, isShared: true };
    }
    this.#options.refused(asked, 304);
    dropFieldsForCaches(headers);
    return { kind: 'renew', stored: { ...renewing, headers }, isShared: false };
  }

  #stored(
    head: ResponseHead,
    fetch: FetchExchange,
    { exchange, key, requestMs }: Asked,
    verdict: Extract<StoringVerdict, { kind: 'stored' }>,
    nowMs: number,
  ): StoredResponse {
    const { status, source } = head;
    const { headers, freshness, revalidatesAlways, isForEveryone, tags } = verdict;
    const implied = impliedVary(head.headers);
    const vary = [...new Set([...verdict.vary, ...implied, ...fetch.decidingFields])].sort();
    // RFC 9110 §6.6.1: without it, each answer from here would get a date of its own.
    if (!headers.has('date')) headers.set('Date', new Date(nowMs).toUTCString());
    const names = new Set([
      ...this.#options.namesOf(exchange, headers),
      ...this.#options.namesOfTags(exchange, tags),
    ]);
    return {
      key,
      vary,
      variant: variantKey(vary, exchange.headers),
      status,
      headers,
      hidden: hiddenFields(head.headers),
      source,
      body: NOTHING,
      names: [...names],
      freshness,
      revalidatesAlways,
      isForEveryone,
      responseMs: nowMs,
      initialAgeMs: initialAge(head.headers, requestMs, nowMs),
    };
  }
}

/** The request fields that an answer has plainly been made by, though its `Vary` may not name them. */
function impliedVary(headers: HeaderList): readonly string[] {
  const allowed = headers.get('access-control-allow-origin');
  return [
    ...(headers.has('content-encoding') ? ['accept-encoding'] : []),
    ...(allowed === undefined || allowed === '*' ? [] : ['origin']),
  ];
}

const NOTHING = Buffer.alloc(0);

/** With the age that a 304 brings, not that of what it renews. */
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
 * The head of an answer for one client. Its own conditions may not have reached the app, so they are
 * looked at here.
 */
function passedHead(exchange: Exchange, head: ResponseHead, status: string): ResponseHead {
  dropFieldsForCaches(head.headers);
  addCacheStatus(head.headers, status);
  if (head.status !== 200 || !isUnchanged(exchange, head.headers)) return head;
  return { ...head, status: 304, isUnchanged: true };
}
