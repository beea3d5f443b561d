// What a watched page looked like is its status with its `ETag`, because the app itself says with it when the
// page is another one, and without a body on the wire (304). A page without one is compared by a digest of its
// body. With `ignore`, the digest decides even if there is an `ETag`: frameworks that compute it from the body
// (Django, Rails) change it with the very parts that are to be ignored. Parts are named by regular expressions
// and not by selectors, because that needs no HTML parser, works in JSON and feeds, and takes linear time.

import { createHash } from 'node:crypto';
import type { ResponseHead } from '../http/exchange.ts';
import { parseHttpDate } from '../http/http-date.ts';
import { compilePattern } from '../http/linear-regexp.ts';
import type { Budget } from '../kernel/scheduler.ts';
import { orNull } from '../kernel/parse.ts';
import { isPrivate } from '../http/cache-control.ts';
import type { WatchedAnswer } from './watch-exchange.ts';

/** Characters that a regular expression of `ignore` sees at a time. */
const MAX_PIECE = 16 * 1024;
/** Cost of one character for one regular expression, and for a digest, in steps of about 10 ns. */
const PATTERN_STEPS = 12;
const DIGEST_STEPS = 1;
/** HTTP dates count in seconds, so a younger date may stand for two states (RFC 9110 §8.8.2.2). */
const STRONG_DATE_MS = 2_000;

/** Removes from a text the parts that do not count. */
export type Remover = (text: string) => string;

/** @throws HubgateError `invalid-pattern` */
export function removerOf(source: string): Remover {
  const replace = compilePattern(source).replacer('');
  return (text) => replace(text, (literal) => literal);
}

/** The state of a page, as its last answer showed it. */
export interface PageState {
  /** Equal for two answers that show the same page. */
  readonly mark: string;
  readonly etag: string | null;
  /** `Last-Modified`, if it can be used as a validator. */
  readonly lastModified: string | null;
}

/** What an answer means to somebody who watches the page. */
export type Verdict =
  | { readonly kind: 'unchanged' }
  | { readonly kind: 'state'; readonly state: PageState }
  /** It is not a page that everybody may see, or it cannot be compared. */
  | { readonly kind: 'unfit'; readonly why: string }
  /** It says nothing about the page. */
  | { readonly kind: 'failed'; readonly status: number };

/** The fields that ask whether a page is still as it was. */
export function validatorsOf(state: PageState | null): [string, string][] {
  if (state === null) return [];
  if (state.etag !== null) return [['If-None-Match', state.etag]];
  return state.lastModified === null ? [] : [['If-Modified-Since', state.lastModified]];
}

/**
 * Reads an answer. 401, 403 and 407, `no-store` and `private`, event streams, and what the gateway itself
 * responds are not public pages. 429 and 5xx say nothing about the page. Every other status is a state of its
 * own: a page that disappears (404, 410), comes back or moves has changed.
 */
export function* readAnswer(
  { head, body }: WatchedAnswer,
  known: PageState | null,
  ignore: readonly Remover[],
  personalFields: readonly string[],
  budget: Budget,
): Generator<void, Verdict, void> {
  const { status, headers } = head;
  if (status === 304 && known !== null) return { kind: 'unchanged' };
  if (status >= 500 || status === 429 || status === 304) return { kind: 'failed', status };
  const why = unfitness(head, personalFields);
  if (why !== null) return { kind: 'unfit', why };
  const etag = status === 200 ? (headers.get('etag') ?? null) : null;
  if (etag !== null && known !== null && known.etag !== null && weak(etag) === weak(known.etag)) {
    return { kind: 'unchanged' };
  }
  const lastModified = etag === null && status === 200 ? strongDate(head) : null;
  if (etag !== null && ignore.length === 0) {
    return { kind: 'state', state: { mark: `${status} etag ${weak(etag)}`, etag, lastModified } };
  }
  if (body === null) return { kind: 'unfit', why: 'it is too large to compare, and has no ETag' };
  const digest = createHash('sha256').update(headers.get('location') ?? '');
  for (const piece of ignore.length === 0 ? [body] : pieces(body.toString('utf8'))) {
    if (budget.isSpent) yield;
    budget.spend(piece.length * (DIGEST_STEPS + PATTERN_STEPS * ignore.length));
    const kept = typeof piece === 'string' ? withoutIgnored(piece, ignore) : piece;
    if (kept === null) return { kind: 'unfit', why: 'an expression of ignore takes too long' };
    digest.update(kept);
  }
  const mark = `${status} digest ${digest.digest('base64url')}`;
  return { kind: 'state', state: { mark, etag, lastModified } };
}

/** null if an expression takes too long. */
function withoutIgnored(text: string, ignore: readonly Remover[]): string | null {
  return orNull(() => ignore.reduce((rest, remove) => remove(rest), text));
}

function unfitness(
  { status, headers, source }: ResponseHead,
  personalFields: readonly string[],
): string | null {
  if (status === 401 || status === 403 || status === 407) return `its status is ${status}`;
  if (source === 'gateway') return 'the gateway itself responds';
  if (isPrivate(headers)) return 'its response says no-store or private';
  if (personalFields.some((name) => headers.has(name))) return 'its response is for one user';
  const type = headers.get('content-type') ?? '';
  return /^text\/event-stream\b/i.test(type) ? 'it is an event stream' : null;
}

/** RFC 9110 §8.8.3.2: the weak comparison. */
function weak(etag: string): string {
  return etag.replace(/^W\//, '');
}

function strongDate({ headers }: ResponseHead): string | null {
  const modified = headers.get('last-modified');
  const date = headers.get('date');
  if (modified === undefined || date === undefined) return null;
  const [from, to] = [parseHttpDate(modified), parseHttpDate(date)];
  return from !== null && to !== null && to - from >= STRONG_DATE_MS ? modified : null;
}

/**
 * A text in pieces for regular expressions: lines, and longer lines after the last `>` or space that fits. So
 * no match takes a turn of the event loop for itself.
 */
function* pieces(text: string): Generator<string, void, void> {
  for (let at = 0; at < text.length; ) {
    const newline = text.indexOf('\n', at);
    let end = newline === -1 ? text.length : newline + 1;
    if (end - at > MAX_PIECE) {
      const most = text.slice(at, at + MAX_PIECE);
      const tag = most.lastIndexOf('>');
      end = at + (tag === -1 ? MAX_PIECE : tag + 1);
    }
    yield text.slice(at, end);
    at = end;
  }
}
