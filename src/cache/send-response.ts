import type { Writable } from 'node:stream';
import { type ArrivingBody, sendWhole } from '../coalescing/arriving-body.ts';
import { removePreset } from '../coalescing/fetch-exchange.ts';
import type { Exchange, ResponseHead } from '../http/exchange.ts';
import { HeaderList } from '../http/header-list.ts';
import { unsatisfiable } from '../http/representation.ts';
import type { Clock } from '../kernel/clock.ts';
import { WRITTEN_AT_ONCE_BYTES, ageOf, type StoredResponse, timeLeft } from './response-store.ts';
import {
  type ByteRange,
  evaluateConditions,
  requestedRange,
  type Validators,
} from '../http/conditions.ts';
import { parseHttpDate } from '../http/http-date.ts';

export function sendStored(
  exchange: Exchange,
  stored: StoredResponse,
  status: string,
  clock: Clock,
): void | Promise<void> {
  removePreset(exchange, stored.replacedPreset);
  const size = hasBody(stored) ? stored.body.length : null;
  const { head, content } = answerHead(exchange, stored, size);
  head.headers.set('Age', String(Math.floor(ageOf(stored, clock) / 1000)));
  addCacheStatus(head.headers, `${status}; ttl=${Math.floor(timeLeft(stored, clock) / 1000)}`);
  const body = begin(exchange, head, content);
  if (body === null || content === null) return undefined;
  const whole =
    content === 'all' ? stored.body : stored.body.subarray(content.start, content.end + 1);
  if (whole.length <= WRITTEN_AT_ONCE_BYTES) {
    // A copy of a small part, so that a client that does not read it keeps nothing else in memory.
    body.end(stored.body.length <= WRITTEN_AT_ONCE_BYTES ? whole : Buffer.from(whole));
    return undefined;
  }
  return sendWhole(whole, body, clock, () => exchange.abort(body)).then((isSent) => {
    if (isSent) body.end();
  });
}

/** RFC 9110 §8.6: a 204 has no length. */
function hasBody({ status }: StoredResponse): boolean {
  return status !== 204 && status !== 205;
}

/** Sends an arriving response to a client. Only the first client gets its trailers. */
export async function sendArriving(
  exchange: Exchange,
  stored: StoredResponse,
  arriving: ArrivingBody,
  status: string,
  isFirst: boolean,
): Promise<void> {
  removePreset(exchange, stored.replacedPreset);
  const { head, content } = answerHead(exchange, stored, null);
  const ageMs = stored.initialAgeMs;
  if (ageMs >= 1000) head.headers.set('Age', String(Math.floor(ageMs / 1000)));
  addCacheStatus(
    head.headers,
    `${status}; ttl=${Math.floor((stored.freshness.lifetimeMs - ageMs) / 1000)}`,
  );
  const body = begin(exchange, head, content);
  if (body === null) return;
  const isComplete = await arriving.sendTo(body, () => exchange.abort(body));
  if (isComplete) exchange.end(body, isFirst ? arriving.trailers.clone() : new HeaderList());
}

/** Begins a response; null if it has no content, and has ended with its head. */
function begin(
  exchange: Exchange,
  head: ResponseHead,
  content: AnswerHead['content'],
): Writable | null {
  const isWhole = content === null || exchange.method === 'HEAD';
  const body = exchange.begin({ ...head, isWhole });
  if (!isWhole) return body;
  body.end();
  return null;
}

/** The name by which `Cache-Status` names this cache (RFC 9211 §2). */
const NAME = 'hubgate';

/** Adds the result of this cache after those of caches closer to the app. */
export function addCacheStatus(headers: HeaderList, status: string): void {
  const before = headers.combined('cache-status');
  const own = `${NAME}; ${status}`;
  headers.set('Cache-Status', before === undefined ? own : `${before}, ${own}`);
}

/** A response for a client, stored or arriving. */
interface SelectedResponse {
  readonly status: number;
  readonly headers: HeaderList;
  readonly source: ResponseHead['source'];
}

interface AnswerHead {
  readonly head: ResponseHead;
  /** The range of the content that follows; null for no content. */
  readonly content: ByteRange | 'all' | null;
}

/**
 * The head of a response for a client, according to the conditions and the range of its request (RFC 9111
 * §4.3.2).
 *
 * @param size of the content in bytes; null if it is unknown, and then ranges are ignored
 */
function answerHead(
  exchange: Pick<Exchange, 'method' | 'headers' | 'preset'>,
  { status, headers: fields, source }: SelectedResponse,
  size: number | null,
): AnswerHead {
  const headers = fields.clone();
  // With the same marks as a response that comes from the app.
  const origin: Pick<ResponseHead, 'source' | 'isBesidePreset'> =
    source === 'upstream' ? { source, isBesidePreset: true } : { source };
  if (size !== null) headers.set('Content-Length', String(size));
  if (status !== 200) return { head: { status, headers, ...origin }, content: 'all' };
  if (isUnchanged(exchange, headers)) {
    return { head: { status: 304, headers, ...origin, isUnchanged: true }, content: null };
  }
  const range =
    size === null || !exchange.headers.has('range') || !allowsParts(headers)
      ? null
      : requestedRange(exchange, strongValidators(headers), size);
  if (range === null) return { head: { status, headers, ...origin }, content: 'all' };
  if (range === 'unsatisfiable') {
    const { head, content } = unsatisfiable(exchange, headers, size);
    return { head: { ...head, source }, content };
  }
  headers.set('Content-Range', `bytes ${range.start}-${range.end}/${size}`);
  headers.set('Content-Length', String(range.end - range.start + 1));
  return { head: { status: 206, headers, ...origin }, content: range };
}

/** Whether the client already has a 200 with these fields (RFC 9110 §13.1.2, §13.1.3). */
export function isUnchanged(exchange: Pick<Exchange, 'headers'>, headers: HeaderList): boolean {
  const asked = exchange.headers;
  if (!asked.has('if-none-match') && !asked.has('if-modified-since')) return false;
  const etag = headers.get('etag')?.replace(/^W\//, '') ?? null;
  // RFC 9111 §4.3.2: without Last-Modified, the date of the response is used.
  const date = parseHttpDate(headers.get('date') ?? '');
  return evaluateConditions(exchange, { etag, modifiedMs: modifiedMs(headers) ?? date }) === 304;
}

/**
 * Whether a client can combine parts of this content. If `encode` has encoded it, it has a weak validator, and the same
 * request would get a part of the content without the encoding from the app.
 */
function allowsParts(headers: HeaderList): boolean {
  return !headers.has('content-encoding') || headers.get('etag')?.startsWith('"') === true;
}

/** RFC 9110 §13.1.5: only strong validators allow a client to combine parts. */
function strongValidators(headers: HeaderList): Validators {
  const etag = headers.get('etag') ?? '';
  return { etag: etag.startsWith('"') ? etag : null, modifiedMs: modifiedMs(headers) };
}

function modifiedMs(headers: HeaderList): number | null {
  const field = headers.get('last-modified');
  return field === undefined ? null : parseHttpDate(field);
}

const CONDITIONS = ['if-none-match', 'if-modified-since', 'if-range', 'range'];

/** Request fields that ask the app for a complete response, or whether the stored one is still current. */
export function withoutConditions(request: HeaderList, stored: HeaderList | null): HeaderList {
  const headers = request.clone();
  for (const name of CONDITIONS) headers.delete(name);
  const etag = stored?.get('etag');
  const modified = stored?.get('last-modified');
  if (etag !== undefined) headers.set('If-None-Match', etag);
  if (modified !== undefined) headers.set('If-Modified-Since', modified);
  return headers;
}

/** Fields of the content that a 304 cannot change (RFC 9111 §3.2). */
const NOT_UPDATED = new Set([
  'content-encoding',
  'content-length',
  'content-range',
  'cache-status',
  'via',
]);

/** The fields of a stored response, updated with those of a 304. */
export function renewedFields(stored: HeaderList, renewal: HeaderList): HeaderList {
  const renewed = stored.clone();
  const names = new Set<string>();
  renewal.forEach((key) => {
    if (!NOT_UPDATED.has(key)) names.add(key);
  });
  for (const name of names) renewed.delete(name);
  for (const [name, value] of renewal) {
    if (names.has(name.toLowerCase())) renewed.append(name, value);
  }
  return renewed;
}
