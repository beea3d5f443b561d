/** The names of a hub's keys in Redis. */
const NAMES = [
  /** Stream: the history. An entry's id is its position and `-1`. */
  'log',
  /** Hash: id → position of the earliest kept entry with it. */
  'ids',
  /** Sorted set of further entries with an existing id: `id NUL position`. */
  'repeated',
  /**
   * Hash: version; position, key and id of the last entry; id of the last entry that is not a presence event;
   * positions of the newest evicted entries; a counter of the presence board.
   */
  'meta',
  /** List: positions of the presence events in the history, the oldest first. */
  'events',
  /** Sorted set: `process subscriber` in the order of arrival. */
  'present',
  /** Hash: `process subscriber` → its records as JSON. */
  'records',
  /** Sorted set without scores, for finding the subscribers of a process. */
  'owned',
  /** Sorted set without scores: `digest order process subscriber`, by the digests of matchers. */
  'matched',
  /** Sorted set: process by the expiry of its lease, in milliseconds of the server's clock. */
  'processes',
  /**
   * Hash: `process subscriber` that was removed from the board → its departure, until it has been announced.
   */
  'departed',
  /** Sorted set: `process subscriber` by the expiry of the claim to announce its departure. */
  'claims',
  /** Stream: signals for all nodes. */
  'signals',
  /** Prefix of hashes: the counts for a key of `rate_limit`. */
  'counts',
  /** Prefix of hashes: number and result of the last group of each writer. */
  'writers',
  /** Written before waiting for replicas, and to check that writing works. */
  'probe',
] as const;

/** The keys of a hub. They share one hash tag, so that a cluster keeps them on one node. */
export type HubKeys = Readonly<Record<(typeof NAMES)[number], string>>;

export function hubKeys(stream: string): HubKeys {
  // It has a key for each name.
  return Object.fromEntries(NAMES.map((name) => [name, `{${stream}}:${name}`])) as HubKeys;
}

/** The keys of the append script, in its order. */
export function appendedKeys(
  { log, ids, repeated, meta, events, writers }: HubKeys,
  writer = '',
): readonly string[] {
  return [log, ids, repeated, meta, events, `${writers}:${writer}`];
}
