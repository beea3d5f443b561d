import { type ArrivingBody, sendWhole } from '../coalescing/arriving-body.ts';
import type { Exchange } from '../http/exchange.ts';
import { HeaderList } from '../http/header-list.ts';
import type { Clock } from '../kernel/clock.ts';
import { addCacheStatus, answerHead } from './conditional-response.ts';
import { WRITTEN_AT_ONCE_BYTES } from './response-store.ts';
import { ageOf, type StoredResponse, timeLeft } from './stored-response.ts';

/** Sends a stored response to a client. */
export function sendStored(
  exchange: Exchange,
  stored: StoredResponse,
  status: string,
  clock: Clock,
): void | Promise<void> {
  const nowMs = clock.now();
  const { head, content } = answerHead(
    exchange,
    stored,
    hasBody(stored) ? stored.body.length : null,
  );
  head.headers.set('Age', String(Math.floor(ageOf(stored, nowMs) / 1000)));
  addCacheStatus(head.headers, `${status}; ttl=${Math.floor(timeLeft(stored, nowMs) / 1000)}`);
  const body = exchange.begin(head);
  if (content === null || exchange.method === 'HEAD') {
    body.end();
    return undefined;
  }
  const whole =
    content === 'all' ? stored.body : stored.body.subarray(content.start, content.end + 1);
  if (whole.length <= WRITTEN_AT_ONCE_BYTES) {
    // A copy of a small part, so that a client that does not read it keeps nothing else in memory.
    body.end(stored.body.length <= WRITTEN_AT_ONCE_BYTES ? whole : Buffer.from(whole));
    return undefined;
  }
  return sendWhole(whole, body, clock, () => exchange.abort()).then((isSent) => {
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
  const { head, content } = answerHead(exchange, stored, null);
  const ageMs = stored.initialAgeMs;
  if (ageMs >= 1000) head.headers.set('Age', String(Math.floor(ageMs / 1000)));
  addCacheStatus(
    head.headers,
    `${status}; ttl=${Math.floor((stored.freshness.lifetimeMs - ageMs) / 1000)}`,
  );
  const body = exchange.begin(head);
  if (content === null || exchange.method === 'HEAD') {
    body.end();
    return;
  }
  const isComplete = await arriving.sendTo(body, () => exchange.abort());
  if (isComplete) exchange.end(body, isFirst ? arriving.trailers.clone() : new HeaderList());
}
