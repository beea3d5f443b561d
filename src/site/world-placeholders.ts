// Placeholders that have nothing to do with the request: the time, and this machine.
import { hostname } from 'node:os';
import { sep } from 'node:path';

const MONTHS = ['Jan', 'Feb', 'Mar', 'Apr', 'May', 'Jun', 'Jul', 'Aug', 'Sep', 'Oct', 'Nov', 'Dec'];

/** Go's names for what Node calls otherwise, so that files written for Caddy mean the same. */
const ARCHITECTURES: Readonly<Record<string, string>> = { x64: 'amd64', ia32: '386' };
const SYSTEMS: Readonly<Record<string, string>> = { win32: 'windows' };

/** `time.now` and its forms; times are UTC. */
export function timeValue(name: string, now = new Date()): string | undefined {
  switch (name) {
    case 'time.now':
      return now.toISOString();
    case 'time.now.http':
      return now.toUTCString();
    case 'time.now.common_log':
      return commonLog(now);
    case 'time.now.year':
      return String(now.getUTCFullYear());
    case 'time.now.unix':
      return String(Math.floor(now.getTime() / 1000));
    case 'time.now.unix_ms':
      return String(now.getTime());
    default:
      return undefined;
  }
}

/** `system.hostname` and its like. */
export function systemValue(name: string): string | undefined {
  switch (name) {
    case 'system.hostname':
      return hostname();
    case 'system.os':
      return SYSTEMS[process.platform] ?? process.platform;
    case 'system.arch':
      return ARCHITECTURES[process.arch] ?? process.arch;
    case 'system.wd':
      return process.cwd();
    case 'system.slash':
      return sep;
    default:
      return undefined;
  }
}

/** As web servers have always written it: `22/Nov/2026:05:00:00 +0000`. */
function commonLog(now: Date): string {
  const [day, time = ''] = now.toISOString().split(/[T.]/);
  const [year, month, date] = (day ?? '').split('-');
  return `${date}/${MONTHS[Number(month) - 1]}/${year}:${time} +0000`;
}
