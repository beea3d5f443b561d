import type { ResponseHead } from '../http/exchange.ts';
import type { HeaderList } from '../http/header-list.ts';
import type { Freshness } from './freshness.ts';
import { isOfKnownClient } from './storage-policy.ts';

/** A stored response with everything that decides about its use. It never changes. */
export interface StoredResponse {
  /** The same for all responses to requests for the same resource. */
  readonly key: string;
  readonly vary: readonly string[];
  /** The values of the fields by which it varies, from its request. */
  readonly variant: string;
  readonly status: number;
  readonly headers: HeaderList;
  /** The fields that are only for caches. */
  readonly hidden: HeaderList;
  readonly source: ResponseHead['source'];
  readonly body: Buffer;
  /** All names by which it is purged. */
  readonly names: readonly string[];
  readonly freshness: Freshness;
  readonly revalidatesAlways: boolean;
  readonly isForEveryone: boolean;
  /** The time of its arrival and its age at that time, in milliseconds. */
  readonly responseMs: number;
  readonly initialAgeMs: number;
}

/** RFC 9111 §4.2.3, in milliseconds. */
export function ageOf({ initialAgeMs, responseMs }: StoredResponse, nowMs: number): number {
  return initialAgeMs + Math.max(0, nowMs - responseMs);
}

/** How long it will be fresh, in milliseconds; negative if it is stale. */
export function timeLeft(stored: StoredResponse, nowMs: number): number {
  return stored.freshness.lifetimeMs - ageOf(stored, nowMs);
}

/** Whether a stored response can be used without asking the app (RFC 9111 §4). */
export type Reuse = 'fresh' | 'while-revalidating' | 'after-validation';

export function reuseOf(stored: StoredResponse, nowMs: number): Reuse {
  if (stored.revalidatesAlways) return 'after-validation';
  const leftMs = timeLeft(stored, nowMs);
  if (leftMs > 0) return 'fresh';
  // Ages are in whole seconds, and so are the windows: a window of one second must not last for two.
  return leftMs + stored.freshness.whileRevalidateMs > 0
    ? 'while-revalidating'
    : 'after-validation';
}

/** Whether it can be used because the app has failed (RFC 5861 §4). */
export function helpsAfterError(stored: StoredResponse, nowMs: number): boolean {
  return timeLeft(stored, nowMs) + stored.freshness.ifErrorMs > 0;
}

/**
 * Whether a request may receive it. A response that is fresh only because of the operator's setting is not
 * for known clients.
 */
export function isForRequest({ isForEveryone }: StoredResponse, request: HeaderList): boolean {
  return isForEveryone || !isOfKnownClient(request);
}

/** Whether the app can be asked if it is still current. */
export function hasValidator({ headers, status }: StoredResponse): boolean {
  return status === 200 && (headers.has('etag') || headers.has('last-modified'));
}

/** Memory in addition to its body and its strings: objects, and places in the indexes. */
const OVERHEAD = 2_000;
/** Memory of each name: its place in the index, and its set. */
const NAME_OVERHEAD = 200;

/** Approximate bytes of memory. */
export function sizeOf({ key, variant, headers, hidden, body, names }: StoredResponse): number {
  let size = OVERHEAD + body.length + 2 * (key.length + variant.length);
  for (const fields of [headers, hidden]) {
    fields.forEach((name, value) => {
      size += name.length + value.length + 64;
    });
  }
  for (const name of names) size += NAME_OVERHEAD + name.length;
  return size;
}
