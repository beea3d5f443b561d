/** Maps whose values are sets: a key is there as long as its set holds something. */

/** Adds to the set under a key, which is made for the first. */
export function addTo<K, V>(map: Map<K, Set<V>>, key: K, value: V): void {
  const present = map.get(key);
  if (present === undefined) map.set(key, new Set([value]));
  else present.add(value);
}

/** Takes out of the set under a key, and the key with the last. */
export function deleteFrom<K, V>(map: Map<K, Set<V>>, key: K, value: V): void {
  const present = map.get(key);
  present?.delete(value);
  if (present?.size === 0) map.delete(key);
}
