/** An update that a publisher sends and subscribers receive. The first topic is the canonical one. */
export interface Update {
  /** Meant to be unique, but not checked; an IRI if the hub created it. */
  readonly id: string;
  /** At least one; the others are alternates. */
  readonly topics: readonly string[];
  readonly data: string;
  /** Delivered only to subscribers whose grants cover one of its topics. */
  readonly private: boolean;
  /** SSE event name; null for none. */
  readonly type: string | null;
  /** Reconnection time in milliseconds as decimal digits; null for none. */
  readonly retry: string | null;
  /**
   * Created by the hub when a subscription begins or ends. A history stores such events separately, so that
   * subscribers cannot push updates of publishers out of it.
   */
  readonly presence?: true;
  /** Not stored if the history has an entry with the same id; see `Transport.appendOnce`. */
  readonly once?: true;
}

/** Characters of the data and topics of an update, as a measure of its memory. */
export function updateSize({ data, topics }: Update): number {
  let size = data.length;
  for (const topic of topics) size += topic.length;
  return size;
}

/** The cursor before the first update. An update cannot have it as its id. */
export const EARLIEST = 'earliest';

/** Longer ids are rejected when they are published, so no history contains them. */
export const MAX_ID_BYTES = 1024;

/** Whether a history can contain an id. */
export function isPossibleId(id: string): boolean {
  // A character has one to three bytes, so most ids need not be counted.
  return id.length <= MAX_ID_BYTES && Buffer.byteLength(id) <= MAX_ID_BYTES;
}
