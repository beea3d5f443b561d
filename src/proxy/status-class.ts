/**
 * Tells whether a status is one of those listed: `404`, or a class such as `5xx`. An empty list
 * holds every status.
 */
export function statusMatcher(listed: readonly string[]): (status: number) => boolean {
  if (listed.length === 0) return () => true;
  const wanted = new Set(listed.map((one) => one.toLowerCase()));
  return (status) =>
    wanted.has(String(status)) ||
    wanted.has(`${Math.floor(status / 100)}xx`) ||
    wanted.has(String(Math.floor(status / 100)));
}
