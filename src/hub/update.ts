/** What a publisher sends and subscribers receive. The first topic is the canonical one. */
export interface Update {
  /** Unique by intention, not by check; an IRI when the hub made it. */
  readonly id: string;
  /** One at least; the others are alternates. */
  readonly topics: readonly string[];
  readonly data: string;
  /** Delivered only to subscribers whose grants cover one of its topics. */
  readonly private: boolean;
  /** SSE event name; null for none. */
  readonly type: string | null;
  /** Reconnection time in milliseconds as decimal digits; null for none. */
  readonly retry: string | null;
  /**
   * The hub made it, about a subscription that has begun or ended. A log keeps these apart from what
   * publishers send, so that nobody who only subscribes can push an update out.
   */
  readonly presence?: true;
}

/** Characters of an update's data and topics: what it takes of memory grows with both. */
export function updateSize({ data, topics }: Update): number {
  let size = data.length;
  for (const topic of topics) size += topic.length;
  return size;
}

/** The cursor before the first update; as an update's id it is refused. */
export const EARLIEST = 'earliest';

/** Longer ids are refused when they are published, and known to no log. */
export const MAX_ID_BYTES = 1024;

/** Whether an id may stand in a log at all. */
export function isPossibleId(id: string): boolean {
  // A character is one to three bytes, so most are decided without counting.
  return id.length <= MAX_ID_BYTES && Buffer.byteLength(id) <= MAX_ID_BYTES;
}
