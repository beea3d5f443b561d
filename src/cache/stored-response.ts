import type { HeaderList } from '../http/header-list.ts';
import type { ResponseHead } from '../http/exchange.ts';
import type { Freshness } from './freshness.ts';

/** A response that is kept, with all that decides about its use. It does not change. */
export interface StoredResponse {
  /** Of all responses to requests for the same thing. */
  readonly key: string;
  readonly vary: readonly string[];
  /** The values of the fields that it varies by, of the request that it answered. */
  readonly variant: string;
  readonly status: number;
  readonly headers: HeaderList;
  /** The fields that only caches are told. */
  readonly hidden: HeaderList;
  readonly source: ResponseHead['source'];
  readonly body: Buffer;
  /** All names by which it is purged. */
  readonly names: readonly string[];
  readonly freshness: Freshness;
  readonly revalidatesAlways: boolean;
  readonly isForEveryone: boolean;
  /** When it came, and how old it was then; milliseconds. */
  readonly responseMs: number;
  readonly initialAgeMs: number;
}

/** RFC 9111 §4.2.3, in milliseconds. */
export function ageOf({ initialAgeMs, responseMs }: StoredResponse, nowMs: number): number {
  return initialAgeMs + Math.max(0, nowMs - responseMs);
}

/** How long it is still fresh, in milliseconds; negative where it is not any more. */
export function timeLeft(stored: StoredResponse, nowMs: number): number {
  return stored.freshness.lifetimeMs - ageOf(stored, nowMs);
}

/** Whether a stored response may be used without asking, RFC 9111 §4. */
export type Reuse = 'fresh' | 'while-revalidating' | 'after-validation';

export function reuseOf(stored: StoredResponse, nowMs: number): Reuse {
  if (stored.revalidatesAlways) return 'after-validation';
  const leftMs = timeLeft(stored, nowMs);
  if (leftMs > 0) return 'fresh';
  // The age goes in whole seconds, so a window does: one of a second must not last for two.
  return leftMs + stored.freshness.whileRevalidateMs > 0
    ? 'while-revalidating'
    : 'after-validation';
}

/** Whether it may be used because the app has failed (RFC 5861 §4). */
export function helpsAfterError(stored: StoredResponse, nowMs: number): boolean {
  return timeLeft(stored, nowMs) + stored.freshness.ifErrorMs > 0;
}

/** Whether a request may be given it: what is fresh by the operator's word only, to nobody who is known. */
export function isForRequest({ isForEveryone }: StoredResponse, request: HeaderList): boolean {
  return isForEveryone || !(request.has('cookie') || request.has('authorization'));
}

/** Whether the app can be asked if it is still the same. */
export function hasValidator({ headers, status }: StoredResponse): boolean {
  return status === 200 && (headers.has('etag') || headers.has('last-modified'));
}

/** What it takes of memory beside its body and its texts: objects, and places in the indexes. */
const OVERHEAD = 1_600;
/** Of each name: its place in the index, and a set of its own. */
const NAME_OVERHEAD = 200;

/** Bytes of memory, roughly. */
export function sizeOf({ key, variant, headers, body, names }: StoredResponse): number {
  let size = OVERHEAD + body.length + 2 * (key.length + variant.length);
  headers.forEach((name, value) => {
    size += name.length + value.length + 64;
  });
  for (const name of names) size += NAME_OVERHEAD + name.length;
  return size;
}
