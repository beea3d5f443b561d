// What the options of `format` change in the lines of a log. Texts that are matched with expressions come
// from clients; the access log has cut them.

import { hash } from 'node:crypto';
import { isIP } from 'node:net';
import { hostname } from 'node:os';
import {
  type DurationFormat,
  type LogChange,
  type LogEncoding,
  type LogFormat,
  type PairFilter,
  type TimeFormat,
} from '../config/log-encoding.ts';
import { maskedAddress } from '../http/forwarded.ts';
import { compilePattern, MAX_MATCHED_LENGTH } from '../http/linear-regexp.ts';
import type { LogFields } from '../kernel/log.ts';
import { orNull } from '../kernel/parse.ts';
import { commonLog } from '../site/placeholders.ts';

/** The fixed members of a line, and what happens to its fields. */
export interface LogLines {
  readonly messageKey: string;
  readonly levelKey: string;
  readonly timeKey: string;
  readonly level: (level: string) => string;
  /** The time as it stands in JSON. */
  readonly time: (at: Date) => string;
  readonly fields: (fields: LogFields) => LogFields;
}

/**
 * Compiles the options of a log.
 *
 * @throws HubgateError `invalid-pattern`
 */
export function compileLogLines(
  format: LogFormat,
  { members, filters, append }: LogEncoding,
): LogLines {
  const isCaddy = format === 'caddy';
  const { messageKey, levelKey, timeKey, nameKey, levelFormat, durationFormat } = members;
  const timeFormat = members.timeFormat ?? (isCaddy ? 'unix_seconds_float' : 'iso8601');
  const changes: ((fields: Fields) => void)[] = [
    ...filters.map(({ field, change }) => changing(field.split('>'), valueChange(change), change)),
    ...(durationFormat === 'seconds' ? [] : [withDurations(durationFormat)]),
    ...(nameKey === null ? [] : [renaming('logger', nameKey)]),
  ];
  const added = Object.fromEntries(
    append.map(({ field, value }) => [field, value.replaceAll('{system.hostname}', hostname())]),
  );
  const isPlain = changes.length === 0 && append.length === 0;
  return {
    messageKey: messageKey ?? 'msg',
    levelKey: levelKey ?? 'level',
    timeKey: timeKey ?? (isCaddy ? 'ts' : 'time'),
    level: levelFormat === 'upper' ? (level) => level.toUpperCase() : (level) => level,
    time: TIMES[timeFormat],
    fields(fields) {
      if (isPlain) return fields;
      const copy = { ...fields };
      for (const change of changes) change(copy);
      return { ...copy, ...added };
    },
  };
}

type Fields = Record<string, unknown>;

/** Applies a change at the end of a path of names. Objects on the way are copied. */
function changing(
  path: readonly string[],
  change: (value: unknown) => unknown,
  { kind, ...rest }: LogChange,
): (fields: Fields) => void {
  const renamed = kind === 'rename' && 'name' in rest ? rest.name : null;
  return (fields) => {
    let owner = fields;
    for (const [index, written] of path.entries()) {
      const name = memberNamed(owner, written);
      if (name === null) return;
      const value = owner[name];
      if (index < path.length - 1) {
        if (!isFields(value)) return;
        const inner = { ...value };
        owner[name] = inner;
        owner = inner;
      } else if (kind === 'delete') {
        delete owner[name];
      } else if (renamed !== null) {
        delete owner[name];
        owner[renamed] = value;
      } else {
        owner[name] = change(value);
      }
    }
  };
}

function isFields(value: unknown): value is Fields {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** Fields of a header are found whatever their case: a filter must not miss what it hides. */
function memberNamed(owner: Fields, written: string): string | null {
  if (Object.hasOwn(owner, written)) return written;
  const name = written.toLowerCase();
  return Object.keys(owner).find((each) => each.toLowerCase() === name) ?? null;
}

/** What a change makes of a value; each text of a list is changed on its own. */
function valueChange(change: LogChange): (value: unknown) => unknown {
  if (change.kind === 'replace') return () => change.value;
  const changed = textChange(change);
  return (value) => {
    if (Array.isArray(value)) return value.map((each) => changed(String(each)));
    return isFields(value) ? value : changed(String(value));
  };
}

function textChange(change: LogChange): (text: string) => string {
  switch (change.kind) {
    case 'hash':
      return hashOf;
    case 'ip_mask':
      return (text) =>
        text
          .split(',')
          .map((each) => masked(each.trim(), change))
          .join(', ');
    case 'regexp': {
      const replace = compilePattern(change.pattern).replacer(change.replacement);
      const replaced = (text: string): string =>
        replace(text.slice(0, MAX_MATCHED_LENGTH), (literal) => literal);
      // What the expression would have hidden must not appear.
      return (text) => orNull(() => replaced(text)) ?? '';
    }
    case 'query':
      return (text) => {
        const [path, query] = text.split(/\?(.*)/s);
        if (query === undefined) return text;
        const rest = pairsChanged(query.split('&'), change.pairs, decoded);
        return rest.length === 0 ? String(path) : `${path}?${rest.join('&')}`;
      };
    case 'cookie':
      return (text) => pairsChanged(text.split(/; ?/), change.pairs, String).join('; ');
    default:
      return String;
  }
}

/** The first eight digits of SHA-256, as Caddy shortens it. */
function hashOf(text: string): string {
  return hash('sha256', text, 'hex').slice(0, 8);
}

/** A name in a query may be written in several ways; the filter means the decoded one. */
function decoded(name: string): string {
  return orNull(() => decodeURIComponent(name.replaceAll('+', ' '))) ?? name;
}

function pairsChanged(
  pairs: readonly string[],
  filters: readonly PairFilter[],
  nameOf: (written: string) => string,
): string[] {
  return pairs.flatMap((pair) => {
    const [written = '', value = ''] = pair.split(/=(.*)/s);
    const filter = filters.find(({ name }) => name === nameOf(written));
    if (filter === undefined) return [pair];
    if (filter.kind === 'delete') return [];
    return [`${written}=${filter.kind === 'hash' ? hashOf(value) : filter.value}`];
  });
}

interface Masks {
  readonly ipv4: number | null;
  readonly ipv6: number | null;
}

/** An address without its last bits; its port stays, and so does a text that is not an address. */
function masked(text: string, { ipv4, ipv6 }: Masks): string {
  const [, bracketed, plain, port] = /^(?:\[(.+)\]|([^:]+))(:\d+)$/.exec(text) ?? [];
  const host = bracketed ?? plain ?? text;
  const version = isIP(host);
  const bits = version === 4 ? ipv4 : version === 6 ? ipv6 : null;
  if (bits === null) return text;
  const kept = maskedAddress(host, bits);
  return port === undefined ? kept : `${bracketed === undefined ? kept : `[${kept}]`}${port}`;
}

/** Durations are numbers of seconds in fields that are called so. */
function withDurations(format: Exclude<DurationFormat, 'seconds'>): (fields: Fields) => void {
  return (fields) => {
    for (const [name, value] of Object.entries(fields)) {
      if (typeof value !== 'number' || !/(?:^|\.)duration$/.test(name)) continue;
      fields[name] = durationIn(value, format);
    }
  };
}

function durationIn(seconds: number, format: Exclude<DurationFormat, 'seconds'>): number | string {
  if (format === 'nano') return Math.round(seconds * 1e9);
  if (format === 'ms') return Math.round(seconds * 1e6) / 1e3;
  return durationText(seconds);
}

/** `1m2.5s`, `12.3ms`, `162.9µs`: durations as Go writes them. */
function durationText(seconds: number): string {
  if (seconds === 0) return '0s';
  // Rounded first, because rounding may lead to the next unit.
  const microseconds = Math.round(seconds * 1e9) / 1e3;
  if (microseconds < 1e3) return `${microseconds}µs`;
  const milliseconds = Math.round(microseconds) / 1e3;
  if (milliseconds < 1e3) return `${milliseconds}ms`;
  const rounded = Math.round(microseconds) / 1e6;
  const hours = Math.floor(rounded / 3600);
  const minutes = Math.floor((rounded % 3600) / 60);
  const rest = String(Math.round((rounded % 60) * 1e6) / 1e6);
  const long = hours > 0 ? `${hours}h${minutes}m` : minutes > 0 ? `${minutes}m` : '';
  return `${long}${rest}s`;
}

function renaming(before: string, after: string): (fields: Fields) => void {
  return (fields) => {
    if (!Object.hasOwn(fields, before)) return;
    fields[after] = fields[before];
    delete fields[before];
  };
}

/** A time in JSON, in UTC; finer than a millisecond only in its zeros. */
const TIMES: Readonly<Record<TimeFormat, (at: Date) => string>> = {
  unix_seconds_float: (at) => String(at.getTime() / 1000),
  unix_milli_float: (at) => String(at.getTime()),
  unix_nano: (at) => `${at.getTime()}000000`,
  iso8601: (at) => `"${at.toISOString()}"`,
  rfc3339: (at) => `"${at.toISOString().slice(0, -5)}Z"`,
  rfc3339_nano: (at) => `"${at.toISOString()}"`,
  wall: (at) => `"${wall(at).slice(0, -4)}"`,
  wall_milli: (at) => `"${wall(at)}"`,
  wall_nano: (at) => `"${wall(at)}000000"`,
  common_log: (at) => `"${commonLog(at)}"`,
};

function wall(at: Date): string {
  return at.toISOString().slice(0, -1).replaceAll('-', '/').replace('T', ' ');
}
