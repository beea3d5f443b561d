import { printable } from '../terminal.ts';
import type { Overview } from './overview.ts';

const BOLD = '\u001b[1m';
const RED = '\u001b[31m';
const RESET = '\u001b[0m';

/** The overview as lines of text. */
export function screenOf(overview: Overview, address: string, coloured: boolean): string[] {
  const paint = (code: string, text: string): string => (coloured ? code + text + RESET : text);
  const { configuration, process, connections } = overview;
  const state = overview.ready
    ? 'ready'
    : paint(RED, `NOT READY: ${oneLine(overview.fault ?? '')}`);
  const loaded = configuration.lastLoadSucceeded
    ? `loaded ${configuration.lastSuccess}`
    : paint(RED, `the last load FAILED; that of ${configuration.lastSuccess} serves`);
  const head = [
    `${paint(BOLD, `hubgate ${overview.version}`)} on ${address}, up ${span(overview.upSeconds)}, processes ${overview.processes}, ${state}`,
    `configuration ${configuration.generation}, ${loaded}, refused ${configuration.failures}`,
    `processors ${process.processors.toFixed(2)}, memory ${bytes(process.memoryBytes)}, event loop p99 ${duration(process.loopDelayP99)}`,
    `connections ${connections.open}, new ${rate(connections.accepted)}/s, TLS handshakes ${rate(connections.handshakes)}/s, resumed ${share(connections.resumed)}`,
  ];
  const { cache } = overview;
  if (cache !== null) {
    head.push(
      `cache ${rate(cache.requests)}/s, without the app ${share(cache.hits)}, purged ${rate(cache.purged)}/s, answers ${cache.entries} in ${bytes(cache.bytes)}`,
    );
  }
  const table = (title: string, heads: readonly string[], rows: readonly string[][]): string[] =>
    rows.length === 0
      ? []
      : [
          '',
          ...aligned([[title, ...heads], ...rows.map((row) => row.map(oneLine))]).map(
            (line, index) => (index === 0 ? paint(BOLD, line) : line),
          ),
        ];
  return [
    ...head,
    ...table(
      'SITE',
      ['req/s', '5xx/s', 'in flight', 'mean', 'p99'],
      overview.sites.map((one) => [
        one.site,
        rate(one.requests),
        rate(one.errors),
        String(one.inFlight),
        duration(one.mean),
        duration(one.p99),
      ]),
    ),
    ...table(
      'UPSTREAM',
      ['state', 'answers/s', 'in flight', 'mean', 'failures/s', 'retries/s'],
      overview.upstreams.map((one) => [
        one.upstream,
        one.healthy ? 'up' : 'DOWN',
        rate(one.answers),
        String(one.inFlight),
        duration(one.mean),
        rate(one.failures),
        rate(one.retries),
      ]),
    ),
    ...table(
      'HUB',
      ['streams', 'updates/s', 'events/s', 'bytes/s', 'longest queue', 'lag', 'refused/s'],
      overview.hubs.map((one) => [
        one.hub,
        String(one.streams),
        rate(one.updates),
        rate(one.deliveries),
        bytes(one.bytes),
        bytes(one.longestQueueBytes),
        duration(one.longestLag),
        rate(one.refusals),
      ]),
    ),
    ...table(
      'SLOWEST SUBSCRIBER',
      ['hub', 'queue', 'waiting'],
      overview.slowest.map((one) => [
        one.id,
        one.hub,
        bytes(one.bytes),
        duration(one.waitingMs / 1000),
      ]),
    ),
  ];
}

/** A subscriber chooses a part of what is shown of him. */
function oneLine(text: string): string {
  return printable(text.replace(/[\t\n]/g, ' '));
}

/** The first column to the left, the others to the right. */
function aligned(rows: readonly (readonly string[])[]): string[] {
  const widths = (rows[0] ?? []).map((_, column) =>
    Math.max(...rows.map((row) => (row[column] ?? '').length)),
  );
  return rows.map((row) =>
    row
      .map((cell, column) =>
        column === 0 ? cell.padEnd(widths[0] ?? 0) : cell.padStart(widths[column] ?? 0),
      )
      .join('  '),
  );
}

function rate(value: number): string {
  return value >= 100 || value === 0 ? String(Math.round(value)) : value.toFixed(1);
}

function share(value: number | null): string {
  return value === null ? '-' : `${Math.round(value * 100)} %`;
}

function duration(seconds: number | null): string {
  if (seconds === null) return '-';
  if (seconds === Number.POSITIVE_INFINITY) return '> 10 s';
  if (seconds === 0) return '0';
  if (seconds < 1) return `${(seconds * 1000).toPrecision(2)} ms`;
  return `${seconds.toPrecision(3)} s`;
}

function bytes(count: number): string {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let [value, unit] = [count, 0];
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${unit === 0 ? Math.round(value) : value.toFixed(1)} ${units[unit] ?? ''}`;
}

function span(seconds: number): string {
  const [days, hours, minutes] = [86_400, 3600, 60].map((unit) => Math.floor(seconds / unit));
  if ((days ?? 0) > 0) return `${days}d ${(hours ?? 0) % 24}h`;
  if ((hours ?? 0) > 0) return `${hours}h ${(minutes ?? 0) % 60}m`;
  return (minutes ?? 0) > 0 ? `${minutes}m ${seconds % 60}s` : `${seconds}s`;
}
