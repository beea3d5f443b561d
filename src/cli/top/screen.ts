import { printable } from '../terminal.ts';
import type { Overview } from './overview.ts';

const BOLD = '\u001b[1m';
const RED = '\u001b[31m';
const RESET = '\u001b[0m';

/** Size of the terminal. */
export interface Screen {
  /** null: no limit. */
  readonly columns: number | null;
  readonly coloured: boolean;
}

/** The overview as lines of text that fit the terminal, so that it does not break them inside a word. */
export function screenOf(overview: Overview, address: string, screen: Screen): string[] {
  const columns = screen.columns ?? Number.POSITIVE_INFINITY;
  const paint = (code: string, text: string): string =>
    screen.coloured ? code + text + RESET : text;
  const { configuration, process, connections } = overview;
  const state = overview.ready
    ? 'ready'
    : paint(RED, `NOT READY: ${oneLine(overview.fault ?? '')}`);
  const loaded = configuration.lastLoadSucceeded
    ? `loaded ${configuration.lastSuccess}`
    : paint(
        RED,
        `the last load FAILED; the configuration of ${configuration.lastSuccess} is in use`,
      );
  const head = [
    `${paint(BOLD, `hubgate ${overview.version}`)} on ${address}, up ${span(overview.upSeconds)}, processes ${overview.processes}, ${state}`,
    `configuration ${configuration.generation}, ${loaded}, refused ${configuration.failures}`,
    `processors ${process.processors.toFixed(2)}, memory ${bytes(process.memoryBytes)}, event loop p99 ${duration(process.loopDelayP99)}`,
    `connections ${connections.open}, new ${rate(connections.accepted)}/s, TLS handshakes ${rate(connections.handshakes)}/s, resumed ${share(connections.resumed)}`,
  ];
  const { cache } = overview;
  if (cache !== null) {
    head.push(
      `cache ${rate(cache.requests)}/s, hits ${share(cache.hits)}, purged ${rate(cache.purged)}/s, responses ${cache.entries} in ${bytes(cache.bytes)}`,
    );
  }
  for (const { hub, reading, published, rows, lag, deadLetters, failures } of overview.outboxes) {
    head.push(
      `outbox of ${oneLine(hub)} ${reading ? 'read here' : 'not read here'}, rows ${rate(published)}/s, waiting ${rows}, lag ${duration(lag)}, dead letters ${deadLetters}, failures ${rate(failures)}/s`,
    );
  }
  const table = (title: string, heads: readonly string[], rows: readonly string[][]): string[] =>
    rows.length === 0
      ? []
      : [
          '',
          ...folded([[title, ...heads], ...rows.map((row) => row.map(oneLine))], columns).flatMap(
            (part) => aligned(part).map((line, index) => (index === 0 ? paint(BOLD, line) : line)),
          ),
        ];
  return [
    ...head.flatMap((line) => wrapped(line, columns)),
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

/** A subscriber chooses parts of the text that is shown about it. */
function oneLine(text: string): string {
  return printable(text.replace(/[\t\n]/g, ' '));
}

/** Breaks a line between its parts, and a long part between its words. */
function wrapped(line: string, columns: number): string[] {
  const pieces = line
    .split(/(?<=, )/)
    .flatMap((part) =>
      visibleLength(part) > columns - INDENT.length ? part.split(/(?<= )/) : [part],
    );
  const lines: string[] = [];
  let current = '';
  for (const piece of pieces) {
    const isFull = visibleLength((current + piece).trimEnd()) > columns;
    if (current !== '' && isFull) {
      lines.push(current.trimEnd());
      current = INDENT;
    }
    current += piece;
  }
  return [...lines, current];
}

/** Indentation of continued lines. */
const INDENT = '  ';

function visibleLength(text: string): number {
  // Colour codes take no space.
  return text.replaceAll(BOLD, '').replaceAll(RED, '').replaceAll(RESET, '').length;
}

/** Splits a table into several that fit below each other, each with the first column. */
function folded(rows: readonly (readonly string[])[], columns: number): (readonly string[])[][] {
  const widths = (rows[0] ?? []).map((_, at) =>
    Math.max(...rows.map((row) => row[at]?.length ?? 0)),
  );
  const [first = 0, ...others] = widths;
  const groups: number[][] = [];
  let width = 0;
  for (const [index, one] of others.entries()) {
    if (groups.length === 0 || width + GAP.length + one > columns) {
      groups.push([]);
      width = first;
    }
    groups.at(-1)?.push(index + 1);
    width += GAP.length + one;
  }
  return groups.map((group) =>
    rows.map((row) => [row[0] ?? '', ...group.map((at) => row[at] ?? '')]),
  );
}

/** Between columns. */
const GAP = '  ';

/** Aligns the first column to the left, the others to the right. */
function aligned(rows: readonly (readonly string[])[]): string[] {
  const widths = (rows[0] ?? []).map((_, column) =>
    Math.max(...rows.map((row) => (row[column] ?? '').length)),
  );
  return rows.map((row) =>
    row
      .map((cell, column) =>
        column === 0 ? cell.padEnd(widths[0] ?? 0) : cell.padStart(widths[column] ?? 0),
      )
      .join(GAP),
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
  if (seconds >= 99.95) return span(Math.round(seconds));
  if (seconds >= 0.9995) return `${seconds.toFixed(seconds < 9.95 ? 2 : 1)} s`;
  const milliseconds = seconds * 1000;
  return `${milliseconds.toFixed(milliseconds < 9.95 ? 1 : 0)} ms`;
}

function bytes(count: number): string {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let [value, unit] = [count, 0];
  // From 1023.95 on, it would be shown as 1024.0.
  while (value >= 1023.95 && unit < units.length - 1) {
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
