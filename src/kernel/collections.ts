/** Maps whose values are sets: adds a member to the set of a key. A key exists as long as its set has members. */
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

/** Maps whose values are lists: adds an item to the list of a key. */
export function addToList<K, V>(map: Map<K, V[]>, key: K, item: V): void {
  const present = map.get(key);
  if (present === undefined) map.set(key, [item]);
  else present.push(item);
}

/** The value of a key in a map: the one that was there first, or else this one, which is added. */
export function firstOf<K, V>(map: Map<K, V>, key: K, value: V): V {
  const first = map.get(key);
  if (first !== undefined) return first;
  map.set(key, value);
  return value;
}

/** Makes an entry the newest of a map, which keeps its `max` newest ones. */
export function setNewest<K, V>(map: Map<K, V>, key: K, value: V, max: number): void {
  map.delete(key);
  map.set(key, value);
  forgetOldest(map, max);
}

/** Makes a value the newest of a set, which keeps its `max` newest ones. */
export function addNewest<T>(set: Set<T>, value: T, max: number): void {
  set.delete(value);
  set.add(value);
  forgetOldest(set, max);
}

/** Maps and sets keep the order in which their members were added. */
function forgetOldest<K>(
  members: { readonly size: number; keys(): Iterable<K>; delete(key: K): boolean },
  max: number,
): void {
  if (members.size <= max) return;
  for (const oldest of members.keys()) {
    members.delete(oldest);
    if (members.size <= max) return;
  }
}
