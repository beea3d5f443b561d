/** The keys of a hub. They share one hash tag, so that a cluster keeps them on one node. */
export interface HubKeys {
  /** Stream: the history. An entry's id is its position and `-1`. */
  readonly log: string;
  /** Hash: id → position of the earliest kept entry with it. */
  readonly ids: string;
  /** Sorted set of further entries with an existing id: `id NUL position`. */
  readonly repeated: string;
  /**
   * Hash: version; position, key and id of the last entry; id of the last entry that is not a presence event;
   * positions of the newest evicted entries; a counter of the presence board.
   */
  readonly meta: string;
  /** List: positions of the presence events in the history, the oldest first. */
  readonly events: string;
  /** Sorted set: `process subscriber` in the order of arrival. */
  readonly present: string;
  /** Hash: `process subscriber` → its records as JSON. */
  readonly records: string;
  /** Sorted set without scores, for finding the subscribers of a process. */
  readonly owned: string;
  /** Sorted set without scores: `digest order process subscriber`, by the digests of matchers. */
  readonly matched: string;
  /** Sorted set: process by the expiry of its lease, in milliseconds of the server's clock. */
  readonly processes: string;
  /**
   * Hash: `process subscriber` that was removed from the board → its departure, until it has been announced.
   */
  readonly departed: string;
  /** Sorted set: `process subscriber` by the expiry of the claim to announce its departure. */
  readonly claims: string;
  /** Stream: signals for all nodes. */
  readonly signals: string;
  /** Prefix of hashes: the counts for a key of `rate_limit`. */
  readonly counts: string;
  /** Prefix of hashes: number and result of the last group of each writer. */
  readonly writers: string;
  /** Written before waiting for replicas, and to check that writing works. */
  readonly probe: string;
}

export function hubKeys(stream: string): HubKeys {
  const key = (name: string): string => `{${stream}}:${name}`;
  return {
    log: key('log'),
    ids: key('ids'),
    repeated: key('repeated'),
    meta: key('meta'),
    events: key('events'),
    present: key('present'),
    records: key('records'),
    owned: key('owned'),
    matched: key('matched'),
    processes: key('processes'),
    departed: key('departed'),
    claims: key('claims'),
    signals: key('signals'),
    counts: key('counts'),
    writers: key('writers'),
    probe: key('probe'),
  };
}

/** The keys of the append script, in its order. */
export function appendedKeys(
  { log, ids, repeated, meta, events, writers }: HubKeys,
  writer = '',
): readonly string[] {
  return [log, ids, repeated, meta, events, `${writers}:${writer}`];
}
