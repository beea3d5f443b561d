/**
 * Milliseconds of processor time that a piece of synchronous work takes: the same however busy the
 * machine is. Only there to catch what would go on for minutes.
 */
export function cpuMs(work: () => void): number {
  const before = process.cpuUsage();
  work();
  const { user, system } = process.cpuUsage(before);
  return (user + system) / 1000;
}
