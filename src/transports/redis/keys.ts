/** The keys of a hub. One hash tag holds them together, so a cluster keeps them on one node. */
export interface HubKeys {
  /** Stream: the log. An entry's id is its position and `-1`. */
  readonly log: string;
  /** Hash: id → position of the earliest kept entry with it. */
  readonly ids: string;
  /** Sorted set of further entries with an id that was there already: `id NUL position`. */
  readonly repeated: string;
  /**
   * Hash: version, position, key and id of the last entry, id of the last that is not a presence event, positions of
   * what was evicted last, and a counter of the presence board.
   */
  readonly meta: string;
  /** List: positions of the presence events in the log, the oldest first. */
  readonly events: string;
  /** Sorted set: `process subscriber` by the order of coming. */
  readonly present: string;
  /** Hash: `process subscriber` → its records as JSON. */
  readonly records: string;
  /** Sorted set without scores, so that a process' subscribers are found. */
  readonly owned: string;
  /** Sorted set without scores: `digest order process subscriber`, by the digests of matchers. */
  readonly matched: string;
  /** Sorted set: process by when its lease runs out, in milliseconds of the server's clock. */
  readonly processes: string;
  /** Hash: `process subscriber` that is off the board → its departure, until it has been announced. */
  readonly departed: string;
  /** Sorted set: `process subscriber` by until when somebody announces its departure. */
  readonly claims: string;
  /** Stream: what is told to all nodes. */
  readonly signals: string;
  /** Prefix of hashes: what has been counted of a key of `rate_limit`. */
  readonly counts: string;
  /** Written to before it is waited for replicas, and to prove that writing works. */
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
    probe: key('probe'),
  };
}

/** What the append script changes, in its order. */
export function appendedKeys({ log, ids, repeated, meta, events }: HubKeys): readonly string[] {
  return [log, ids, repeated, meta, events];
}
