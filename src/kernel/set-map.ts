/** Helpers for maps whose values are sets. A key exists as long as its set has members. */

/** Adds a member to the set of a key, and creates the set if necessary. */
export function addTo<K, V>(map: Map<K, Set<V>>, key: K, value: V): void {
  const present = map.get(key);
  if (present === undefined) map.set(key, new Set([value]));
  else present.add(value);
}

/** Removes a member from the set of a key, and the key with the last member. */
export function deleteFrom<K, V>(map: Map<K, Set<V>>, key: K, value: V): void {
  const present = map.get(key);
  present?.delete(value);
  if (present?.size === 0) map.delete(key);
}
