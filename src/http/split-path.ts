/** Divides a path behind the first name with one of these ends; without one nothing is left over. */
export function splitAfter(path: string, ends: readonly string[]): [head: string, rest: string] {
  const lower = path.toLowerCase();
  for (const end of ends) {
    const wanted = end.toLowerCase();
    for (let at = lower.indexOf(wanted); at !== -1; at = lower.indexOf(wanted, at + 1)) {
      const after = at + wanted.length;
      // In `/a.phpx/b` nothing ends with .php.
      if (after === path.length || path[after] === '/') {
        return [path.slice(0, after), path.slice(after)];
      }
    }
  }
  return [path, ''];
}
