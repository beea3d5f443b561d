// What changes the lines of a log: names of members, forms of times, filters of fields. The reader of
// Hubfiles, YAML, JSON and the writer of the log share this description.

import {
  byKind,
  defaultsOf,
  list,
  object,
  type Of,
  optional,
  section,
  withDefault,
} from './shape.ts';
import { count, name, oneOf, text } from './shape-values.ts';

/**
 * `auto`: console on a terminal, otherwise JSON. `json` names the fields as OpenTelemetry does, `caddy` as
 * Caddy does.
 */
export const LOG_FORMATS = ['auto', 'console', 'json', 'caddy'] as const;
export type LogFormat = (typeof LOG_FORMATS)[number];

export const TIME_FORMATS = [
  'unix_seconds_float',
  'unix_milli_float',
  'unix_nano',
  'iso8601',
  'rfc3339',
  'rfc3339_nano',
  'wall',
  'wall_milli',
  'wall_nano',
  'common_log',
] as const;
export type TimeFormat = (typeof TIME_FORMATS)[number];

export const DURATION_FORMATS = ['seconds', 'ms', 'nano', 'string'] as const;
export type DurationFormat = (typeof DURATION_FORMATS)[number];

export const LEVEL_FORMATS = ['lower', 'upper'] as const;

/** What happens to a parameter of a query, or to a cookie. */
export type PairFilter =
  | { readonly kind: 'delete'; readonly name: string }
  | { readonly kind: 'hash'; readonly name: string }
  | { readonly kind: 'replace'; readonly name: string; readonly value: string };

/** What happens to a value. */
export type LogChange =
  | { readonly kind: 'delete' }
  | { readonly kind: 'hash' }
  | { readonly kind: 'rename'; readonly name: string }
  | { readonly kind: 'replace'; readonly value: string }
  /** The number of bits that are kept; null: addresses of this version stay. */
  | { readonly kind: 'ip_mask'; readonly ipv4: number | null; readonly ipv6: number | null }
  | { readonly kind: 'regexp'; readonly pattern: string; readonly replacement: string }
  | { readonly kind: 'query'; readonly pairs: readonly PairFilter[] }
  | { readonly kind: 'cookie'; readonly pairs: readonly PairFilter[] };

/** Most filters of a log, and most fields that it appends. Each costs time for every line. */
export const MAX_LOG_FILTERS = 100;

/** A member's name must not be confused with the members of other fields. */
export function isLogMember(text: string): boolean {
  return /^[\w@.-]{1,100}$/.test(text);
}

const member = optional(text('a name of letters, digits, _, -, @ and .', isLogMember));

const logMemberMembers = {
  messageKey: member,
  levelKey: member,
  timeKey: member,
  /** Of the name of the log, which lines in Caddy's format have. */
  nameKey: member,
  levelFormat: withDefault(oneOf(...LEVEL_FORMATS), 'lower'),
  timeFormat: optional(oneOf(...TIME_FORMATS)),
  durationFormat: withDefault(oneOf(...DURATION_FORMATS), 'seconds'),
};

/** Names and forms of the members that each JSON line has; null: those of the format. */
export interface LogMembers extends Of<typeof logMemberMembers> {}

export const defaultLogMembers: LogMembers = defaultsOf(logMemberMembers);

const pairs = list(
  byKind<PairFilter>({
    delete: object({ name: name('a name') }),
    hash: object({ name: name('a name') }),
    replace: object({ name: name('a name'), value: text('a value') }),
  }),
  { min: 1 },
);

const filterMembers = {
  /** The name of a field; `>` leads into an object: `request>headers>User-Agent`. */
  field: name('the name of a field'),
  change: byKind<LogChange>({
    delete: object({}),
    hash: object({}),
    rename: object({ name: name('the name of a field') }),
    replace: object({ value: text('a value') }),
    ip_mask: object({
      ipv4: optional(count({ max: 32 })),
      ipv6: optional(count({ max: 128 })),
    }),
    regexp: object({
      pattern: name('a regular expression'),
      replacement: text('a replacement'),
    }),
    query: object({ pairs }),
    cookie: object({ pairs }),
  }),
};

export interface LogFilter extends Of<typeof filterMembers> {}

const encodingMembers = {
  members: section<LogMembers>(logMemberMembers),
  filters: withDefault(list<LogFilter>(object(filterMembers)), []),
  /** Fields that every line gets. */
  append: withDefault(
    list(object({ field: name('the name of a field'), value: text('a value') })),
    [],
  ),
};

export interface LogEncoding extends Of<typeof encodingMembers> {}

export const defaultLogEncoding: LogEncoding = defaultsOf(encodingMembers);
export const logEncodingShape = section<LogEncoding>(encodingMembers);
